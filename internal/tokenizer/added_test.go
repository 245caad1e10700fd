package tokenizer

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// with returns the tiny tokenizer with other files beside the model.
func with(t testing.TB, config, added string) (Tokenizer, error) {
	t.Helper()
	return New(Files{Model: readFile(t, "testdata/tokenizer.model"), Config: []byte(config), AddedTokens: []byte(added)})
}

func TestAddedTokens(t *testing.T) {
	t.Parallel()
	tok, err := with(t, `{"added_tokens_decoder": {
		"8192": {"content": "<a>", "special": true},
		"8193": {"content": "<a><b>", "special": false},
		"8194": {"content": "<l>", "special": true, "lstrip": true},
		"8195": {"content": "<r>", "special": true, "rstrip": true},
		"8196": {"content": "word", "single_word": true, "normalized": true},
		"8200": {"content": "two words"}}}`, `{"<json>": 8201, "<a>": 8192}`)
	if err != nil {
		t.Fatal(err)
	}
	if tok.NumTokens() != 8202 {
		t.Errorf("NumTokens is %d, want 8202", tok.NumTokens())
	}
	plain := func(s string) []int32 { return tok.Encode(s, false) }
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"<a>", []int32{8192}},
		{"<a><b>", []int32{8193}}, // the longest wins
		{"x<a><a><b>y", slices.Concat(plain("x"), []int32{8192, 8193}, plain("y"))},
		{"x  <l> y", slices.Concat(plain("x"), []int32{8194}, plain(" y"))},
		{"x <r>  y", slices.Concat(plain("x "), []int32{8195}, plain("y"))},
		{"<r>  <l>", []int32{8195, 8194}},
		{"a word, sword", slices.Concat(plain("a "), []int32{8196}, plain(", sword"))},
		{"two words", []int32{8200}}, // the raw text comes before normalized ones
		{"<json>", []int32{8201}},
		{"</s>x", slices.Concat([]int32{2}, plain("x"))}, // a control piece of the model
		{"<0x41>", plain("<0x41>")},
	} {
		if got := tok.Encode(c.text, true); !slices.Equal(got, c.want) {
			t.Errorf("Encode(%q)\n got %v\nwant %v", c.text, got, c.want)
		}
	}
	if got := tok.Encode("<a>", false); slices.Contains(got, 8192) {
		t.Errorf("an added token was found without special: %v", got)
	}
	if got := tok.Decode([]int32{8192, 8193, 8200}, true); got != "<a><b>two words" {
		t.Errorf("Decode gave %q", got)
	}
	if got := tok.Decode([]int32{8192, 8197, 9999, -1, 2}, false); got != "<a></s>" {
		t.Errorf("Decode gave %q", got)
	}
	if _, ok := tok.Token(8197); ok {
		t.Error("token 8197 exists")
	}
	if id, ok := tok.TokenID("two words"); !ok || id != 8200 {
		t.Errorf("TokenID gave %d, %v", id, ok)
	}
}

func TestSpecialTokensAndAffixes(t *testing.T) {
	t.Parallel()
	tok := tiny(t)
	special := tok.Special()
	for name, want := range map[string]string{"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<|begin_of_sentence|>", "sep_token": "<|end_of_sentence|>", "pad_token": "<unk>"} {
		if special[name] != want {
			t.Errorf("%s is %q, want %q", name, special[name], want)
		}
	}
	if before, after := tok.Affixes(); before != nil || after != nil {
		t.Errorf("affixes %v and %v, want none", before, after)
	}
	for id := range int32(5) {
		if !tok.IsSpecial(id) {
			t.Errorf("token %d is not special", id)
		}
	}
	if tok.IsSpecial(5) {
		t.Error("a byte token is special")
	}
	llama, err := with(t, `{"tokenizer_class": "LlamaTokenizer", "bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_eos_token": true, "add_prefix_space": true, "legacy": false}`, "")
	if err != nil {
		t.Fatal(err)
	}
	before, after := llama.Affixes()
	if !slices.Equal(before, []int32{1}) || !slices.Equal(after, []int32{2}) {
		t.Errorf("affixes %v and %v, want [1] and [2]", before, after)
	}
	want := slices.Concat(tok.Encode(" a", false), []int32{2}, tok.Encode("b", false))
	if got := llama.Encode("a</s>b", true); !slices.Equal(got, want) {
		t.Errorf("the prefix space: got %v, want %v", got, want)
	}
	if got := llama.Decode(want, true); got != "ab" {
		t.Errorf("the prefix space was not taken away: %q", got)
	}
}

func TestFilesThatLieAreRefused(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{`: "tokenizer_config.json: ",
		`{"added_tokens_decoder": {"x": {"content": "a"}}}`:                               `"x" is no id`,
		`{"added_tokens_decoder": {"-1": {"content": "a"}}}`:                              "out of range",
		`{"added_tokens_decoder": {"2000000000": {"content": "a"}}}`:                      "out of range",
		`{"added_tokens_decoder": {"9000": {"content": ""}}}`:                             "no content",
		`{"added_tokens_decoder": {"1": {"content":"x"}, "2": {"content":"x"}}}`:          "both ids",
		`{"added_tokens_decoder": {"9": {"content":"` + strings.Repeat("x", 300) + `"}}}`: "limit",
		`{"bos_token": 5}`:                               "bos_token is neither",
		`{"add_bos_token": true}`:                        "not named",
		`{"add_bos_token": true, "bos_token": "<nope>"}`: "not in the vocabulary",
	} {
		if _, err := with(t, config, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want an error with %q", config, err, want)
		}
	}
	model := readFile(t, "testdata/spm/suffix.model")
	for n := range model {
		if _, err := New(Files{Model: model[:n]}); err == nil && n < len(model)*3/4 {
			t.Errorf("the first %d bytes of a model are accepted", n)
		}
	}
	// trainer_spec {model_type: 1} after the rest overrides what stands there.
	unigram := append(slices.Clone(model), 0x12, 2, 0x18, 1)
	if _, err := New(Files{Model: unigram}); err == nil || !strings.Contains(err.Error(), "UNIGRAM") {
		t.Errorf("a unigram model: %v", err)
	}
	twice := append(slices.Clone(model), 0x0a, 4, 0x0a, 2, 'z', 'q', 0x0a, 4, 0x0a, 2, 'z', 'q')
	if _, err := New(Files{Model: twice}); err == nil || !strings.Contains(err.Error(), "defined twice") {
		t.Errorf("a piece twice: %v", err)
	}
}

// Encoding takes time near-linear in the text, whatever the text: eight times the text may take at most a few times
// eight times as long, where quadratic time would be 64 times. A machine that does other things too can spoil a
// measurement, so one good one of several is enough.
func TestLongTextsTakeNoQuadraticTime(t *testing.T) {
	const short, long = 8 << 10, 64 << 10
	for name, tok := range map[string]Tokenizer{
		"tiny": tiny(t), "byte level": jsonTokenizer(t, "llama3"), "byte fallback": jsonTokenizer(t, "llama2"),
	} {
		for _, unit := range []string{"a", " ", "\n", "你", "ab", "<", "=-", "1"} {
			took := func(n int) time.Duration {
				text := strings.Repeat(unit, n/len(unit)) + "."
				start := time.Now()
				tok.Encode(text, true)
				return time.Since(start)
			}
			few, many := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
			for try := 0; try < 3 || try < 30 && many > 32*few; try++ {
				few, many = min(few, max(took(short), 100*time.Microsecond)), min(many, took(long))
			}
			if many > 32*few {
				t.Errorf("%s: %d times the text of %q takes %d times as long (%v, %v)", name, long/short, unit, many/few, few, many)
			}
			text := strings.Repeat(unit, long/len(unit)) + "."
			if tok.Decode(tok.Encode(text, true), true) != text {
				t.Errorf("%s: a long text of %q does not come back", name, unit)
			}
		}
	}
}

// The vectors are those of transformers' test of the ERNIE 4.5 tokenizer.
func TestRealErnieTokenizer(t *testing.T) {
	t.Parallel()
	root := os.Getenv("PAGELIGHT_FIXTURES")
	dir := filepath.Join(root, "models", "ernie-4.5-tokenizer")
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.model")); root == "" || err != nil {
		t.Skip("SKIPPED: the ERNIE 4.5 vocabulary needs PAGELIGHT_FIXTURES with models/ernie-4.5-tokenizer/tokenizer.model")
	}
	tok, err := New(Files{Model: readFile(t, filepath.Join(dir, "tokenizer.model")), Config: readFile(t, filepath.Join(dir, "tokenizer_config.json"))})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{
		"The following string should be properly encoded: Hello.": {700, 1997, 1530, 1189, 390, 10962, 20622, 93963, 30802, 93937},
		"But ird and ปี   ird   ด":                                {2398, 93919, 2080, 326, 93919, 81175, 1111, 2080, 1111, 95676},
		" ":                                                       {93919}, "  ": {269}, " Hello": {30802}, "<s>": {1},
		" <s> Hello<s> how": {93919, 1, 30802, 1, 1299},
		"lekacy":            {17289, 3004},
		"Hey<eos>. \t\t \n\nyou  é  @#😈  🤗!       , 1234 15 5,61": {25027, 93953, 92335, 6140, 93919, 22, 22, 93919, 23, 23, 5557, 269, 94039, 269, 94027, 93993, 253, 172, 165, 149, 269, 253, 172, 177, 164, 94018, 426, 1089, 93919, 4, 5, 6, 7, 93919, 4, 8, 93919, 8, 93938, 9, 4},
	} {
		if got := tok.Encode(text, true); !slices.Equal(got, want) {
			t.Errorf("Encode(%q)\n got %v\nwant %v", text, got, want)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	tok := tiny(b)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. 你好，世界，今天天气很好。\n", 2000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Encode(text, true)
	}
}
