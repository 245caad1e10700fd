package weights

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/tokenizer" // tests may import more than the package
	"github.com/pagelight/pagelight/internal/tokenizer/pattern"
)

func readTestdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(name, ".gz") {
		return b
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	return b
}

// openVocabulary makes a tokenizer of the vocabulary of a GGUF file.
func openVocabulary(raw []byte) (tokenizer.Tokenizer, map[string][]byte, error) {
	f, err := readGGUF("test.gguf", memBlob(raw))
	if err != nil {
		return nil, nil, err
	}
	files, err := ggufVocabulary(f.kv)
	if err != nil {
		return nil, nil, err
	}
	tok, err := tokenizer.New(tokenizer.Files{Model: files["tokenizer.model"], JSON: files["tokenizer.json"], Config: files["tokenizer_config.json"]})
	return tok, files, err
}

// The vocabularies, texts and ids are llama.cpp's own test data.
func TestGGUFVocabulariesAsLlamaCpp(t *testing.T) {
	t.Parallel()
	texts := strings.Split(string(readTestdata(t, "vocab/texts.inp")), "\n__ggml_vocab_test__\n")
	for name, addBOS := range map[string]bool{"llama-spm": true, "gpt-2": false, "deepseek-llm": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, _, err := openVocabulary(readTestdata(t, "vocab/"+name+".gguf.gz"))
			if err != nil {
				t.Fatal(err)
			}
			if before, after := tok.Affixes(); (len(before) == 1) != addBOS || after != nil {
				t.Errorf("affixes %v and %v, want bos: %v", before, after, addBOS)
			}
			lines := strings.Split(string(readTestdata(t, "vocab/"+name+".out")), "\n")
			if len(texts) != 47 || len(lines) != 47 {
				t.Fatalf("%d texts and %d lines, want 47", len(texts), len(lines))
			}
			for i, text := range texts {
				want := []int32{}
				for _, field := range strings.Fields(lines[i]) {
					var id int32
					if _, err := fmt.Sscan(field, &id); err != nil {
						t.Fatal(err)
					}
					want = append(want, id)
				}
				if got := tok.Encode(text, false); !slices.Equal(got, want) {
					t.Errorf("%q:\n got %v\nwant %v", text, got, want)
				}
				if got := tok.Decode(want, false); got != text {
					t.Errorf("%v decodes to %q, want %q", want, got, text)
				}
			}
		})
	}
}

// The texts and ids are those of llama.cpp and of another implementation that agreed with it.
func TestGGUFVocabularyOfErnie(t *testing.T) {
	t.Parallel()
	tok, files, err := openVocabulary(readTestdata(t, "gguf/ernie-s-q4_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Tokenizer struct {
			Cases []struct {
				Text         string
				ParseSpecial bool `json:"parse_special"`
				IDs          []int32
			}
		}
	}
	if err := json.Unmarshal(readTestdata(t, "gguf/expected.json"), &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected.Tokenizer.Cases) != 42 {
		t.Fatalf("%d cases, want 42", len(expected.Tokenizer.Cases))
	}
	for _, c := range expected.Tokenizer.Cases {
		if got := tok.Encode(c.Text, c.ParseSpecial); !slices.Equal(got, c.IDs) {
			t.Errorf("%q, special %v:\n got %v\nwant %v", c.Text, c.ParseSpecial, got, c.IDs)
		}
	}
	if before, _ := tok.Affixes(); before != nil {
		t.Errorf("bos is added: %v", before)
	}
	var config struct {
		Template string `json:"chat_template"`
		EOS      string `json:"eos_token"`
	}
	if err := json.Unmarshal(files["tokenizer_config.json"], &config); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(config.Template, "Assistant: ") || config.EOS != "</s>" {
		t.Errorf("template %q, eos %q", config.Template, config.EOS)
	}
}

// spmKeys are the metadata of a SentencePiece vocabulary with some pieces of each kind.
func spmKeys() []ggufKV {
	tokens := []string{"<unk>", "<s>", "</s>", "<use r>", "", "\u2581a", "a", "b", "ab", "\u2581"}
	types := []int32{2, 3, 3, 4, 1, 1, 1, 1, 1, 1}
	scores := []float32{0, 0, 0, 0, 0, -1, -4, -4, -2, -3}
	for b := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
		types = append(types, 6)
		scores = append(scores, 0)
	}
	return []ggufKV{
		{"tokenizer.ggml.model", "llama"},
		{"tokenizer.ggml.tokens", append(tokens, "[PAD0]", "[PAD1]")},
		{"tokenizer.ggml.token_type", append(types, 5, 5)},
		{"tokenizer.ggml.scores", append(scores, -1000, -1000)},
	}
}

// bpeKeys are the metadata of a byte-level vocabulary.
func bpeKeys(pre string) []ggufKV {
	var tokens []string
	for r := '!'; r < 0x144; r++ {
		if r <= '~' || r >= 0xa1 && r != 0xad {
			tokens = append(tokens, string(r))
		}
	}
	types := slices.Repeat([]int32{1}, len(tokens))
	return []ggufKV{
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", pre},
		{"tokenizer.ggml.tokens", append(tokens, "ab", "<|s|>", "<tool>", "unused", "<|eot|>")},
		{"tokenizer.ggml.token_type", append(types, 1, 3, 4, 5, 3)},
		{"tokenizer.ggml.merges", []string{"a b"}},
		{"tokenizer.ggml.bos_token_id", uint32(len(tokens) + 1)},
		{"tokenizer.ggml.eot_token_id", uint32(len(tokens) + 4)},
	}
}

// withKey replaces or adds a key; nil leaves it out.
func withKey(keys []ggufKV, key string, value any) []ggufKV {
	keys = slices.DeleteFunc(slices.Clone(keys), func(kv ggufKV) bool { return kv.key == key })
	if value != nil {
		keys = append(keys, ggufKV{key, value})
	}
	return keys
}

func TestGGUFTokenTypesAndDefaults(t *testing.T) {
	t.Parallel()
	spm := func(keys []ggufKV) tokenizer.Tokenizer {
		t.Helper()
		tok, _, err := openVocabulary(ggufMaker{kv: keys}.file())
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	tok := spm(spmKeys())
	for _, c := range []struct {
		text    string
		special bool
		want    []int32
	}{
		{"a", true, []int32{5}},                                // the space in front
		{"a<use r>a", false, []int32{5, 3, 6}},                 // user-defined, its space as it was written
		{"</s>ab", true, []int32{2, 5, 7}},                     // control
		{"</s>", false, []int32{9, 70, 57, 125, 72}},           // as bytes
		{"b\n", true, []int32{9, 7, 20}},                       // a byte
		{"[PAD0]", true, []int32{9, 101, 90, 75, 78, 58, 103}}, // not there
	} {
		if got := tok.Encode(c.text, c.special); !slices.Equal(got, c.want) {
			t.Errorf("%q, special %v: got %v, want %v", c.text, c.special, got, c.want)
		}
	}
	if before, _ := tok.Affixes(); !slices.Equal(before, []int32{1}) {
		t.Errorf("before a text comes %v, want the bos of such vocabularies", before)
	}
	if tok.NumTokens() != 266 {
		t.Errorf("%d tokens, want 266 without the padding", tok.NumTokens())
	}
	if piece, _ := tok.Token(4); piece != "[EMPTY_4]" {
		t.Errorf("the token without text is %q", piece)
	}
	tok = spm(withKey(withKey(spmKeys(), "tokenizer.ggml.add_space_prefix", false), "tokenizer.ggml.add_bos_token", false))
	if got := tok.Encode("a", true); !slices.Equal(got, []int32{6}) {
		t.Errorf("without the space in front: %v", got)
	}
	if before, _ := tok.Affixes(); before != nil {
		t.Errorf("bos is added: %v", before)
	}

	tok = spm(bpeKeys("llama-bpe"))
	n := int32(tok.NumTokens())
	if got, want := tok.Encode("ab<tool><|s|>", true), []int32{n - 5, n - 3, n - 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := tok.Encode("ab<tool><|s|>", false); len(got) != 7 || got[1] != n-3 {
		t.Errorf("without special tokens: %v", got)
	}
	if before, _ := tok.Affixes(); !slices.Equal(before, []int32{n - 4}) {
		t.Errorf("before a text comes %v, want the bos of llama-bpe", before)
	}
	if _, ok := tok.Token(n - 2); ok || !tok.IsSpecial(n-1) || tok.IsSpecial(n-3) {
		t.Error("an unused token exists, or a wrong one is special")
	}
	if before, _ := spm(bpeKeys("qwen2")).Affixes(); before != nil {
		t.Errorf("qwen2 adds %v", before)
	}
}

// What the names of pre-tokenizers stand for, on a text that they all split differently.
func TestGGUFPreTokenizers(t *testing.T) {
	t.Parallel()
	for pre, want := range map[string]string{
		"":               "I|'|ll| take| |123|45| e|.|g|.,|  | ok|\n\n| x",
		"gpt-2":          "I|'ll| take| 12345| e|.|g|.,|  | ok|\n\n| x",
		"smollm":         "I|'ll| take| |1|2|3|4|5| e|.|g|.,|  | ok|\n\n| x",
		"llama-bpe":      "I|'ll| take| |123|45| e|.g|.,|  | ok|\n\n| x",
		"qwen2":          "I|'ll| take| |1|2|3|4|5| e|.g|.,|  | ok|\n\n| x",
		"deepseek-llm":   "I|'|ll| take| |12345| e|.|g|.,|  | ok|\n|\n| x",
		"deepseek-coder": "I|'|ll| take| |1|2|3|4|5| e|.|g|.,|  | ok|\n|\n| x",
		"deepseek-v3":    "I|'ll| take| |123|45| e|.g|.,|  | ok|\n\n| x",
		"gpt-4o":         "I'll| take| |123|45| e|.g|.,|  | ok|\n\n| x",
		"tekken":         "I|'ll| take| |1|2|3|4|5| e|.g|.,|  | ok|\n\n| x",
	} {
		splits, ok := ggufPreFor(pre)
		if !ok {
			t.Fatalf("%s is not known", pre)
		}
		pieces := []string{"I'll take 12345 e.g.,   ok\n\n x"}
		for _, expr := range splits.splits {
			p, err := pattern.Compile(expr)
			if err != nil {
				t.Fatal(err)
			}
			var next []string
			for _, piece := range pieces {
				done := 0
				p.All(piece, func(start, end int) {
					next = append(next, piece[done:start], piece[start:end])
					done = end
				})
				next = append(next, piece[done:])
			}
			pieces = slices.DeleteFunc(next, func(piece string) bool { return piece == "" })
		}
		if got := strings.Join(pieces, "|"); got != want {
			t.Errorf("%s:\n got %q\nwant %q", pre, got, want)
		}
	}
}

func TestGGUFVocabulariesAreRefusedByName(t *testing.T) {
	t.Parallel()
	spm, bpe := spmKeys(), bpeKeys("gpt-2")
	for _, c := range []struct {
		keys  []ggufKV
		key   string
		value any
		want  string
	}{
		{spm, "tokenizer.ggml.model", "bert", `tokenizer.ggml.model is "bert"`},
		{spm, "tokenizer.ggml.model", uint32(3), "want a string"},
		{spm, "tokenizer.ggml.tokens", nil, "tokenizer.ggml.tokens is missing"},
		{spm, "tokenizer.ggml.tokens", []string{"a", "a"}, `"a" is token 0 and token 1`},
		{spm, "tokenizer.ggml.tokens", []string{"\xff"}, "not valid UTF-8"},
		{spm, "tokenizer.ggml.token_type", []int32{1}, "has 1 elements for 268 tokens"},
		{spm, "tokenizer.ggml.scores", []float32{1}, "has 1 elements for 266 tokens"},
		{spm, "tokenizer.ggml.add_bos_token", "yes", "want a bool"},
		{spm, "tokenizer.chat_template", "\xff", "not valid UTF-8"},
		{bpe, "tokenizer.ggml.pre", "klingon", `tokenizer.ggml.pre is "klingon"`},
		{bpe, "tokenizer.ggml.merges", nil, "tokenizer.ggml.merges is missing"},
		{bpe, "tokenizer.ggml.merges", []string{"a zz"}, `"zz"`},
		{bpe, "tokenizer.ggml.merges", []string{"\xff a"}, "not valid UTF-8"},
		{withKey(bpe, "tokenizer.ggml.bos_token_id", nil), "tokenizer.ggml.add_bos_token", true, "not named"},
	} {
		if _, _, err := openVocabulary(ggufMaker{kv: withKey(c.keys, c.key, c.value)}.file()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %.40v: got %v, want an error with %q", c.key, c.value, err, c.want)
		}
	}
	if _, files, err := openVocabulary(ggufMaker{}.file()); files != nil || err == nil {
		t.Errorf("a file without a vocabulary has the files %v", files)
	}
}

// Two hundred headers with bytes changed: an error or a tokenizer that works, and no panic.
func TestMutatedGGUFVocabularies(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 1))
	for _, keys := range [][]ggufKV{spmKeys(), bpeKeys("deepseek-llm")} {
		file := ggufMaker{kv: keys}.file()
		for range 100 {
			m := slices.Clone(file)
			for range 1 + rng.IntN(4) {
				m[24+rng.IntN(len(m)-24)] ^= 1 << rng.IntN(8)
			}
			tok, _, err := openVocabulary(m)
			if err != nil {
				continue
			}
			for _, id := range tok.Encode("a<use r> ab<|s|>\n\u4f60\xff 123", true) {
				if id < 0 || int(id) >= tok.NumTokens() {
					t.Fatalf("id %d of %d", id, tok.NumTokens())
				}
			}
		}
	}
}
