package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// selectTop is what a device finds that keeps to Draw, with errors of up to
// noise times those that it may have.
func selectTop(s *Sampler, logits []float32, k int, noise float64) Top {
	d, ok := s.Draw(k)
	if !ok {
		return Top{}
	}
	logits = logits[:s.numTokens]
	t := Top{Max: slices.Max(logits)}
	rng := rand.New(rand.NewPCG(d.Key, 1))
	score := make([]float64, len(logits))
	ids := make([]int32, len(logits))
	for i, l := range logits {
		ids[i], score[i] = int32(i), float64(l)
		t.Total += math.Exp((float64(l) - float64(t.Max)) * float64(d.InvTemperature))
		if d.Race {
			x := float64(l) * float64(d.InvTemperature)
			score[i] = x - math.Log(-math.Log(uniform(d.Key, int32(i))))
			if !math.IsInf(x, -1) {
				score[i] += (2*rng.Float64() - 1) * noise * (raceError + raceRelative*math.Abs(x))
			}
		}
	}
	t.Total *= 1 + (2*rng.Float64()-1)*noise*topTotal
	slices.SortFunc(ids, func(a, b int32) int {
		if score[a] != score[b] {
			return int(math.Copysign(1, score[b]-score[a]))
		}
		return int(a - b)
	})
	t.IDs = ids[:min(k, len(ids))]
	for _, id := range t.IDs {
		t.Logits = append(t.Logits, logits[id])
	}
	return t
}

// Where candidates suffice they give what Sample gives, and they mostly do.
func TestSampleTopEqualsSample(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Params, *rand.Rand)
		spread float64 // of the logits
		least  float64 // share of the steps for which candidates are to suffice
	}{
		"greedy":           {func(p *Params, _ *rand.Rand) { p.Temperature = 0 }, 3, 1},
		"temperature":      {func(p *Params, r *rand.Rand) { p.Temperature = 0.3 + r.Float64() }, 3, 0.99},
		"flat":             {func(p *Params, _ *rand.Rand) { p.Temperature = 2 }, 0.01, 0.99},
		"hot":              {func(p *Params, _ *rand.Rand) { p.Temperature = 0.01 }, 30, 0.99},
		"top_k":            {func(p *Params, r *rand.Rand) { p.TopK = 1 + r.IntN(62) }, 3, 0.95},
		"large top_k":      {func(p *Params, r *rand.Rand) { p.TopK, p.TopP = 100, 0.5 }, 6, 0.3},
		"top_k at the end": {func(p *Params, r *rand.Rand) { p.TopK = 64 }, 3, 0},
		"top_p":            {func(p *Params, r *rand.Rand) { p.TopP = 1 - 0.5*r.Float64() }, 6, 0.9},
		"top_p, flat":      {func(p *Params, r *rand.Rand) { p.TopP = 0.5 }, 1, 0},
		"min_p":            {func(p *Params, r *rand.Rand) { p.MinP = 0.1 * r.Float64() }, 3, 0.8},
		"all": {func(p *Params, r *rand.Rand) {
			p.TopK, p.TopP, p.MinP, p.Temperature = 10+r.IntN(40), 0.9, 0.01, 0.7
		}, 3, 0.99},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, 4))
			const n, k, steps = 2000, 64, 400
			sufficed := 0
			for round := range steps {
				logits := make([]float32, n+5)
				for i := range logits {
					logits[i] = float32(rng.NormFloat64() * c.spread)
					if round%4 == 0 { // ties
						logits[i] = float32(math.Round(4*float64(logits[i]))) / 4
					}
					if round%5 == 0 && i%3 == 0 {
						logits[i] = float32(math.Inf(-1))
					}
				}
				p := seeded(Default(), int64(round))
				c.change(&p, rng)
				s := New(p, n)
				s.step = uint64(round)
				before := *s
				got, ok, err := s.SampleTop(selectTop(s, logits, k, 1))
				if !ok && s.step != before.step {
					t.Fatal("a step that failed counts")
				}
				all := New(p, n)
				all.step = uint64(round)
				want, err2 := all.Sample(logits)
				if ok && (got != want || err != nil || err2 != nil) {
					t.Fatalf("%+v: got %d, %v, want %d, %v", p, got, err, want, err2)
				}
				if ok {
					sufficed++
				}
			}
			if share := float64(sufficed) / steps; share < c.least {
				t.Errorf("candidates suffice for %.3f of all steps, want %.2f", share, c.least)
			} else {
				t.Logf("candidates suffice for %.3f of all steps", share)
			}
		})
	}
}

// A vocabulary no larger than the candidates leaves nothing open.
func TestSampleTopOfAll(t *testing.T) {
	t.Parallel()
	for seed := range int64(50) {
		for _, p := range []Params{Default(), {Temperature: 1, TopP: 0.9, RepetitionPenalty: 1}, {Temperature: 1, TopP: 1, TopK: 7, RepetitionPenalty: 1}} {
			logits := []float32{1, 2, 2, 2, 2, 2, 2, 0}
			s, all := New(seeded(p, seed), 8), New(seeded(p, seed), 8)
			got, ok, err := s.SampleTop(selectTop(s, logits, 8, 1))
			if want, _ := all.Sample(logits); got != want || !ok || err != nil {
				t.Fatalf("%+v: got %d, %v, %v, want %d", p, got, ok, err, want)
			}
		}
	}
}

func TestSampleTopErrors(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		most float32
		want error
	}{{nan, ErrNaN}, {inf, ErrNaN}, {-inf, ErrNoToken}} {
		s := New(Default(), 100)
		_, ok, err := s.SampleTop(Top{IDs: []int32{1, 2}, Logits: []float32{c.most, c.most}, Max: c.most})
		if !ok || !errors.Is(err, c.want) {
			t.Errorf("largest logit %v: got %v, %v, want %v", c.most, ok, err, c.want)
		}
	}
}

// Whatever changes logits needs them all, and only as long as it does.
func TestDraw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Params)
		want   string
	}{
		{func(*Params) {}, "1 true true"},
		{func(p *Params) { p.Temperature = 0.5 }, "2 true true"},
		{func(p *Params) { p.Temperature = 0 }, "1 false true"},
		{func(p *Params) { p.TopK = 63 }, "1 false true"},
		{func(p *Params) { p.TopK = 64 }, "0 false false"},
		{func(p *Params) { p.TopK = 640 }, "1 true true"}, // no filter: there are 600 ids
		{func(p *Params) { p.TopP = 0.5 }, "1 false true"},
		{func(p *Params) { p.MinP = 0.5 }, "1 false true"},
		{func(p *Params) { p.RepetitionPenalty = 1.1 }, "0 false false"},
		{func(p *Params) { p.LogitBias = map[int32]float64{1: 1} }, "0 false false"},
		{func(p *Params) { p.AllowedTokenIDs = []int32{1} }, "0 false false"},
		{func(p *Params) { p.BadWords = [][]int32{{1}} }, "0 false false"},
		{func(p *Params) { p.BadWords = [][]int32{{1, 2}} }, "1 true true"},
		{func(p *Params) { p.MinTokens, p.EndIDs = 1, []int32{2} }, "0 false false"},
		{func(p *Params) { p.MinTokens = 1 }, "1 true true"},
	} {
		p := Default()
		c.change(&p)
		d, ok := New(p, 600).Draw(64)
		if got := fmt.Sprint(d.InvTemperature, d.Race, ok); ok && got != c.want || !ok && c.want[len(c.want)-5:] != "false" {
			t.Errorf("%+v: got %s, want %s", p, got, c.want)
		}
	}
	p := Default()
	p.MinTokens, p.EndIDs = 1, []int32{2}
	s := New(p, 600)
	s.Accept(9)
	if _, ok := s.Draw(64); !ok {
		t.Error("all logits are needed after the minimum too")
	}
}
