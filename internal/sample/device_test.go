package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/ref"
)

func TestDevice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Params)
		want   string
	}{
		{func(*Params) {}, "1 0 1 1e+30"},
		{func(p *Params) { p.Temperature = 0 }, "0 0 1 1e+30"},
		{func(p *Params) { p.Temperature, p.TopK = 1e-6, 3 }, "0 0 1 1e+30"}, // greedy
		{func(p *Params) { p.Temperature = 1e-3 }, "100 0 1 1e+30"},          // the least that there is
		{func(p *Params) { p.Temperature, p.TopK = 0.5, 63 }, "2 63 1 1e+30"},
		{func(p *Params) { p.TopK = 64 }, "cannot"},
		{func(p *Params) { p.TopK = 600 }, "1 0 1 1e+30"}, // no filter: there are 600 ids
		{func(p *Params) { p.TopK, p.TopP = 64, 0.5 }, "1 64 0.5 1e+30"},
		{func(p *Params) { p.TopP = 1 - 0x1p-53 }, fmt.Sprint(1, 0, float32(1-0x1p-24), 1e30)}, // not all
		{func(p *Params) { p.MinP = 1 }, "1 0 1 0"},
		{func(p *Params) { p.MinP = 0.5 }, fmt.Sprint(1, 0, 1, float32(math.Ln2))},
		{func(p *Params) { p.MinP = math.SmallestNonzeroFloat64 }, "1 0 1 744.44006"},
		{func(p *Params) { p.Temperature = math.MaxFloat64 }, "cannot"},
		{func(p *Params) { p.AllowedTokenIDs = []int32{1} }, "cannot"},
		{func(p *Params) { p.BadWords = [][]int32{{1, 2}} }, "cannot"},
		{func(p *Params) { p.LogitBias = map[int32]float64{1: 1} }, "1 0 1 1e+30 adjusts"},
		{func(p *Params) { p.FrequencyPenalty = 1 }, "1 0 1 1e+30 adjusts"},
		{func(p *Params) { p.RepetitionPenalty = 1e9 }, "cannot"},
		{func(p *Params) { p.Temperature, p.RepetitionPenalty = 0, 1e-9 }, "cannot"},
		{func(p *Params) { p.MinTokens, p.EndIDs = 1, make([]int32, DeviceBiases+1) }, "cannot"},
		{func(p *Params) { p.MinTokens, p.EndIDs = 1, []int32{3} }, "1 0 1 1e+30 adjusts"},
		{func(p *Params) { p.MinTokens = 1 }, "1 0 1 1e+30"},
	} {
		p := seeded(Default(), 3)
		c.change(&p)
		s := New(p, 600)
		s.Skip(5)
		d, ok := s.Device()
		got := fmt.Sprint(d.InvTemperature, d.TopK, d.TopP, d.MinP)
		if d.Adjusts {
			got += " adjusts"
		}
		if !ok {
			got = "cannot"
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", p, got, c.want)
		}
		if ok && (d.Key != s.key || d.Step != 5) {
			t.Errorf("key %#x, step %d; want %#x and 5", d.Key, d.Step, s.key)
		}
	}
}

// Steps that the device took are steps.
func TestSkip(t *testing.T) {
	t.Parallel()
	logits := make([]float32, 500)
	a, b := New(seeded(Default(), 9), len(logits)), New(seeded(Default(), 9), len(logits))
	for n := range 10 {
		for range n {
			if _, err := a.Sample(logits); err != nil {
				t.Fatal(err)
			}
		}
		b.Skip(n)
		x, _ := a.Sample(logits)
		if y, _ := b.Sample(logits); x != y {
			t.Fatalf("after %d steps more: %d, want %d", n, y, x)
		}
	}
}

// A device that changes logits as Adjust and Counts say has the bits that the host has, and chooses the same.
func TestAdjust(t *testing.T) {
	t.Parallel()
	const n = 300
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 500 {
		p := seeded(Default(), int64(round))
		p.RepetitionPenalty = []float64{1, 1.3, 0.7, 1e-5, 3e5}[rng.IntN(5)]
		p.FrequencyPenalty = []float64{0, 0.1, -1.7}[rng.IntN(3)]
		p.PresencePenalty = []float64{0, 0.3, -0.5}[rng.IntN(3)]
		p.MinTokens, p.EndIDs = rng.IntN(12), []int32{3, 7, 7, 299, 300}
		if rng.IntN(2) == 0 {
			p.LogitBias = map[int32]float64{7: 2.3, 11: -1000, 250: 0.1, 3: 1}
		}
		prompt := make([]int32, rng.IntN(40))
		for i := range prompt {
			prompt[i] = rng.Int32N(n)
		}
		s := New(p, n, prompt...)
		for range rng.IntN(10) {
			s.Accept(rng.Int32N(n))
		}
		adj, ok := s.Adjust()
		if !ok {
			t.Fatalf("%+v: no device can change the logits", p)
		}
		a := ref.PenalizeArgs{
			Vocab: n, Limit: n, Entries: len(adj.Biases) + 1, Tokens: make([]ref.Token, 1), States: []ref.State{{Flags: 1}}, Counts: make([]uint32, n),
			Penalties: []ref.Penalty{{Repetition: adj.Repetition, Frequency: adj.Frequency, Presence: adj.Presence}}, Logits: make([]float32, n),
		}
		a.Penalties[0].Entries, a.Penalties[0].Until = uint32(len(adj.Biases)), uint32(100+adj.Bans)
		for _, b := range adj.Biases {
			e := ref.Entry{ID: uint32(b.ID), Bias: b.Bias}
			if b.Biased {
				e.ID |= ref.Biased
			}
			if b.Banned {
				e.ID |= ref.Banned
			}
			a.Listed = append(a.Listed, e)
		}
		a.Listed = append(a.Listed, ref.Entry{})
		s.Counts(&adj, a.Counts)
		for step := range 5 {
			for id, word := range a.Counts {
				if got := s.Count(&adj, int32(id)); got != word {
					t.Fatalf("%+v, step %d: the count of %d is %#x, want %#x", p, step, id, got, word)
				}
			}
			for i := range a.Logits {
				a.Logits[i] = float32(rng.NormFloat64() * 4)
			}
			a.Logits[rng.IntN(n)] = float32([]float64{math.Inf(-1), 3e38, -3e38, 0}[rng.IntN(4)])
			logits := slices.Clone(a.Logits)
			a.Tokens[0].Position = uint32(100 + step)
			ref.Penalize(&a, 0, 1)
			want := slices.Clone(logits)
			s.mask(want)
			s.adjust(want)
			s.undo = s.undo[:0]
			if !slices.Equal(a.Logits, want) {
				t.Fatalf("%+v, step %d: got %v, want %v", p, step, a.Logits, want)
			}
			twin := *s
			got, err := twin.SampleAdjusted(a.Logits)
			id, err2 := s.Sample(logits)
			if got != id || err != nil || err2 != nil {
				t.Fatalf("got %d, %v, want %d, %v", got, err, id, err2)
			}
			s.Accept(id)
			if adj.Counting {
				a.Counts[id] = (a.Counts[id] | ref.Seen) + 1 // as ref.Advance
			}
		}
	}
}
