package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream turns ids into text one by one. What Push and then Flush return,
// put together, equals Decode of all ids; and everything that is returned is
// complete: a character whose bytes are spread over several tokens is held
// back until its last byte, so no U+FFFD appears that later text would take
// back. A Stream belongs to one goroutine.
type Stream struct {
	t           Tokenizer
	skipSpecial bool
	pending     []byte // the start of a character, at most 3 bytes between calls
	started     bool   // past the space that the dummy prefix had put in front
}

// leadTrimmer is implemented by tokenizers whose encoding puts a space in
// front of the text, which decoding takes away again.
type leadTrimmer interface {
	leadingSpace(id int32) (trim, repeat bool)
}

// NewStream starts a stream at the beginning of a text. skipSpecial leaves
// special tokens out.
func NewStream(t Tokenizer, skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	if _, ok := t.(leadTrimmer); !ok {
		s.started = true
	}
	return s
}

// Push adds one id and returns the text that is complete now and was not
// returned before; often "".
func (s *Stream) Push(id int32) string {
	s.add(id)
	complete := len(s.pending)
	// Only the last character can be incomplete, and it begins in the last
	// three bytes.
	for i := complete - 1; i >= 0 && i >= complete-utf8.UTFMax+1; i-- {
		if utf8.RuneStart(s.pending[i]) {
			if !utf8.FullRune(s.pending[i:]) {
				complete = i
			}
			break
		}
	}
	text := validUTF8(s.pending[:complete])
	s.pending = append(s.pending[:0], s.pending[complete:]...)
	return text
}

// Flush ends the text and returns what was held back: the bytes of an
// unfinished character, each as U+FFFD. The stream then stands as if no
// bytes were pending, and further ids may follow.
func (s *Stream) Flush() string {
	text := validUTF8(s.pending)
	s.pending = s.pending[:0]
	return text
}

func (s *Stream) add(id int32) {
	start := len(s.pending)
	s.pending = s.t.AppendToken(s.pending, id, s.skipSpecial)
	if s.started || len(s.pending) == start {
		return
	}
	s.started = true
	if trim, repeat := s.t.(leadTrimmer).leadingSpace(id); trim {
		s.pending = append(s.pending[:start], s.pending[start+1:]...)
		// With remove_extra_whitespaces SentencePiece drops spaces until
		// some text has come.
		s.started = !repeat || len(s.pending) > start
	}
}

// validUTF8 returns b as text, with U+FFFD for each byte that is part of no
// character.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var sb strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		sb.WriteRune(r)
		b = b[n:]
	}
	return sb.String()
}

// decodeAll is Decode for every Tokenizer of this package: the same steps as
// a Stream, with one conversion at the end.
func decodeAll(t Tokenizer, ids []int32, skipSpecial bool) string {
	s := NewStream(t, skipSpecial)
	for _, id := range ids {
		s.add(id)
	}
	return s.Flush()
}
