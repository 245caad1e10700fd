package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tiny returns the tokenizer of the ERNIE-Tiny model.
func tiny(t testing.TB) Tokenizer {
	t.Helper()
	tok, err := New(Files{
		Model:            readFile(t, "testdata/tokenizer.model"),
		Config:           readFile(t, "testdata/tokenizer_config.json"),
		SpecialTokensMap: readFile(t, "testdata/special_tokens_map.json"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type vector struct {
	Text    string  `json:"text"`
	IDs     []int32 `json:"ids"`
	Decoded string  `json:"decoded"`
}

// The 200 strings were encoded and decoded by the C++ SentencePiece library.
func TestVectorsOfSentencePiece(t *testing.T) {
	t.Parallel()
	var file struct{ Cases []vector }
	if err := json.Unmarshal(readFile(t, "testdata/vectors.json"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 200 {
		t.Fatalf("%d cases, want 200", len(file.Cases))
	}
	checkVectors(t, tiny(t), file.Cases)
}

func checkVectors(t *testing.T, tok Tokenizer, cases []vector) {
	t.Helper()
	for _, c := range cases {
		if got := tok.Encode(c.Text, false); !slices.Equal(got, c.IDs) {
			t.Errorf("Encode(%q)\n got %v\nwant %v", c.Text, got, c.IDs)
		}
		if got := tok.Decode(c.IDs, false); got != c.Decoded {
			t.Errorf("Decode(%v)\n got %q\nwant %q", c.IDs, got, c.Decoded)
		}
	}
}
