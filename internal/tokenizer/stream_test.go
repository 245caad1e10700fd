package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestStreamEqualsDecode(t *testing.T) {
	t.Parallel()
	prefixed, err := New(Files{Model: readFile(t, "testdata/spm/prefix.model")})
	if err != nil {
		t.Fatal(err)
	}
	for name, tok := range map[string]Tokenizer{
		"tiny": tiny(t), "prefix": prefixed, "synthetic": NewSynthetic(300),
		"byte level": jsonTokenizer(t, "llama3"), "metaspace": jsonTokenizer(t, "metaspace"), "byte fallback": jsonTokenizer(t, "llama2"),
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 3000 {
			ids := make([]int32, rng.IntN(12))
			for i := range ids {
				// Bytes of all kinds half of the time.
				ids[i] = int32(rng.IntN(tok.NumTokens() + 3))
				if rng.IntN(2) == 0 {
					ids[i] = int32(3 + rng.IntN(260))
				}
			}
			skip := rng.IntN(2) == 0
			s := NewStream(tok, skip)
			var sb strings.Builder
			for _, id := range ids {
				sb.WriteString(s.Push(id))
			}
			sb.WriteString(s.Flush())
			want := tok.Decode(ids, skip)
			if sb.String() != want || !utf8.ValidString(want) {
				t.Fatalf("%s %v: the stream gave %q, Decode %q", name, ids, sb.String(), want)
			}
		}
	}
}

func TestStreamHoldsBackIncompleteCharacters(t *testing.T) {
	t.Parallel()
	tok := tiny(t)
	ids := func(text string) (out []int32) {
		for _, b := range []byte(text) {
			out = append(out, 5+int32(b))
		}
		return out
	}
	a, _ := tok.TokenID("a")
	for _, c := range []struct {
		name string
		ids  []int32
		want []string // of each Push, then of Flush
	}{
		{"complete", ids("🤗"), []string{"", "", "", "🤗", ""}},
		{"cut off at the end", ids("🤗")[:3], []string{"", "", "", "\uFFFD\uFFFD\uFFFD"}},
		{"cut off by text", append(ids("你")[:2], a), []string{"", "", "\uFFFD\uFFFDa", ""}},
		{"stray continuation", ids("\x80"), []string{"\uFFFD", ""}},
		{"never valid", ids("\xff\xc0a"), []string{"\uFFFD", "\uFFFD", "a", ""}},
		{"special in between", []int32{5 + 0xe4, 4, 5 + 0xbd, 5 + 0xa0}, []string{"", "", "", "你", ""}},
		{"surrogate", ids("\xed\xa0\x80"), []string{"", "\uFFFD\uFFFD", "\uFFFD", ""}},
	} {
		s := NewStream(tok, true)
		var got []string
		for _, id := range c.ids {
			got = append(got, s.Push(id))
		}
		got = append(got, s.Flush())
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSynthetic(t *testing.T) {
	t.Parallel()
	tok := NewSynthetic(1000)
	for text, want := range map[string][]int32{
		" 5 17 999": {5, 17, 999},
		" 1000":     {13 + ' ', 13 + '1', 13 + '0', 13 + '0', 13 + '0'},
		" 05":       {13 + ' ', 13 + '0', 13 + '5'},
		" 0x":       {0, 13 + 'x'},
		"12":        {13 + '1', 13 + '2'},
		"  7":       {13 + ' ', 7},
		"é":         {13 + 0xc3, 13 + 0xa9},
		"":          {},
	} {
		if got := tok.Encode(text, true); !slices.Equal(got, want) {
			t.Errorf("Encode(%q) = %v, want %v", text, got, want)
		}
	}
	var all []int32
	for id := range int32(1000) {
		all = append(all, 999-id)
	}
	if got := tok.Encode(tok.Decode(all, false), true); !slices.Equal(got, all) {
		t.Error("the ids do not come back from their text")
	}
	if id, ok := tok.TokenID(" 77"); !ok || id != 77 {
		t.Errorf("TokenID gave %d, %v", id, ok)
	}
	if got := tok.Decode([]int32{1, 5, 2, 1000, -1}, true); got != " 5" {
		t.Errorf("Decode gave %q", got)
	}
	if tok.Special()["eos_token"] != " 2" || !tok.IsSpecial(2) || tok.IsSpecial(3) {
		t.Error("eos is not id 2")
	}
}
