package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

func seeded(p Params, seed int64) Params {
	p.Seed = &seed
	return p
}

// naive is the sampling distribution by the book: every step as vLLM's
// PyTorch code does it, with full softmaxes and a full sort.
func naive(logits []float32, p Params, prompt, output []int32) map[int32]float64 {
	temp := max(p.Temperature, 0.01)
	x := changed(logits, p, prompt, output)
	for i := range x {
		x[i] /= temp
	}
	softmax := func() []float64 {
		most := math.Inf(-1)
		for _, v := range x {
			most = max(most, v)
		}
		out := make([]float64, len(x))
		var sum float64
		for i, v := range x {
			out[i] = math.Exp(v - most)
			sum += out[i]
		}
		for i := range out {
			out[i] /= sum
		}
		return out
	}
	if p.MinP > 0 {
		prob := softmax()
		least := p.MinP * slices.Max(prob)
		for i := range x {
			if prob[i] < least {
				x[i] = math.Inf(-1)
			}
		}
	}
	if k := p.TopK; k > 0 && k < len(x) {
		sorted := slices.Clone(x)
		sort.Float64s(sorted)
		least := sorted[len(x)-k]
		for i := range x {
			if x[i] < least {
				x[i] = math.Inf(-1)
			}
		}
	}
	if p.TopP < 1 {
		prob := softmax()
		order := make([]int, len(x))
		for i := range order {
			order[i] = i
		}
		// Ascending; of equals the higher id is dropped first.
		sort.Slice(order, func(a, b int) bool {
			if x[order[a]] != x[order[b]] {
				return x[order[a]] < x[order[b]]
			}
			return order[a] > order[b]
		})
		var sum float64
		for _, i := range order[:len(order)-1] {
			if sum += prob[i]; sum > 1-p.TopP {
				break
			}
			x[i] = math.Inf(-1)
		}
	}
	out := map[int32]float64{}
	for i, v := range softmax() {
		if v > 0 {
			out[int32(i)] = v
		}
	}
	return out
}

// changed is what masks, bias and penalties make of logits, as vLLM's code
// does it: with vectors over the vocabulary.
func changed(logits []float32, p Params, prompt, output []int32) []float64 {
	x := make([]float64, len(logits))
	count, seen := make([]float64, len(x)), make([]bool, len(x))
	for i, l := range logits {
		x[i] = float64(l)
	}
	for _, id := range prompt {
		seen[id] = true
	}
	for _, id := range output {
		count[id]++
		seen[id] = true
	}
	for i := range x {
		if p.AllowedTokenIDs != nil && !slices.Contains(p.AllowedTokenIDs, int32(i)) {
			x[i] = math.Inf(-1)
		}
	}
	for _, word := range p.BadWords {
		n := len(word) - 1
		if len(output) >= n && slices.Equal(output[len(output)-n:], word[:n]) {
			x[word[n]] = math.Inf(-1)
		}
	}
	if len(output) < p.MinTokens {
		for _, id := range p.EndIDs {
			x[id] = math.Inf(-1)
		}
	}
	for i := range x {
		x[i] += p.LogitBias[int32(i)]
		if seen[i] {
			if x[i] > 0 {
				x[i] /= p.RepetitionPenalty
			} else {
				x[i] *= p.RepetitionPenalty
			}
		}
		x[i] -= p.FrequencyPenalty * count[i]
		if count[i] > 0 {
			x[i] -= p.PresencePenalty
		}
	}
	return x
}

// kept returns the probabilities of the candidates that a sampler's filters keep.
func kept(s *Sampler, logits []float32) map[int32]float64 {
	_, most, _ := argmax(nil, logits)
	s.collect(nil, logits, most)
	if s.p.TopP < 1 {
		s.cand = topP(s.cand, s.p.TopP)
	}
	var sum float64
	for _, c := range s.cand {
		sum += c.w
	}
	out := map[int32]float64{}
	for _, c := range s.cand {
		if c.w > 0 {
			out[c.id] = c.w / sum
		}
	}
	return out
}

func TestFiltersAgreeWithNaive(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 4000 {
		n := 1 + rng.IntN(60)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(rng.NormFloat64() * []float64{0.1, 2, 8}[round%3])
			if rng.IntN(4) == 0 { // ties
				logits[i] = float32(math.Round(float64(logits[i])))
			}
		}
		p := Default()
		p.Temperature = []float64{0.005, 0.2, 0.7, 1, 3}[rng.IntN(5)]
		if rng.IntN(2) == 0 {
			p.TopK = rng.IntN(n + 3)
		}
		if rng.IntN(2) == 0 {
			p.TopP = 0.01 + 0.985*rng.Float64()
		}
		if rng.IntN(2) == 0 {
			p.MinP = rng.Float64() * 0.5
		}
		want := naive(logits, p, nil, nil)
		got := kept(New(p, n), logits)
		if len(got) != len(want) {
			t.Fatalf("%+v keeps %d of %v, want %d\n got %v\nwant %v", p, len(got), logits, len(want), got, want)
		}
		for id, q := range want {
			if math.Abs(got[id]-q) > 1e-9 {
				t.Fatalf("%+v: token %d has probability %v, want %v", p, id, got[id], q)
			}
		}
	}
}

// The draws of fixed seeds follow the exact probabilities. Chi-square with
// 0.1% significance; as the seeds are fixed the test cannot fail by chance.
func TestDrawsFollowDistribution(t *testing.T) {
	t.Parallel()
	logits := []float32{2, 1, 0, 1, -1, 3, 0.5, -4, 2.5, 0}
	prompt, output := []int32{0, 3, 3, 7}, []int32{5, 1, 5, 8}
	critical := map[int]float64{1: 10.828, 2: 13.816, 3: 16.266, 4: 18.467, 5: 20.515, 6: 22.458, 7: 24.322, 8: 26.124, 9: 27.877}
	for name, change := range map[string]func(*Params){
		"nothing":            func(*Params) {},
		"temperature":        func(p *Params) { p.Temperature = 0.5 },
		"top_k":              func(p *Params) { p.TopK = 4 },
		"top_p":              func(p *Params) { p.TopP = 0.8 },
		"min_p":              func(p *Params) { p.MinP = 0.1 },
		"filters":            func(p *Params) { p.TopK, p.TopP, p.MinP, p.Temperature = 6, 0.9, 0.02, 1.5 },
		"logit_bias":         func(p *Params) { p.LogitBias = map[int32]float64{5: -3, 7: 6.5} },
		"repetition_penalty": func(p *Params) { p.RepetitionPenalty = 1.7 },
		"presence_penalty":   func(p *Params) { p.PresencePenalty = 1.5 },
		"frequency_penalty":  func(p *Params) { p.FrequencyPenalty = -0.6 },
		"allowed_token_ids":  func(p *Params) { p.AllowedTokenIDs = []int32{8, 2, 2, 7, 5} },
		"bad_words":          func(p *Params) { p.BadWords = [][]int32{{5, 8, 0}, {8, 5}, {1, 1}, {5, 1, 5, 8, 3}, {6}} },
		"min_tokens":         func(p *Params) { p.MinTokens, p.EndIDs = 5, []int32{5, 2} },
		"min_tokens reached": func(p *Params) { p.MinTokens, p.EndIDs = 4, []int32{5, 2} },
		"everything": func(p *Params) {
			p.AllowedTokenIDs, p.BadWords = []int32{0, 1, 2, 3, 5, 6, 8, 9}, [][]int32{{8, 8}}
			p.MinTokens, p.EndIDs = 9, []int32{9}
			p.LogitBias, p.RepetitionPenalty = map[int32]float64{2: 1, 4: 50}, 1.2
			p.PresencePenalty, p.FrequencyPenalty = 0.3, 0.2
			p.Temperature, p.TopK, p.TopP, p.MinP = 1.3, 6, 0.95, 0.01
		},
	} {
		p := Default()
		change(&p)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		want := naive(logits, p, prompt, output)
		start := func(seed int64) *Sampler {
			s := New(seeded(p, seed), len(logits), prompt...)
			for _, id := range output {
				s.Accept(id)
			}
			return s
		}
		for _, draw := range []struct {
			name string
			ids  func(n int) []int32
		}{
			{"one seed", func(n int) []int32 {
				s := start(42)
				return drawN(t, n, func() (int32, error) { return s.Sample(logits) })
			}},
			{"a seed each", func(n int) []int32 {
				seed := int64(0)
				return drawN(t, n, func() (int32, error) {
					seed++
					return start(seed).Sample(logits)
				})
			}},
		} {
			const n = 20_000
			counts := map[int32]int{}
			for _, id := range draw.ids(n) {
				counts[id]++
			}
			var chi float64
			for id, q := range want {
				d := float64(counts[id]) - n*q
				chi += d * d / (n * q)
				delete(counts, id)
			}
			if len(counts) > 0 {
				t.Errorf("%s, %s: drew tokens that are ruled out: %v", name, draw.name, counts)
			}
			if df := len(want) - 1; df > 0 && chi > critical[df] {
				t.Errorf("%s, %s: chi-square %.1f with %d degrees of freedom, want below %.1f", name, draw.name, chi, df, critical[df])
			}
		}
	}
}

func drawN(t *testing.T, n int, draw func() (int32, error)) []int32 {
	t.Helper()
	ids := make([]int32, n)
	for i := range ids {
		id, err := draw()
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = id
	}
	return ids
}

// The ids are the same on every platform: this test also runs in WebAssembly.
func TestSeedGivesKnownTokens(t *testing.T) {
	t.Parallel()
	logits := make([]float32, 1000)
	for i := range logits {
		logits[i] = float32((i*7919)%1000) / 100
	}
	p := Default()
	p.TopP = 0.95
	s := New(seeded(p, 7), len(logits))
	got := drawN(t, 12, func() (int32, error) { return s.Sample(slices.Clone(logits)) })
	want := []int32{334, 594, 928, 100, 114, 519, 779, 976, 558, 915, 322, 742}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGreedy(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, c := range []struct {
		logits    []float32
		numTokens int
		want      int32
		err       error
	}{
		{[]float32{1, 3, 3, 2}, 4, 1, nil}, // ties: the lowest id
		{[]float32{1, 2, 9, 9}, 2, 1, nil}, // ids from numTokens on do not exist
		{[]float32{1, 2, nan}, 2, 1, nil},  // nor do their NaNs
		{[]float32{1, 2}, 5, 1, nil},
		{[]float32{-inf, -5}, 2, 1, nil},
		{[]float32{1, nan, 2}, 3, 0, ErrNaN},
		{[]float32{nan, 1, 2}, 3, 0, ErrNaN},
		{[]float32{1, inf}, 2, 0, ErrNaN},
		{[]float32{-inf, -inf}, 2, 0, ErrNoToken},
		{nil, 5, 0, ErrNoToken},
	} {
		for _, temperature := range []float64{0, 0.9e-5, 1} {
			p := seeded(Default(), 1)
			p.Temperature = temperature
			if temperature == 1 {
				p.TopP = 1e-9 // keeps only the most probable
			}
			got, err := New(p, c.numTokens).Sample(slices.Clone(c.logits))
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("Sample(%v) at temperature %v = %d, %v, want %d, %v", c.logits, temperature, got, err, c.want, c.err)
			}
		}
	}
	p := Default()
	p.Temperature = 0
	if !New(p, 3).Greedy() {
		t.Error("temperature 0 is not Greedy")
	}
	for _, change := range []func(*Params){
		func(p *Params) { p.Temperature = 1e-5 },
		func(p *Params) { p.RepetitionPenalty = 1.1 },
		func(p *Params) { p.PresencePenalty = 0.1 },
		func(p *Params) { p.FrequencyPenalty = -0.1 },
		func(p *Params) { p.LogitBias = map[int32]float64{1: 1} },
		func(p *Params) { p.AllowedTokenIDs = []int32{1} },
		func(p *Params) { p.BadWords = [][]int32{{1}} },
		func(p *Params) { p.MinTokens, p.EndIDs = 1, []int32{2} },
	} {
		q := p
		change(&q)
		if New(q, 3).Greedy() || q.Greedy() {
			t.Errorf("%+v is Greedy", q)
		}
	}
}

func TestBiasAndPenalties(t *testing.T) {
	t.Parallel()
	p := Default()
	p.Temperature = 0
	p.RepetitionPenalty, p.FrequencyPenalty, p.PresencePenalty = 2, 0.5, 0.25
	p.LogitBias = map[int32]float64{4: 200, 5: -1, 99: 1}
	s := New(p, 6, 0, 0, 1, -1, 77) // the prompt; ids out of range are ignored
	for _, id := range []int32{1, 2, 2, -3, 50} {
		s.Accept(id)
	}
	logits := []float32{4, -4, 3, 1, 0, 2, 7}
	before := slices.Clone(logits)
	id, err := s.Sample(logits)
	if id != 4 || err != nil || !slices.Equal(logits, before) {
		t.Errorf("got %d, %v and logits %v, want 4 and %v", id, err, logits, before)
	}
	s.adjust(logits[:6])
	want := []float32{
		2,               // only in the prompt: divided, no more
		-8 - 0.5 - 0.25, // prompt and once in the output; negative: multiplied
		1.5 - 1 - 0.25,  // twice in the output
		1, 100, 1, 7,    // bias clamped to 100; 99 and the last are outside
	}
	if !slices.Equal(logits, want) {
		t.Errorf("got logits %v, want %v", logits, want)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	if err := Default().Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	for field, changes := range map[string][]func(*Params){
		"temperature":        {func(p *Params) { p.Temperature = -0.1 }, func(p *Params) { p.Temperature = nan }, func(p *Params) { p.Temperature = math.Inf(1) }},
		"top_p":              {func(p *Params) { p.TopP = 0 }, func(p *Params) { p.TopP = 1.1 }, func(p *Params) { p.TopP = nan }},
		"min_p":              {func(p *Params) { p.MinP = -0.1 }, func(p *Params) { p.MinP = 1.1 }},
		"top_k":              {func(p *Params) { p.TopK = -2 }},
		"repetition_penalty": {func(p *Params) { p.RepetitionPenalty = 0 }, func(p *Params) { p.RepetitionPenalty = math.Inf(1) }},
		"presence_penalty":   {func(p *Params) { p.PresencePenalty = 2.1 }},
		"frequency_penalty":  {func(p *Params) { p.FrequencyPenalty = -2.1 }},
		"min_tokens":         {func(p *Params) { p.MinTokens = -1 }},
		"allowed_token_ids":  {func(p *Params) { p.AllowedTokenIDs = []int32{} }, func(p *Params) { p.AllowedTokenIDs = []int32{1, -1} }},
		"bad_words":          {func(p *Params) { p.BadWords = [][]int32{{1}, {}} }, func(p *Params) { p.BadWords = [][]int32{{1, -2}} }},
		"logit_bias": {
			func(p *Params) { p.LogitBias = map[int32]float64{-1: 1} }, func(p *Params) { p.LogitBias = map[int32]float64{1: nan} },
			func(p *Params) {
				p.LogitBias = map[int32]float64{}
				for i := range int32(maxLogitBiases + 1) {
					p.LogitBias[i] = 1
				}
			},
		},
	} {
		for i, change := range changes {
			p := Default()
			change(&p)
			var bad *ParamError
			if err := p.Validate(); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s %d: got %v", field, i, err)
			}
		}
	}
	for field, p := range map[string]Params{
		"logit_bias": {LogitBias: map[int32]float64{10: 1}}, "allowed_token_ids": {AllowedTokenIDs: []int32{2, 10}},
		"bad_words": {BadWords: [][]int32{{1, 2}, {10, 3}}},
	} {
		var bad *ParamError
		if err := p.CheckVocab(10); p.CheckVocab(11) != nil || !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("CheckVocab: got %v, want an error about %s", err, field)
		}
	}
}

// exp and log are within an ulp or so of the correctly rounded values that
// math's have, and equal them nearly always.
func TestExpAndLog(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	near := func(got, want float64) bool {
		return got == want || math.Abs(got-want) <= 2*math.Abs(math.Nextafter(want, math.Inf(1))-want)
	}
	for range 200_000 {
		x := -math.Exp(rng.Float64()*16 - 9)
		if !near(exp(x), math.Exp(x)) {
			t.Fatalf("exp(%v) = %v, want %v", x, exp(x), math.Exp(x))
		}
		u := math.Exp(-rng.Float64() * 40)
		if !near(log(u), math.Log(u)) {
			t.Fatalf("log(%v) = %v, want %v", u, log(u), math.Log(u))
		}
	}
	for x, want := range map[float64]float64{0: 1, -1e-300: 1, -740: math.Exp(-740), -800: 0, math.Inf(-1): 0} {
		if exp(x) != want {
			t.Errorf("exp(%v) = %v, want %v", x, exp(x), want)
		}
	}
	// Constants, because Go's own log for amd64 is wrong below 2^-1022.
	for x, want := range map[float64]float64{1: 0, 5e-324: -744.4400719213812, 1e-310: -713.8013788281542, 0x1p-1022: -708.3964185322641} {
		if !near(log(x), want) {
			t.Errorf("log(%v) = %v, want %v", x, log(x), want)
		}
	}
}

func ernieLogits() []float32 {
	rng := rand.New(rand.NewPCG(8, 9))
	logits := make([]float32, 103_424)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	return logits
}

func TestSampleDoesNotAllocate(t *testing.T) {
	logits := ernieLogits()
	for _, p := range []Params{
		Default(),
		{Temperature: 0.8, TopP: 0.9, TopK: 50, MinP: 0.01, RepetitionPenalty: 1.1},
		{
			Temperature: 1, TopP: 1, RepetitionPenalty: 1, AllowedTokenIDs: []int32{5, 70, 900}, BadWords: [][]int32{{1, 2, 3}},
			MinTokens: 1000, EndIDs: []int32{2},
		},
	} {
		s := New(seeded(p, 1), 101_304)
		step := func() {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			s.Accept(id)
		}
		step()
		if n := testing.AllocsPerRun(20, step); n > 0.5 {
			t.Errorf("%+v: %v allocations a token", p, n)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	logits := ernieLogits()
	for name, p := range map[string]Params{
		"all":       Default(),
		"top_p_0.8": {Temperature: 0.8, TopP: 0.8, RepetitionPenalty: 1},
		"top_k_50":  {Temperature: 0.8, TopP: 0.9, TopK: 50, RepetitionPenalty: 1},
		"greedy":    {TopP: 1, RepetitionPenalty: 1},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(seeded(p, 1), 101_304)
			for b.Loop() {
				if _, err := s.Sample(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
