package ref

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TopKReduce after TopKPartial finds what sorting finds, however the row is cut.
func TestTopKInSlices(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for round := range 300 {
		const vocab, limit, k, rows = 90, 83, 20, 2
		a := TopKArgs{
			Vocab: vocab, Limit: limit, K: k, Parts: []int{1, 7, 83, 11}[round%4], Group: []int{0, 1, 1, 8}[round%4], Draws: make([]Draw, rows), Logits: make([]float32, rows*vocab),
			Top: make([]Best, rows*k), Sums: make([][2]uint32, rows),
		}
		a.Partial = make([]Slice, rows*a.Parts)
		for i := range a.Logits {
			a.Logits[i] = float32(rng.NormFloat64() * 3)
			if round%2 == 0 {
				a.Logits[i] = float32(math.Round(float64(a.Logits[i])))
			}
		}
		for m := range rows {
			a.Draws[m] = Draw{InvTemperature: 0.5 + rng.Float32(), Race: uint32(round / 2 % 2), Key: [2]uint32{rng.Uint32(), rng.Uint32()}}
			if v := []float32{0, inf, -inf, nan, nan}[round%5]; v != 0 {
				a.Logits[m*vocab+rng.IntN(vocab)] = v
			}
		}
		want := a
		want.Top, want.Sums = slices.Clone(a.Top), slices.Clone(a.Sums)
		TopK(&want, 0, rows)
		TopKPartial(&a, 0, 1)
		TopKPartial(&a, 1, 2)
		TopKReduce(&a, 1, 2)
		TopKReduce(&a, 0, 1)
		if !slices.Equal(a.Top, want.Top) {
			t.Fatalf("round %d: got %v, want %v", round, a.Top, want.Top)
		}
		for m := range rows {
			got, sum := math.Float32frombits(a.Sums[m][1]), math.Float32frombits(want.Sums[m][1])
			if a.Sums[m][0] != want.Sums[m][0] || math.Abs(float64(got-sum)) > 1e-5*float64(sum) {
				t.Fatalf("round %d: got largest %#x and sum %v, want %#x and %v", round, a.Sums[m][0], got, want.Sums[m][0], sum)
			}
		}
	}
}

// By hand: who comes first, what the sum is, and what a NaN does.
func TestTopK(t *testing.T) {
	a := TopKArgs{
		Vocab: 5, Limit: 4, K: 5, Draws: []Draw{{InvTemperature: 2}, {InvTemperature: 1}},
		Logits: []float32{1, 3, float32(math.Log(2)) + 1, 3, 99, 0, 0, float32(math.NaN()), 0, 0},
		Top:    make([]Best, 10), Sums: make([][2]uint32, 2),
	}
	TopK(&a, 0, 2)
	var ids []uint32
	for _, b := range a.Top {
		ids = append(ids, b.ID)
	}
	if want := []uint32{1, 3, 2, 0, NoID, NoID, NoID, NoID, NoID, NoID}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	sum := 2 + (1+4)*math.Exp(-4)
	if got := math.Float32frombits(a.Sums[0][1]); a.Sums[0][0] != math.Float32bits(3) || math.Abs(float64(got)-sum) > 1e-6 {
		t.Errorf("got sum %v, want %v", got, sum)
	}
	if a.Sums[1] != [2]uint32{0x7FC00000, 0} {
		t.Errorf("a NaN gives %#x", a.Sums[1])
	}
}
