package local

import (
	"testing"

	"github.com/pagelight/pagelight/engine"
)

// TestProfilesBeyondAStepAreRefused asks for steps that this engine never takes, and then for one that it does.
func TestProfilesBeyondAStepAreRefused(t *testing.T) {
	eng, err := Open(t.Context(), Options{
		Model: "../../internal/model/testdata/ernie", Device: "cpu",
		Engine: engine.Config{MaxSeqs: 4, MaxBatchedTokens: 32, MaxModelLen: 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	for _, req := range []engine.ProfileRequest{
		{Seqs: 5, Tokens: 1},
		{Seqs: 1, Tokens: 33},
		{Seqs: 4, Tokens: 9},
		{Seqs: 1, Depth: 64, Tokens: 1},
		{Seqs: 1 << 62, Tokens: 4},
		{Seqs: 1, Depth: 1<<63 - 1, Tokens: 1},
	} {
		if _, err := eng.Profile(t.Context(), req); err == nil {
			t.Errorf("%+v: no error", req)
		}
	}
	if p, err := eng.Profile(t.Context(), engine.ProfileRequest{Seqs: 4, Depth: 56, Tokens: 8}); err != nil || p.Took <= 0 {
		t.Errorf("the largest step took %v, error %v", p.Took, err)
	}
}
