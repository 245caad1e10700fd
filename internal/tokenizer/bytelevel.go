package tokenizer

import "unicode/utf8"

// Byte-level BPE spells each byte of a text as one character: the printable
// ones of Latin-1 as themselves, the other 68 as the characters from U+0100
// on, in the order of the bytes. A space is U+0120 that way.

// byteSpelling is the character of each byte.
var byteSpelling = func() (spelling [256]rune) {
	next := rune(0x100)
	for b := range rune(256) {
		if '!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || 0xae <= b {
			spelling[b] = b
			continue
		}
		spelling[b] = next
		next++
	}
	return spelling
}()

// byteOfRune is the inverse of byteSpelling: the byte + 1, or 0.
var byteOfRune = func() (bytes [0x144]uint16) {
	for b, r := range byteSpelling {
		bytes[r] = uint16(b) + 1
	}
	return bytes
}()

// spell writes bytes as byte-level BPE does.
func spell(raw []byte) string {
	out := make([]byte, 0, 2*len(raw))
	for _, b := range raw {
		out = utf8.AppendRune(out, byteSpelling[b])
	}
	return string(out)
}

// unspell appends the bytes that text spells to dst; false if it has a
// character that stands for no byte.
func unspell[T string | []byte](dst []byte, text T) ([]byte, bool) {
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			end := min(i+utf8.UTFMax, len(text))
			r, n = utf8.DecodeRuneInString(string(text[i:end]))
		}
		if int(r) >= len(byteOfRune) || byteOfRune[r] == 0 {
			return dst, false
		}
		dst = append(dst, byte(byteOfRune[r]-1))
		i += n
	}
	return dst, true
}
