package tokenizer

import "strconv"

// synthetic is the vocabulary of the synthetic model.
type synthetic struct{ vocabSize int }

// syntheticByte0 is the id of byte 0, as in the ERNIE 4.5 vocabulary.
const syntheticByte0 = 13

// syntheticSpecial are the ids with a meaning, as in the ERNIE 4.5 vocabulary.
var syntheticSpecial = map[string]int32{"unk_token": 0, "bos_token": 1, "eos_token": 2}

// NewSynthetic returns a vocabulary that needs no file, for a model of
// random weights: id n is written " n" (a space and the decimal number), for
// all n below vocabSize, so every sequence of ids has a text and
// Encode(Decode(ids, false), _) returns the same ids.
//
// When encoding, a space followed by a canonical decimal number (no leading
// zero) below vocabSize that no further digit follows is that id. All other
// text goes byte by byte: byte b is id 13+b, as in the ERNIE 4.5 vocabulary
// (modulo vocabSize, if that is below 269). Those ids decode to " 13" to
// " 268" like any other, so Decode(Encode(text)) is not text again: the
// synthetic model has nothing to say. Ids 0, 1 and 2 are unk, bos and eos.
func NewSynthetic(vocabSize int) Tokenizer { return synthetic{max(vocabSize, 1)} }

func (t synthetic) Encode(text string, _ bool) []int32 {
	ids := make([]int32, 0, len(text)/2)
	for i := 0; i < len(text); {
		if id, n := t.number(text[i:]); n > 0 {
			ids = append(ids, id)
			i += n
			continue
		}
		ids = append(ids, int32((syntheticByte0+int(text[i]))%t.vocabSize))
		i++
	}
	return ids
}

// number reads a piece at the start of s and returns its length, 0 if there
// is none.
func (t synthetic) number(s string) (id int32, size int) {
	if len(s) < 2 || s[0] != ' ' {
		return 0, 0
	}
	v, i := 0, 1
	for ; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		v = v*10 + int(s[i]-'0')
		if v >= t.vocabSize || i > 1 && s[1] == '0' {
			return 0, 0
		}
	}
	if i == 1 {
		return 0, 0
	}
	return int32(v), i
}

func (t synthetic) Decode(ids []int32, skipSpecial bool) string {
	return decodeAll(t, ids, skipSpecial)
}

func (t synthetic) NumTokens() int { return t.vocabSize }

func (t synthetic) exists(id int32) bool { return id >= 0 && int(id) < t.vocabSize }

func (t synthetic) Token(id int32) (string, bool) {
	if !t.exists(id) {
		return "", false
	}
	return " " + strconv.Itoa(int(id)), true
}

func (t synthetic) TokenID(piece string) (int32, bool) {
	id, n := t.number(piece)
	return id, n > 0 && n == len(piece)
}

func (t synthetic) IsSpecial(id int32) bool { return t.exists(id) && id <= 2 }

func (t synthetic) AppendToken(dst []byte, id int32, skipSpecial bool) []byte {
	if !t.exists(id) || skipSpecial && t.IsSpecial(id) {
		return dst
	}
	return strconv.AppendInt(append(dst, ' '), int64(id), 10)
}

func (t synthetic) Special() map[string]string {
	m := map[string]string{}
	for name, id := range syntheticSpecial {
		if piece, ok := t.Token(id); ok {
			m[name] = piece
		}
	}
	return m
}

func (t synthetic) Affixes() (before, after []int32) { return nil, nil }
