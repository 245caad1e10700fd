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
		use(t, Files{Model: model})
	})
}

// FuzzTokenizerJSON looks for files that panic or hang, in reading or in use.
func FuzzTokenizerJSON(f *testing.F) {
	f.Add(small())
	for _, name := range []string{"llama2", "mixed", "metaspace"} {
		f.Add(readFile(f, "testdata/json/"+name+".json"))
	}
	f.Fuzz(func(t *testing.T, data []byte) { use(t, Files{JSON: data}) })
}

// FuzzByteLevel checks that every valid text comes back from the ids of a byte-level model.
func FuzzByteLevel(f *testing.F) {
	for _, s := range []string{"", " ", "Hello, world!", "你好 🤗", "a\n\n  b's <|end|>", "\xff\xfe", strings.Repeat(" ", 40)} {
		f.Add(s)
	}
	var toks []Tokenizer
	for _, name := range []string{"gpt2", "llama3", "smollm"} {
		toks = append(toks, jsonTokenizer(f, name))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		for _, tok := range toks {
			if got := tok.Decode(tok.Encode(text, false), false); got != text {
				t.Fatalf("%q came back as %q", text, got)
			}
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
