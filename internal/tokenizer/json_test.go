package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func jsonTokenizer(t testing.TB, name string) Tokenizer {
	t.Helper()
	tok, err := New(Files{JSON: readFile(t, "testdata/json/"+name+".json")})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return tok
}

// The files were trained, and the texts encoded and decoded, by Hugging
// Face's tokenizers: see testdata/json/generate.py.
func TestTokenizersOfHuggingFace(t *testing.T) {
	t.Parallel()
	var file struct {
		Texts      []string
		Tokenizers map[string]struct {
			IDs              [][]int32
			Decoded, Skipped []string
			Before, After    []int32
		}
	}
	if err := json.Unmarshal(readFile(t, "testdata/json/vectors.json"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Tokenizers) != 8 || len(file.Texts) != 92 {
		t.Fatalf("%d tokenizers and %d texts, want 8 and 92", len(file.Tokenizers), len(file.Texts))
	}
	for name, want := range file.Tokenizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := jsonTokenizer(t, name)
			if before, after := tok.Affixes(); !slices.Equal(before, want.Before) || !slices.Equal(after, want.After) {
				t.Errorf("affixes %v and %v, want %v and %v", before, after, want.Before, want.After)
			}
			for i, text := range file.Texts {
				if got := tok.Encode(text, true); !slices.Equal(got, want.IDs[i]) {
					t.Errorf("Encode(%q)\n got %v\nwant %v", text, got, want.IDs[i])
				}
				if got := tok.Decode(want.IDs[i], false); got != want.Decoded[i] {
					t.Errorf("Decode(%v)\n got %q\nwant %q", want.IDs[i], got, want.Decoded[i])
				}
				if got := tok.Decode(want.IDs[i], true); got != want.Skipped[i] {
					t.Errorf("Decode(%v) without special tokens\n got %q\nwant %q", want.IDs[i], got, want.Skipped[i])
				}
			}
		})
	}
}

// small is a tokenizer.json with a vocabulary of bytes; change replaces one
// text by another.
func small(change ...string) []byte {
	vocab := map[string]int{"ab": 256, "\u0120a": 257, "<s>": 258, "<unk>": 259}
	for b, r := range byteSpelling {
		vocab[string(r)] = b
	}
	words, err := json.Marshal(vocab)
	if err != nil {
		panic(err)
	}
	text := `{"added_tokens": [{"id": 258, "content": "<s>", "special": true}], "normalizer": null,
		"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}, "post_processor": null,
		"model": {"type": "BPE", "vocab": ` + string(words) + `, "merges": ["a b", "\u0120 a"]}}`
	return []byte(strings.NewReplacer(change...).Replace(text))
}

func TestSmallTokenizer(t *testing.T) {
	t.Parallel()
	tok, err := New(Files{JSON: small(`"\u0120 a"`, `["\u0120", "a"]`)})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{
		"abab": {256, 256}, " ab": {32, 256}, " ac": {257, 'c'}, "<s>b": {258, 'b'}, "é": {0xc3, 0xa9}, "a\xffb": {'a', 0xef, 0xbf, 0xbd, 'b'}, "\x00": {0},
	} {
		if got := tok.Encode(text, true); !slices.Equal(got, want) {
			t.Errorf("Encode(%q) = %v, want %v", text, got, want)
		}
	}
	if got := tok.Encode("<s>", false); slices.Contains(got, 258) {
		t.Errorf("a special token was found without special: %v", got)
	}
	if got := tok.Decode([]int32{0xc3, 258, 0xa9, 0xff, 257, 300, -1}, true); got != "é\uFFFD a" {
		t.Errorf("Decode gave %q", got)
	}
	if piece, ok := tok.Token(257); !ok || piece != "\u0120a" {
		t.Errorf("token 257 is %q, %v", piece, ok)
	}
	if id, ok := tok.TokenID("\u0120a"); !ok || id != 257 {
		t.Errorf("TokenID gave %d, %v", id, ok)
	}
	if _, ok := tok.TokenID(" a"); ok {
		t.Error("a space is no spelling of one")
	}
	if !tok.IsSpecial(258) || tok.IsSpecial(257) || tok.NumTokens() != 260 {
		t.Errorf("special: %v, %v; %d tokens", tok.IsSpecial(258), tok.IsSpecial(257), tok.NumTokens())
	}
}

// The files beside tokenizer.json say what comes around a text, and which
// tokens have a meaning.
func TestConfigBesideTokenizerJSON(t *testing.T) {
	t.Parallel()
	template := `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [258]}}}`
	for _, c := range []struct {
		config string
		want   []int32
	}{
		{"", []int32{258}}, // the template's
		{`{"bos_token": "<s>"}`, []int32{258}},
		{`{"bos_token": "<s>", "add_bos_token": false}`, nil},
		{`{"bos_token": "<unk>", "add_bos_token": true}`, []int32{259}},
	} {
		tok, err := New(Files{JSON: small(`"post_processor": null`, template), Config: []byte(c.config)})
		if err != nil {
			t.Fatal(err)
		}
		if before, after := tok.Affixes(); !slices.Equal(before, c.want) || after != nil {
			t.Errorf("%s: affixes %v and %v, want %v", c.config, before, after, c.want)
		}
	}
	tok, err := New(Files{JSON: small(), Config: []byte(`{"eos_token": "<unk>", "added_tokens_decoder": {"258": {"content": "<s>", "special": true}}}`), AddedTokens: []byte(`{"<new>": 300}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode("<new><unk>", true); !slices.Equal(got, []int32{300, 259}) || !tok.IsSpecial(259) {
		t.Errorf("named and added tokens give %v", got)
	}
}

// A tokenizer.model that is no SentencePiece model, as some checkpoints
// have, does not hide the tokenizer.json.
func TestTokenizerJSONWhereTheModelIsRefused(t *testing.T) {
	t.Parallel()
	if tok, err := New(Files{Model: []byte("IQ== 0\nIg== 1\n"), JSON: small()}); err != nil || tok.NumTokens() != 260 {
		t.Errorf("got %v", err)
	}
	_, err := New(Files{Model: []byte("IQ== 0\n"), JSON: []byte("{}")})
	if err == nil || !strings.Contains(err.Error(), "tokenizer.model: ") || !strings.Contains(err.Error(), "tokenizer.json: ") {
		t.Errorf("two files that are refused: %v", err)
	}
}

func TestTokenizerJSONIsRefusedByName(t *testing.T) {
	t.Parallel()
	pre, dec := `{"type": "ByteLevel", "add_prefix_space": false}`, `"decoder": {"type": "ByteLevel"}`
	for _, c := range []struct{ old, new, want string }{
		{`"BPE"`, `"Unigram"`, `model is of type "Unigram"`},
		{`"BPE"`, `"BPE", "dropout": 0.1`, "dropout"},
		{`"BPE"`, `"BPE", "end_of_word_suffix": "</w>"`, "end_of_word_suffix"},
		{`"BPE"`, `"BPE", "continuing_subword_prefix": "##"`, "continuing_subword_prefix"},
		{`"BPE"`, `"BPE", "unk_token": "<no>"`, `unk_token "<no>"`},
		{`"BPE"`, `"BPE", "byte_fallback": true`, "<0x00>"},
		{`"normalizer": null`, `"normalizer": {"type": "Lowercase"}`, "normalizer 0 (Lowercase)"},
		{`"normalizer": null`, `"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}`, "normalizer 1 (Nmt)"},
		{`"normalizer": null`, `"normalizer": {"type": "Replace", "pattern": {"Regex": "(?<=a)b"}, "content": ""}`, "(?<"},
		{`"normalizer": null`, `"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "` + strings.Repeat("a", 2000) + `"}`, "times longer"},
		{pre, `{"type": "UnicodeScripts"}`, "pre_tokenizer 0 (UnicodeScripts)"},
		{pre, `{"type": "Sequence", "pretokenizers": [` + pre + `, {"type": "Digits"}]}`, "Digits after ByteLevel"},
		{pre, `{"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Odd"}`, `"Odd"`},
		{pre, `{"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"}`, "neither a Regex nor a String"},
		{pre, `{"type": "Metaspace", "replacement": "__"}`, "not one character"},
		{pre, `null`, "only one of pre_tokenizer and decoder"},
		{dec, `"decoder": {"type": "WordPiece"}`, "decoder 0 (WordPiece)"},
		{dec, `"decoder": null`, "no decoder"},
		{`"post_processor": null`, `"post_processor": {"type": "BertProcessing"}`, "BertProcessing"},
		{`"post_processor": null`, `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>"}}]}`, `"<x>"`},
		{`"post_processor": null`, `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}], "special_tokens": {"<s>": {"ids": [999]}}}`, "no token 999"},
		{`"a b"`, `"a"`, "is no pair"},
		{`"a b"`, `"a zz"`, `merge 0: "zz"`},
		{`"a b"`, `["a", 5]`, "no pair of strings"},
		{`"ab":256`, `"ab":255`, "id 255 is both"},
		{`"ab":256`, `"ab":-1`, "the id -1"},
		{`"ab":256`, `"ab":2000000`, "the id 2000000"},
		{`"id": 258`, `"id": -3`, "out of range"},
		{`"merges": [`, `"merges": {`, "invalid character"},
	} {
		data := small(c.old, c.new)
		if string(data) == string(small()) {
			t.Fatalf("%s is not in the file", c.old)
		}
		if _, err := New(Files{JSON: data}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "tokenizer.json") {
			t.Errorf("%.80s: got %v, want an error with %q", c.new, err, c.want)
		}
	}
}

// TestFilesThatAreNoTokenizer: the error names the file that was given, in words of JSON and not of Go.
func TestFilesThatAreNoTokenizer(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                    "tokenizer.json: file is empty",
		"[]":                  "tokenizer.json: the file is of JSON type array",
		`{"model": 5}`:        "tokenizer.json: model is of JSON type number",
		"<html></html>":       "tokenizer.json: broken JSON",
		`{"added_tokens":{}}`: "tokenizer.json: added_tokens is of JSON type object",
	} {
		if _, err := New(Files{JSON: []byte(file)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", file, err, want)
		}
	}
}

// A hundred files with bytes changed, left out or repeated: an error or a
// tokenizer that works, and no panic.
func TestMutatedTokenizerJSON(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 9))
	for _, name := range []string{"gpt2", "llama2", "mixed"} {
		data := readFile(t, "testdata/json/"+name+".json")
		for range 100 {
			m := slices.Clone(data)
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(m))
				switch n := min(1+rng.IntN(40), len(m)-at); rng.IntN(4) {
				case 0:
					m[at] ^= 1 << rng.IntN(8)
				case 1:
					m = m[:at+1]
				case 2:
					m = slices.Delete(m, at, at+n)
				case 3:
					m = slices.Insert(m, at, m[at:at+n]...)
				}
			}
			use(t, Files{JSON: m})
		}
	}
}

// use opens a tokenizer that may be refused, and encodes and decodes.
func use(t *testing.T, files Files) {
	tok, err := New(files)
	if err != nil {
		return
	}
	ids := tok.Encode("the cat \u3000 你好<s>  Ａ\u00c0\u0301 \xff 123 caca\n\n  x", true)
	for _, id := range ids {
		if id < 0 || int(id) >= tok.NumTokens() {
			t.Fatalf("id %d of %d", id, tok.NumTokens())
		}
	}
	if text := tok.Decode(ids, false); !utf8.ValidString(text) {
		t.Fatalf("%q is no UTF-8", text)
	}
}
