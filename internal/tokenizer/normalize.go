package tokenizer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// spaceMark is U+2581, which stands for a space inside pieces.
const spaceMark = "\u2581"

// maxReplacementBytes bounds what one character may turn into, so that a
// hostile table cannot turn a short text into gigabytes. The longest of
// Unicode's NFKC has 33 bytes (U+FDFA).
const maxReplacementBytes = 64

// charsMap is SentencePiece's precompiled normalization table: a Darts-clone
// double-array trie from text to an offset into NUL-terminated strings
// (sentencepiece/src/normalizer.cc, third_party/darts_clone/darts.h).
type charsMap struct {
	units []uint32
	text  []byte
}

func parseCharsMap(blob []byte) (*charsMap, error) {
	if len(blob) < 4 {
		return nil, errors.New("precompiled_charsmap is truncated")
	}
	size := binary.LittleEndian.Uint32(blob)
	blob = blob[4:]
	if uint64(size) > uint64(len(blob)) || size%4 != 0 || size == 0 {
		return nil, errors.New("precompiled_charsmap has a trie longer than itself or of an odd size")
	}
	c := &charsMap{units: make([]uint32, size/4), text: append([]byte(nil), blob[size:]...)}
	for rest := c.text; len(rest) > 0; {
		run := rest
		if end := bytes.IndexByte(rest, 0); end >= 0 {
			run, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		if len(run) > maxReplacementBytes {
			return nil, fmt.Errorf("precompiled_charsmap has a replacement of %d bytes, more than the limit of %d", len(run), maxReplacementBytes)
		}
	}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4*i:])
	}
	return c, nil
}

// lookup returns the replacement of the longest prefix of s in the table
// and that prefix's length, 0 if there is none. Every index is checked: the
// table comes from a file.
func (c *charsMap) lookup(s string) (to []byte, size int) {
	offset := func(u uint32) uint32 { return (u >> 10) << ((u & (1 << 9)) >> 6) }
	pos := offset(c.units[0])
	for i := range len(s) {
		pos ^= uint32(s[i])
		if pos >= uint32(len(c.units)) {
			break
		}
		u := c.units[pos]
		if u&(1<<31|0xff) != uint32(s[i]) {
			break
		}
		pos ^= offset(u)
		if u>>8&1 == 0 {
			continue
		}
		if pos >= uint32(len(c.units)) {
			break
		}
		v := c.units[pos] & (1<<31 - 1)
		if v >= uint32(len(c.text)) {
			break
		}
		to, size = c.text[v:], i+1
		if end := bytes.IndexByte(to, 0); end >= 0 {
			to = to[:end]
		}
	}
	return to, size
}

// normalizePrefix returns what stands for the first size bytes of s, which
// is not empty. Bytes that are no UTF-8 become U+FFFD, one for each byte.
func (m *spModel) normalizePrefix(s string) (to string, size int) {
	if n, _ := longestMatch(m.userDefined, s); n > 0 {
		return s[:n], n
	}
	if m.chars != nil {
		if to, n := m.chars.lookup(s); n > 0 {
			return string(to), n
		}
	}
	if s[0] < utf8.RuneSelf {
		return s[:1], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return "\uFFFD", 1
	}
	return s[:n], n
}

// normalize appends the normalized form of s to dst, as Normalizer::Normalize
// of SentencePiece does. prefix asks for the dummy prefix.
func (m *spModel) normalize(dst []byte, s string, prefix bool) []byte {
	space := " "
	if m.escapeSpace {
		space = spaceMark
	}
	start := len(dst)
	if m.removeExtra {
		for len(s) > 0 {
			to, n := m.normalizePrefix(s)
			if to != " " {
				break
			}
			s = s[n:]
		}
	}
	if s == "" {
		return dst
	}
	if prefix && !m.wsSuffix {
		dst = append(dst, space...)
	}
	afterSpace := m.removeExtra
	for len(s) > 0 {
		to, n := m.normalizePrefix(s)
		s = s[n:]
		for afterSpace && len(to) > 0 && to[0] == ' ' {
			to = to[1:]
		}
		if len(to) > 0 {
			if len(to) == 1 && to[0] != ' ' {
				dst = append(dst, to[0])
			} else {
				for i := range len(to) {
					if to[i] == ' ' {
						dst = append(dst, space...)
					} else {
						dst = append(dst, to[i])
					}
				}
			}
			afterSpace = to[len(to)-1] == ' '
		}
		if !m.removeExtra {
			afterSpace = false
		}
	}
	if m.removeExtra {
		for bytes.HasSuffix(dst[start:], []byte(space)) {
			dst = dst[:len(dst)-len(space)]
		}
	}
	if prefix && m.wsSuffix {
		dst = append(dst, space...)
	}
	return dst
}
