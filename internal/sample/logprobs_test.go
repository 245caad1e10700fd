package sample

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func TestLogprobs(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	logits := []float32{float32(math.Log(2)), 0, float32(math.Log(5)), 0, float32(math.Log(2)), -inf} // of 11: 2, 1, 5, 1, 2, 0
	for _, c := range []struct {
		chosen int32
		n      int
		p      float64
		rank   int
		top    []int32
	}{
		{2, 0, 5. / 11, 1, nil},
		{0, 3, 2. / 11, 3, []int32{2, 0, 4}}, // equals count, and come by id
		{4, 2, 2. / 11, 3, []int32{2, 0}},
		{3, 4, 1. / 11, 5, []int32{2, 0, 4, 1}},
		{5, 20, 0, 6, []int32{2, 0, 4, 1, 3, 5}},
	} {
		got, err := Logprobs(logits, c.chosen, c.n)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int32
		for _, top := range got.Top {
			ids = append(ids, top.ID)
			want := math.Log(math.Exp(float64(logits[top.ID])) / 11)
			if top.Logprob != want && math.Abs(top.Logprob-want) > 1e-7 {
				t.Errorf("token %d has %v, want %v", top.ID, top.Logprob, want)
			}
		}
		if want := math.Log(c.p); got.Logprob != want && math.Abs(got.Logprob-want) > 1e-7 || got.Rank != c.rank || !slices.Equal(ids, c.top) {
			t.Errorf("token %d, %d alternatives: got %+v, want log %v, rank %d, %v", c.chosen, c.n, got, c.p, c.rank, c.top)
		}
	}
	for _, c := range []struct {
		logits []float32
		chosen int32
		n      int
		want   error
	}{
		{logits, 6, 0, nil},
		{logits, -1, 0, nil},
		{logits, 0, 21, nil},
		{logits, 0, -1, nil},
		{[]float32{1, nan}, 0, 1, ErrNaN},
		{[]float32{1, inf}, 0, 1, ErrNaN},
		{[]float32{-inf, -inf}, 0, 1, ErrNoToken},
	} {
		if _, err := Logprobs(c.logits, c.chosen, c.n); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("Logprobs(%v, %d, %d): got %v", c.logits, c.chosen, c.n, err)
		}
	}
}

// Penalties and bias of the sampler leave no trace in the logprobs.
func TestLogprobsAreOfTheOriginalLogits(t *testing.T) {
	t.Parallel()
	p := seeded(Default(), 1)
	p.RepetitionPenalty, p.LogitBias, p.MinTokens, p.EndIDs = 1.5, map[int32]float64{3: 9}, 9, []int32{0}
	logits := []float32{3, 1, 2, -1, 0}
	want, err := Logprobs(logits, 3, 5)
	if err != nil {
		t.Fatal(err)
	}
	s := New(p, 5, 1, 2)
	if _, err := s.Sample(logits); err != nil {
		t.Fatal(err)
	}
	got, err := Logprobs(logits, 3, 5)
	if err != nil || got.Logprob != want.Logprob || !slices.Equal(got.Top, want.Top) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func BenchmarkLogprobs(b *testing.B) {
	logits := ernieLogits()
	for b.Loop() {
		if _, err := Logprobs(logits, 7, 20); err != nil {
			b.Fatal(err)
		}
	}
}
