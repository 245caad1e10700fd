package tokenizer

import (
	"encoding/json"
	"testing"
)

// The models were trained with options that ERNIE's does not have, and
// encoded and decoded by the C++ library: see testdata/spm/generate.py. In
// no_bytes a third of the pieces is UNUSED.
func TestOptionsOfSentencePiece(t *testing.T) {
	t.Parallel()
	var models map[string][]vector
	if err := json.Unmarshal(readFile(t, "testdata/spm/vectors.json"), &models); err != nil {
		t.Fatal(err)
	}
	if len(models) != 4 {
		t.Fatalf("%d models, want 4", len(models))
	}
	for name, cases := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, err := New(Files{Model: readFile(t, "testdata/spm/"+name+".model")})
			if err != nil {
				t.Fatal(err)
			}
			checkVectors(t, tok, cases)
		})
	}
}
