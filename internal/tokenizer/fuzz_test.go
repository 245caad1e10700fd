package tokenizer

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/eliben/go-sentencepiece"
)

// FuzzModel looks for model files that panic or hang, in reading or in use.
func FuzzModel(f *testing.F) {
	for _, name := range []string{"prefix", "no_bytes", "charsmap", "suffix"} {
		f.Add(readFile(f, "testdata/spm/"+name+".model"))
	}
	f.Fuzz(func(t *testing.T, model []byte) {
		tok, err := New(Files{Model: model})
		if err != nil {
			return
		}
		ids := tok.Encode("the cat \u3000 你好<sep>  Ａ\u00c0\u0301 \xff caca  x", true)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.NumTokens() {
				t.Fatalf("id %d of %d", id, tok.NumTokens())
			}
		}
		if text := tok.Decode(ids, false); !utf8.ValidString(text) {
			t.Fatalf("%q is no UTF-8", text)
		}
	})
}

// FuzzRoundTrip compares with another implementation, go-sentencepiece, and
// checks that valid text comes back from its ids.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{
		"", " ", "Hello, world!", "你好，世界 🤗", "a\u2581b", "<|end_of_sentence|>x<s>", strings.Repeat(" ", 40),
		"\xff\xfe\xe4\xbd", "\u2014\u2014\u2014\u2014...", "int main() {\n\treturn 0;\n}\n", "e\u0301\u0000\ufffd",
	} {
		f.Add(s)
	}
	tok := tiny(f)
	oracle, err := sentencepiece.NewProcessor(bytes.NewReader(readFile(f, "testdata/tokenizer.model")))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text, false)
		got := tok.Decode(ids, false)
		if !utf8.ValidString(got) {
			t.Fatalf("Decode gave %q, which is no UTF-8", got)
		}
		if !utf8.ValidString(text) {
			return
		}
		// U+2581 is how a space is written in pieces, so it comes back as one.
		if want := strings.ReplaceAll(text, spaceMark, " "); got != want {
			t.Fatalf("%q came back as %q", text, got)
		}
		tokens := oracle.Encode(text)
		if len(tokens) != len(ids) {
			t.Fatalf("%q: %d ids, the oracle has %d", text, len(ids), len(tokens))
		}
		for i, o := range tokens {
			if int(ids[i]) != o.ID {
				t.Fatalf("%q: id %d is %d, the oracle has %d", text, i, ids[i], o.ID)
			}
		}
	})
}
