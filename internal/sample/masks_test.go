package sample

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// drawable is what can be drawn next, by many draws.
func drawable(t *testing.T, s *Sampler, logits []float32) []int32 {
	t.Helper()
	seen := map[int32]bool{}
	for range 200 {
		id, err := s.Sample(logits)
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
	}
	var ids []int32
	for id := range int32(len(logits)) {
		if seen[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// The cases of vLLM's bad words: a single token always, a sequence only where
// the output, not the prompt, ends with all but its last token.
func TestBadWords(t *testing.T) {
	t.Parallel()
	p := Default()
	p.BadWords = [][]int32{{0}, {1, 2}, {1, 1, 3}, {9, 9, 9, 4}}
	s := New(seeded(p, 3), 5, 1, 1)
	logits := make([]float32, 5)
	for _, step := range []struct {
		accept int32
		want   []int32
	}{
		{-1, []int32{1, 2, 3, 4}}, // the prompt ends with 1, but does not count
		{1, []int32{1, 3, 4}},
		{1, []int32{1, 4}},
		{2, []int32{1, 2, 3, 4}},
		{4, []int32{1, 2, 3, 4}},
		{1, []int32{1, 3, 4}},
	} {
		if step.accept >= 0 {
			s.Accept(step.accept)
		}
		if got := drawable(t, s, logits); !slices.Equal(got, step.want) {
			t.Errorf("after %v: can draw %v, want %v", s.tail, got, step.want)
		}
	}
}

// An end may be chosen when the output has MinTokens ids, not before.
func TestMinTokens(t *testing.T) {
	t.Parallel()
	p := Default()
	p.Temperature, p.MinTokens, p.EndIDs = 0, 2, []int32{1, 3, -4, 99}
	s := New(p, 4)
	logits := []float32{1, 9, 2, 8}
	for n, want := range []int32{2, 2, 1, 1} {
		if s.Greedy() != (n >= 2) {
			t.Errorf("after %d tokens Greedy is %v", n, s.Greedy())
		}
		id, err := s.Sample(logits)
		if id != want || err != nil {
			t.Errorf("after %d tokens: got %d, %v, want %d", n, id, err, want)
		}
		s.Accept(id)
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	p := Default()
	p.Temperature = 0
	p.AllowedTokenIDs = []int32{3, 1, 3, 70}
	s := New(p, 5)
	for _, c := range []struct {
		logits []float32
		want   int32
		err    error
	}{
		{[]float32{9, 1, 9, 2, 9, 9}, 3, nil},
		{[]float32{9, 2, 9, 2, 9, 9}, 1, nil},       // of equals the lowest
		{[]float32{nan, -7, 1, -inf, 1, 1}, 1, nil}, // what is ruled out does not matter
		{[]float32{0, nan, 0, 0, 0}, 0, ErrNaN},
		{[]float32{0, -inf, 0, -inf, 0}, 0, ErrRuledOut},
		{[]float32{7}, 0, ErrRuledOut},
	} {
		if id, err := s.Sample(c.logits); id != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v: got %d, %v, want %d, %v", c.logits, id, err, c.want, c.err)
		}
	}
	// Bias does not bring back what is not allowed, nor an end that comes too early.
	p.LogitBias, p.MinTokens, p.EndIDs = map[int32]float64{0: 100, 3: 100}, 1, []int32{3}
	if id, err := New(p, 5).Sample([]float32{0, -50, 0, 0, 0}); id != 1 || err != nil {
		t.Errorf("got %d, %v, want 1", id, err)
	}
	// Nothing is left.
	p.BadWords = [][]int32{{1}}
	if _, err := New(p, 5).Sample(make([]float32, 5)); !errors.Is(err, ErrRuledOut) {
		t.Errorf("got %v, want ErrRuledOut", err)
	}
}

// A sequence draws the same tokens whatever other sequences do meanwhile, and
// wherever its tokens are chosen.
func TestSeedIsReproducibleAmongOthers(t *testing.T) {
	t.Parallel()
	logits := ernieLogits()[:3000]
	p := Default()
	p.TopP = 0.98
	alone := New(seeded(p, 11), len(logits))
	want := drawN(t, 40, func() (int32, error) { return alone.Sample(logits) })
	mine, other := New(seeded(p, 11), len(logits)), New(seeded(p, 12), len(logits))
	turn := 0
	got := drawN(t, 40, func() (int32, error) {
		for range turn % 3 {
			if _, err := other.Sample(logits); err != nil {
				t.Fatal(err)
			}
		}
		if turn++; turn%2 == 0 {
			if id, ok, err := mine.SampleTop(selectTop(mine, logits, 300, 0)); ok {
				return id, err
			}
		}
		return mine.Sample(logits)
	})
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
