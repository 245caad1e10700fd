package ref_test

import (
	"cmp"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/ref"
	"github.com/pagelight/pagelight/internal/sample"
)

var rounds = flag.Int("rounds", 200, "rows of each kind that TestSampleEqualsSampler tries")

// zipf is n logits as language models have them: the r-th largest about -a*log(r), in any order.
func zipf(rng *rand.Rand, n int, a float64) []float32 {
	logits := make([]float32, n)
	for i, at := range rng.Perm(n) {
		logits[at] = float32(-a*math.Log(float64(i+1)) + rng.NormFloat64()*0.3 + 7)
	}
	return logits
}

// candidates fills Top and Sums of row 0 for the draw of row 0, without sorting all.
func candidates(a *ref.SampleArgs, logits []float32) {
	d := a.Draws[0]
	type token struct {
		score float32
		id    int
	}
	list := make([]token, len(logits))
	most, sum := float32(math.Inf(-1)), 0.0
	for id, l := range logits {
		list[id] = token{d.Score(l, id), id}
		if l != l || most != most {
			most = float32(math.NaN())
		} else {
			most = max(most, l)
		}
	}
	for _, l := range logits {
		sum += math.Exp(float64(l-most) * float64(d.InvTemperature))
	}
	if d.Race == 1 {
		sum = 0
	}
	slices.SortFunc(list, func(x, y token) int {
		if c := cmp.Compare(y.score, x.score); c != 0 {
			return c
		}
		return cmp.Compare(x.id, y.id)
	})
	for j := range a.K {
		a.Top[j] = ref.Best{ID: ref.NoID}
		if j < len(list) && most == most {
			a.Top[j] = ref.Best{Bits: math.Float32bits(logits[list[j].id]), ID: uint32(list[j].id)}
		}
	}
	a.Sums[0] = [2]uint32{math.Float32bits(most), math.Float32bits(float32(sum))}
	ref.SampleMass(&ref.MassArgs{
		Vocab: len(logits), Limit: len(logits), Parts: a.Parts, K: a.K, Top: a.Top, Sums: a.Sums, Samplers: a.Samplers, Draws: a.Draws,
		Logits: logits, Mass: a.Mass,
	}, 0, 1)
}

// fromDevice is a sampler's state as the kernel has it.
func fromDevice(d sample.DeviceState) ref.Sampler {
	return ref.Sampler{
		InvTemperature: d.InvTemperature, TopK: d.TopK, TopP: d.TopP, MinP: d.MinP,
		Key: [2]uint32{uint32(d.Key), uint32(d.Key >> 32)}, Step: [2]uint32{uint32(d.Step), uint32(d.Step >> 32)},
	}
}

// one is the arguments for one row of n tokens.
func one(n int, s ref.Sampler) *ref.SampleArgs {
	return &ref.SampleArgs{
		K: sample.DeviceTopK, Limit: n, Top: make([]ref.Best, sample.DeviceTopK), Sums: make([][2]uint32, 1), Samplers: []ref.Sampler{s},
		Draws: []ref.Draw{s.Draw(true)}, IDs: make([]uint32, 1), Margin: 1, Parts: (n + 2047) / 2048, Mass: make([]ref.Mass, (n+2047)/2048),
	}
}

// What Sample chooses, step after step, is what a sampler chooses on the host from all logits. It says so nearly always.
func TestSampleEqualsSampler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*sample.Params, *rand.Rand)
		slope   float64 // of the logits over the logarithm of the rank
		at      float64 // share of the steps that may be undecided
		n       int
		special bool
	}{
		"greedy":                          {func(p *sample.Params, _ *rand.Rand) { p.Temperature = 0 }, 1, 0, 2000, true},
		"temperature 1":                   {func(*sample.Params, *rand.Rand) {}, 1, 0.002, 2000, false},
		"temperature 1, flat":             {func(*sample.Params, *rand.Rand) {}, 0.05, 0.002, 2000, false},
		"temperature 0.8, top_p 0.8":      {func(p *sample.Params, _ *rand.Rand) { p.Temperature, p.TopP = 0.8, 0.8 }, 1.6, 0.002, 2000, false},
		"temperature 0.7, top_p 0.95":     {func(p *sample.Params, _ *rand.Rand) { p.Temperature, p.TopP = 0.7, 0.95 }, 1.6, 0.004, 2000, false},
		"top_k 40":                        {func(p *sample.Params, _ *rand.Rand) { p.TopK = 40 }, 1, 0.002, 2000, false},
		"min_p 0.05":                      {func(p *sample.Params, _ *rand.Rand) { p.MinP = 0.05 }, 1.2, 0.002, 2000, false},
		"all":                             {func(p *sample.Params, _ *rand.Rand) { p.TopK, p.TopP, p.MinP, p.Temperature = 50, 0.9, 0.02, 0.9 }, 1, 0.002, 2000, false},
		"temperature 1, top_p 0.95, flat": {func(p *sample.Params, _ *rand.Rand) { p.TopP = 0.95 }, 0.6, 0.002, 2500, false},
		"min_p 0.01, flat":                {func(p *sample.Params, _ *rand.Rand) { p.MinP = 0.01 }, 0.6, 0.002, 2000, false},
		"top_p and min_p, flat":           {func(p *sample.Params, _ *rand.Rand) { p.TopP, p.MinP = 0.9, 0.01 }, 0.6, 0.002, 2000, false},
		"ties":                            {func(p *sample.Params, r *rand.Rand) { p.TopK, p.TopP = r.IntN(50), 0.3+0.7*r.Float64() }, 1.5, 1, 300, true},
		"any":                             {anything, 1.3, 1, 300, true},
		"any, no more than candidates":    {anything, 1, 1, 64, true},
		"any, few":                        {anything, 1, 1, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(5, uint64(len(name))))
			undecided, steps := 0, 0
			for round := range *rounds {
				logits := zipf(rng, c.n, c.slope*(0.9+0.2*rng.Float64()))
				if c.special {
					special(rng, logits)
				}
				p, seed := sample.Default(), int64(round)
				p.Seed = &seed
				c.change(&p, rng)
				host := sample.New(p, c.n)
				host.Skip(rng.IntN(1000) << rng.IntN(33))
				d, ok := host.Device()
				if !ok {
					if c.at < 1 {
						t.Fatalf("%+v: no device can choose", p)
					}
					continue
				}
				a := one(c.n, fromDevice(d))
				if x, y := d.Draw(true), a.Draws[0]; x.InvTemperature != y.InvTemperature || x.Race != (y.Race == 1) || x.Race && uint32(x.Key) != y.Key[0] {
					t.Fatalf("%+v wants %+v, on the device %+v", p, x, y)
				}
				for range 3 {
					candidates(a, logits)
					ref.Sample(a, 0, 1)
					want, err := host.Sample(logits)
					steps++
					switch got := a.IDs[0]; {
					case got == ref.NoID && errors.Is(err, sample.ErrNaN):
					case got == ref.Undecided && (c.at > 0 || err != nil):
						if err == nil {
							undecided++
						}
						d, _ = host.Device()
						a = one(c.n, fromDevice(d))
					case got != uint32(want) || err != nil:
						t.Fatalf("%+v: got %d, want %d, %v", p, got, want, err)
					}
				}
			}
			share := float64(undecided) / float64(steps)
			// Three standard deviations of the number, if each were undecided with this probability.
			if most := c.at * float64(steps); float64(undecided) > most+3*math.Sqrt(most) {
				t.Errorf("%.5f of %d steps are undecided, at most %.3f may be", share, steps, c.at)
			}
			t.Logf("%.5f of %d steps are undecided", share, steps)
		})
	}
}

// anything is any parameters.
func anything(p *sample.Params, r *rand.Rand) {
	p.Temperature = []float64{0, 1e-3, 0.01, 0.3, 1, 2, 1e6, 1e13}[r.IntN(8)]
	p.TopK = []int{0, 1, 2, 30, 63, 64, 65, 1000}[r.IntN(8)]
	p.TopP = []float64{1, 1, 1 - 1e-9, 1 - 0x1p-53, 0.9, 0.5, 1e-3, 1e-300}[r.IntN(8)]
	p.MinP = []float64{0, 0, 1, 0.5, 0.1, 1e-3, 1e-300, 1 - 0x1p-53}[r.IntN(8)]
}

// special makes ties, infinities, NaN, rows of one value and values whose quotients differ in the last bit.
func special(rng *rand.Rand, logits []float32) {
	inf := float32(math.Inf(1))
	switch rng.IntN(12) {
	case 0:
		for i := range logits {
			logits[i] = float32(math.Round(float64(logits[i])))
		}
	case 1:
		for i := range logits {
			logits[i] = -3
		}
	case 2:
		for i := range logits {
			logits[i] = math.Float32frombits(math.Float32bits(4) + rng.Uint32N(3))
		}
	case 3:
		for i := range logits {
			if rng.IntN(20) > 0 {
				logits[i] = -inf
			}
		}
	case 4:
		for i := range logits {
			logits[i] = -inf
		}
	case 5:
		logits[rng.IntN(len(logits))] = float32(math.NaN())
	case 6:
		logits[rng.IntN(len(logits))] = inf
	case 7:
		logits[rng.IntN(len(logits))] = 3e38
		logits[rng.IntN(len(logits))] = -3e38
	case 8:
		for i := range logits {
			logits[i] *= 1e-30
		}
	case 9:
		for i := range logits {
			logits[i] = float32(math.Copysign(0, float64(logits[i])))
		}
	}
}
