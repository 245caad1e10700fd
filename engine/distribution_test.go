package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/ref"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/tokenizer"
	"github.com/pagelight/pagelight/internal/weights"
)

const (
	tableVocab = 40
	tableTop   = 12 // candidates of a row: fewer than ids, so that they have to prove themselves
)

// tableExec is a model that is a table: the logits of a row depend on nothing but the row's token.
type tableExec struct {
	stepsOnly
	logits [tableVocab][]float32
	delay  time.Duration // of a step, so that requests meet
	last   []int32       // tokens of the last step's rows
}

// newTableExec fills the table with logits of a spread that leaves most tokens a chance.
func newTableExec() *tableExec {
	rng := rand.New(rand.NewPCG(11, 12))
	e := &tableExec{}
	for id := range e.logits {
		for range tableVocab {
			e.logits[id] = append(e.logits[id], float32(1.5*rng.NormFloat64()))
		}
	}
	return e
}

func (e *tableExec) Close() {}

func (e *tableExec) Step(_ context.Context, p *sched.Plan, want runner.Want) (runner.Result, error) {
	time.Sleep(e.delay)
	e.last = e.last[:0]
	for _, c := range p.Chunks {
		e.last = append(e.last, c.Tokens[len(c.Tokens)-c.Logits:]...)
	}
	res := runner.Result{}
	for _, id := range e.last {
		if want == runner.WantLogits {
			res.Logits, res.Vocab = append(res.Logits, e.logits[id]...), tableVocab
			continue
		}
		best := 0
		for i, l := range e.logits[id] {
			if l > e.logits[id][best] {
				best = i
			}
		}
		res.IDs = append(res.IDs, int32(best))
	}
	return res, nil
}

// StepTop finds candidates as the reference of the kernels does.
func (e *tableExec) StepTop(ctx context.Context, p *sched.Plan, draws []sample.Draw) (runner.Result, error) {
	res, err := e.Step(ctx, p, runner.WantLogits)
	args := ref.TopKArgs{
		Vocab: tableVocab, Limit: tableVocab, K: tableTop, Logits: res.Logits,
		Top: make([]ref.Best, len(draws)*tableTop), Sums: make([][2]uint32, len(draws)),
	}
	for _, d := range draws {
		draw := ref.Draw{InvTemperature: d.InvTemperature, Key: [2]uint32{uint32(d.Key), uint32(d.Key >> 32)}}
		if d.Race {
			draw.Race = 1
		}
		args.Draws = append(args.Draws, draw)
	}
	ref.TopK(&args, 0, len(draws))
	out := runner.Result{}
	for m := range draws {
		top := sample.Top{Max: math.Float32frombits(args.Sums[m][0]), Total: float64(math.Float32frombits(args.Sums[m][1]))}
		for _, b := range args.Top[m*tableTop : (m+1)*tableTop] {
			top.IDs = append(top.IDs, int32(b.ID))
			top.Logits = append(top.Logits, e.logits[e.last[m]][b.ID])
		}
		out.Top = append(out.Top, top)
	}
	return out, err
}

func (e *tableExec) ReadLogits(_ context.Context, row int) ([]float32, error) {
	return e.logits[e.last[row]], nil
}

// newTable is an engine over a table.
func newTable(t *testing.T, hardware bool, blocks int, delay time.Duration) (*Engine, *tableExec) {
	t.Helper()
	exec := newTableExec()
	exec.delay = delay
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: blocks})
	e := &Engine{
		Text: &Text{tok: tokenizer.NewSynthetic(tableVocab)}, config: &weights.Config{VocabSize: tableVocab},
		dev: fakeDevice{}, src: fakeSource{}, numTokens: tableVocab,
	}
	e.info.MaxModelLen = blocks * kvcache.BlockSize
	s := sched.New(sched.Config{MaxBatchedTokens: 64, MaxLogits: 64, MaxSeqs: 64}, pool)
	e.loop = newLoop(exec, s, pool, slog.New(slog.DiscardHandler), nil)
	e.loop.hardware = hardware
	go e.loop.run()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, exec
}

// setting is a request's parameters, and whether the device's candidates can serve it.
type setting struct {
	name       string
	params     Params
	candidates bool
}

func settings() []setting {
	p := func(v float64) *float64 { return &v }
	k := 6
	return []setting{
		{"plain", Params{}, true},
		{"temperature", Params{Temperature: p(0.6)}, true},
		{"top_k", Params{TopK: &k}, true},
		{"top_p", Params{TopP: p(0.7)}, true},
		{"min_p", Params{MinP: p(0.15)}, true},
		{"filters", Params{Temperature: p(1.4), TopK: &k, TopP: p(0.85), MinP: p(0.05)}, true},
		{"repetition_penalty", Params{RepetitionPenalty: p(1.6)}, false},
		{"presence_penalty", Params{PresencePenalty: p(1.8)}, false},
		{"frequency_penalty", Params{FrequencyPenalty: p(-1.5)}, false},
		{"logit_bias", Params{LogitBias: map[int32]float64{3: 2, 4: -2}}, false},
		{"everything", Params{
			Temperature: p(0.9), TopK: &k, TopP: p(0.9), MinP: p(0.02), RepetitionPenalty: p(1.3), PresencePenalty: p(0.4), FrequencyPenalty: p(0.3),
		}, false},
	}
}

// probabilities are those of the next token after prompt and output, worked out one token at a time from what vLLM's
// documentation says of each parameter, on probabilities rather than on logits, and by nothing of package sample.
func (s setting) probabilities(logits []float32, prompt, output []int32) []float64 {
	value := func(p *float64, otherwise float64) float64 {
		if p == nil {
			return otherwise
		}
		return *p
	}
	prob := make([]float64, len(logits))
	for i, l := range logits {
		id, x := int32(i), float64(l)+s.params.LogitBias[int32(i)]
		times := 0.0
		for _, o := range output {
			if o == id {
				times++
			}
		}
		if times > 0 || slices.Contains(prompt, id) {
			if r := value(s.params.RepetitionPenalty, 1); x > 0 {
				x /= r
			} else {
				x *= r
			}
		}
		x -= times * value(s.params.FrequencyPenalty, 0)
		if times > 0 {
			x -= value(s.params.PresencePenalty, 0)
		}
		prob[i] = math.Exp(x / value(s.params.Temperature, 1))
	}
	// A token is dropped by min_p for being improbable beside the best, by top_k for the number of better ones, by top_p for
	// the share that better ones have of what is left by then.
	drop := func(gone func(p, better, total, best float64, rank int) bool) {
		kept, total := slices.Clone(prob), 0.0
		for _, p := range prob {
			total += p
		}
		for i, p := range prob {
			better, rank := 0.0, 0
			for _, q := range prob {
				if q > p {
					better += q
					rank++
				}
			}
			if p > 0 && gone(p, better, total, slices.Max(prob), rank) {
				kept[i] = 0
			}
		}
		prob = kept
	}
	if s.params.MinP != nil {
		drop(func(p, _, _, best float64, _ int) bool { return p < *s.params.MinP*best })
	}
	if s.params.TopK != nil {
		drop(func(_, _, _, _ float64, rank int) bool { return rank >= *s.params.TopK })
	}
	if s.params.TopP != nil {
		drop(func(_, better, total, _ float64, _ int) bool { return better >= *s.params.TopP*total })
	}
	total := 0.0
	for _, p := range prob {
		total += p
	}
	for i := range prob {
		prob[i] /= total
	}
	return prob
}

// TestAnswersFollowTheDistribution asks the engine for answers of two tokens, thousands for each setting and all settings at
// once, so that they share steps. The pairs are as frequent as they are probable: chi-square at 0.1 %. Seeds are fixed, so
// nothing fails by chance.
func TestAnswersFollowTheDistribution(t *testing.T) {
	t.Parallel()
	const requests, answers = 50, 100
	prompt := []int32{7, 3, 21}
	for _, onDevice := range []bool{false, true} {
		e, exec := newTable(t, onDevice, 4096, 0)
		var wg sync.WaitGroup
		for number, s := range settings() {
			if onDevice && !s.candidates {
				continue // one such row in a step has all logits read
			}
			wg.Go(func() {
				pairs := map[[2]int32]float64{}
				for r := range requests {
					seed := int64(1_000_000*number + answers*r)
					req := Request{TokenIDs: prompt, N: answers, Params: s.params}
					req.Params.Seed, req.Params.MaxTokens = &seed, 2
					got := make([][]int32, answers)
					for ev, err := range e.Generate(t.Context(), req) {
						if err != nil {
							t.Error(err)
							return
						}
						got[ev.Index] = append(got[ev.Index], ev.TokenIDs...)
					}
					for _, ids := range got {
						pairs[[2]int32(ids)]++
					}
				}
				want := map[[2]int32]float64{}
				for a, p := range s.probabilities(exec.logits[21], prompt, nil) {
					for b, q := range s.probabilities(exec.logits[a], prompt, []int32{int32(a)}) {
						want[[2]int32{int32(a), int32(b)}] = p * q * requests * answers
					}
				}
				if chi, limit := chiSquare(t, s.name, pairs, want); chi > limit {
					t.Errorf("%s, candidates of the device: %v: chi-square %.1f, want below %.1f", s.name, onDevice, chi, limit)
				}
			})
		}
		wg.Wait()
	}
}

// chiSquare compares counts with what is expected, and gives the limit at 0.1 % by Wilson and Hilferty's approximation. What
// is expected less than 5 times counts together.
func chiSquare[K comparable](t *testing.T, name string, counts, expected map[K]float64) (chi, limit float64) {
	t.Helper()
	cells, few, rare := 0.0, 0.0, 0.0
	add := func(n, want float64) {
		chi += (n - want) * (n - want) / want
		cells++
	}
	for key, want := range expected {
		n := counts[key]
		switch {
		case want == 0 && n > 0:
			t.Errorf("%s: %v came %v times and cannot come", name, key, n)
		case want < 5:
			few, rare = few+n, rare+want
		default:
			add(n, want)
		}
	}
	if rare >= 5 {
		add(few, rare)
	}
	const z = 3.0902 // 0.1 % of a normal distribution lie above
	df := cells - 1
	return chi, df * math.Pow(1-2/(9*df)+z*math.Sqrt(2/(9*df)), 3)
}

// TestSeededAnswersInAnyCompany: ten seeds give the same tokens alone, and among strangers with parameters of all kinds,
// some of whom leave, in a cache so small that answers give way to each other.
func TestSeededAnswersInAnyCompany(t *testing.T) {
	t.Parallel()
	preemptions := int64(0)
	for _, onDevice := range []bool{false, true} {
		for _, s := range settings() {
			t.Run(fmt.Sprintf("%s/candidates=%v", s.name, onDevice), func(t *testing.T) {
				e, _ := newTable(t, onDevice, 24, 50*time.Microsecond)
				ask := func(seed int64) Request {
					req := Request{TokenIDs: []int32{5, int32(seed) % tableVocab}, Params: s.params}
					req.Params.Seed, req.Params.MaxTokens = &seed, 40
					return req
				}
				alone := make([][]int32, 10)
				for i := range alone {
					_, ids, _, err := collect(t.Context(), e, ask(int64(i)))
					if err != nil || len(ids) != 40 {
						t.Fatalf("%v, %v", ids, err)
					}
					alone[i] = ids
				}
				if slices.Equal(alone[0], alone[1]) {
					t.Error("two seeds give the same tokens, so nothing is tested")
				}
				var wg sync.WaitGroup
				for i := range alone {
					wg.Go(func() {
						if _, ids, _, err := collect(t.Context(), e, ask(int64(i))); err != nil || !slices.Equal(ids, alone[i]) {
							t.Errorf("seed %d: %v, %v; alone %v", i, ids, err, alone[i])
						}
					})
					wg.Go(func() { stranger(t, e, i) })
				}
				wg.Wait()
				preemptions += e.Stats().Preemptions
			})
		}
	}
	if preemptions == 0 {
		t.Error("no answer gave way to another")
	}
}

// stranger asks something else, and leaves early where its number is a multiple of three.
func stranger(t *testing.T, e *Engine, number int) {
	list := settings()
	s := list[number%len(list)]
	req := Request{TokenIDs: slices.Repeat([]int32{int32(number)}, 3+number), N: 1 + number%3, Params: s.params}
	req.Params.MaxTokens = 30 + number
	if number%4 == 0 {
		two := 2
		req.Params.Logprobs, req.Params.PromptLogprobs = &two, &two
	}
	seen := 0
	for _, err := range e.Generate(t.Context(), req) {
		if err != nil {
			t.Error(err)
			return
		}
		if seen++; number%3 == 0 && seen > 10 {
			return
		}
	}
}
