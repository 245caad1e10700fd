package ref

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

// TestRoute: numbers from numpy. The bias chooses expert 1, whose probability is small, and does not change its share.
func TestRoute(t *testing.T) {
	a := RouteArgs{
		Experts: 5, TopK: 3, NormMin: 1e-12, Logits: []float32{0.5, -1, 2, 2, 0, 1, 1, 1, 1, 1}, Bias: []float32{0, 0.9, 0, 0, 0.1},
		Chosen: make([]uint32, 6), Shares: make([]float32, 6),
	}
	Route(&a, 0, 2)
	if want := []uint32{1, 2, 3, 1, 4, 0}; !slices.Equal(a.Chosen, want) {
		t.Errorf("chosen %v, want %v", a.Chosen, want)
	}
	for i, want := range []float64{0.0242889, 0.48785555, 0.48785555, 1. / 3, 1. / 3, 1. / 3} {
		if math.Abs(float64(a.Shares[i])-want) > 1e-7 {
			t.Errorf("share %d is %v, want %v", i, a.Shares[i], want)
		}
	}
	a.TopK, a.NormMin = 1, 0.5
	Route(&a, 0, 1)
	if got, want := float64(a.Shares[0]), 0.02067352/0.5; math.Abs(got-want) > 1e-7 {
		t.Errorf("a sum below the least one gives %v, want %v", got, want)
	}
}

// TestGroupExperts: every pair stands once, in a tile of its expert.
func TestGroupExperts(t *testing.T) {
	a := GroupExpertsArgs{Experts: 4, Tile: 2, Tiles: 5, Chosen: []uint32{3, 0, 3, 1, 0, 3}, Groups: make([]uint32, 15)}
	GroupExperts(&a)
	const no = NoPair
	if want := []uint32{0, 1, 3, 3, no, 1, 4, 3, no, 0, 2, 5, no}; !slices.Equal(a.Groups[:13], want) {
		t.Errorf("%v, want %v", a.Groups[:13], want)
	}
}

// TestExpertsFast compares with the plain form: some experts of many, with inputs of their own or shared, in ranges of rows.
func TestExpertsFast(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ m, experts, topK, n, k, expert0, count, xSlot int }{
		{1, 1, 1, 1, 8, 0, 1, 0}, {9, 8, 3, 7, 300, 2, 4, 0}, {33, 5, 2, 12, 64, 0, 5, 64}, {4, 6, 2, 3, 8, 5, 1, 0},
	} {
		w := Matrix{Format: quant.Format{Kind: quant.F32}, Rows: c.count * c.n, K: c.k}
		for range w.Rows * w.K {
			w.Data = append(w.Data, math.Float32bits(2*rng.Float32()-1))
		}
		a := ExpertsArgs{TopK: c.topK, XStride: c.k + (c.topK-1)*c.xSlot, XSlot: c.xSlot, W: w, N: c.n, Expert0: c.expert0, YStride: c.topK*c.n + 3, YOffset: 2}
		for range c.m {
			for _, e := range rng.Perm(c.experts)[:c.topK] {
				a.Chosen = append(a.Chosen, uint32(e))
			}
		}
		for range c.m * a.XStride {
			a.X = append(a.X, 2*rng.Float32()-1)
		}
		a.Y = make([]float32, c.m*a.YStride)
		fast := a
		fast.Y = make([]float32, len(a.Y))
		Experts(&a, 0, c.m*c.topK)
		var p ExpertPairs
		var s Scratch
		for range 2 { // as a second step, in the memory of the first
			p.Sort(a.Chosen, c.expert0, c.count)
		}
		x := make([]float64, fast.Inputs(c.m)*c.k)
		fast.Widen(x, 0, fast.Inputs(c.m))
		for used := range p.Used() {
			for j := 0; j < c.n; j += 4 {
				ExpertsFast(&fast, &p, x, &s, used, j, min(j+4, c.n))
			}
		}
		if !slices.Equal(fast.Y, a.Y) {
			t.Errorf("%+v: the forms differ", c)
		}
	}
}
