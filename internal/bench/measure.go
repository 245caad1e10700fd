package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// ErrWrong says that the model gave other tokens than it should have, so that there is no speed to speak of.
var ErrWrong = errors.New("wrong answers")

// Bench measures one engine, which it has configured.
type Bench struct {
	o    Options
	past history

	// known, if set, replaces Known: tests have answers of their own.
	known func(model, weights string) (string, []Answer)
}

// New checks what is to be measured.
func New(o Options) (*Bench, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &Bench{o: o, known: Known}, nil
}

// Configure gives cfg what the tests need of an engine: room for their contexts and answers, every prompt computed anew, and an
// observer. What cfg says of lengths and numbers already stays.
func (b *Bench) Configure(cfg engine.Config) engine.Config {
	length, seqs := b.o.needs()
	if cfg.MaxModelLen == 0 {
		cfg.MaxModelLen = min(length, cfg.Source.Config().MaxPositions) // Run says what does not fit
	}
	if cfg.MaxSeqs == 0 {
		cfg.MaxSeqs = seqs
	}
	cfg.NoPrefixCache, cfg.Observer = true, &b.past
	return cfg
}

// measurement is a run under way.
type measurement struct {
	*Bench
	eng    *engine.Engine
	device Device
	run    Run
	cases  []Answer
	approx bool
	wrong  error // the first wrong answer
	// audited are the tests an answer of which was held to its logits.
	audited map[string]bool
}

// Run checks and measures eng, which was opened with what Configure gave. When answers are wrong the error wraps ErrWrong, and
// the run says what was wrong and holds no speed. device is what MeasureDevice found, for the roofline; it may be empty.
func (b *Bench) Run(ctx context.Context, eng *engine.Engine, device Device) (Run, error) {
	info := eng.Info()
	m := &measurement{Bench: b, eng: eng, device: device, audited: map[string]bool{}, approx: info.KVType == engine.KVI8}
	m.run = Run{
		Model: Model{info.Model, info.Architecture, info.Parameters, info.Weights, info.WeightBytes},
		KV:    string(info.KVType), Kernels: info.Kernels, Notes: info.Notes,
	}
	known := len(m.run.Notes) // about the model
	tests := m.plan(info)
	if len(tests) == 0 {
		return m.run, &engine.ParamError{Field: "n_prompt, n_gen and batch", Reason: "leave nothing to measure: " + strings.Join(m.run.Notes[known:], "; ")}
	}
	err := m.check(ctx, tests)
	if err == nil {
		err = m.tests(ctx, tests)
	}
	if err == nil {
		err = m.verdict()
	}
	if err == nil && !b.o.NoProfile {
		err = m.account(ctx)
	}
	if err != nil {
		m.run.Tests, m.run.Profiles, m.run.Token = nil, nil, nil
	}
	return m.run, err
}

// test is one to be done.
type test struct {
	Test
	run func(context.Context, *Test) (speed float64, latency time.Duration, err error)
}

// plan lists the tests of the options that the engine has room for, and notes those that it has not.
func (m *measurement) plan(info engine.Info) (list []test) {
	add := func(t Test, tokens int, run func(context.Context, *Test) (float64, time.Duration, error)) {
		need := t.Batch * ((tokens + info.BlockSize - 1) / info.BlockSize)
		switch {
		case tokens > info.MaxModelLen:
			m.run.Notes = append(m.run.Notes, fmt.Sprintf("%s left out: it needs a context of %d tokens, this engine has %d", t.Name, tokens, info.MaxModelLen))
		case need > info.NumBlocks:
			m.run.Notes = append(m.run.Notes, fmt.Sprintf("%s left out: it needs a KV cache of %d blocks, the memory budget holds %d", t.Name, need, info.NumBlocks))
		default:
			list = append(list, test{t, run})
		}
	}
	for _, p := range m.o.prompts() {
		add(Test{Name: fmt.Sprintf("pp%d", p), Kind: KindPrefill, Prompt: p, Batch: 1}, p+1, m.prefill)
	}
	for _, d := range m.o.depths() {
		for _, g := range m.o.gens() {
			name := fmt.Sprintf("tg%d", g)
			if d > 0 {
				name += fmt.Sprintf(" @ d%d", d)
			}
			add(Test{Name: name, Kind: KindDecode, Gen: g, Depth: d, Batch: 1}, max(d, 1)+g+1, m.decode)
		}
	}
	for _, b := range m.o.batches() {
		name := fmt.Sprintf("b%d (pp%d+tg%d)", b, BatchPrompt, BatchGen)
		add(Test{Name: name, Kind: KindBatch, Prompt: BatchPrompt, Gen: BatchGen, Batch: b}, BatchPrompt+BatchGen+1, m.batch)
	}
	return list
}

// ask has one prompt answered greedily with n tokens.
func (m *measurement) ask(ctx context.Context, ids []int32, n int) (got []int32, took engine.Timing, err error) {
	greedy := 0.0
	req := engine.Request{TokenIDs: ids, Params: engine.Params{Temperature: &greedy, MaxTokens: n, IgnoreEOS: true}}
	for ev, err := range m.eng.Generate(ctx, req) {
		if err != nil {
			return got, took, err
		}
		got = append(got, ev.TokenIDs...)
		if ev.FinishReason != "" {
			took = ev.Timing
		}
	}
	return got, took, nil
}

// askAll has prompts answered at the same time.
func (m *measurement) askAll(ctx context.Context, prompts [][]int32, n int) ([][]int32, error) {
	got, errs := make([][]int32, len(prompts)), make([]error, len(prompts))
	var wg sync.WaitGroup
	for i, ids := range prompts {
		wg.Go(func() { got[i], _, errs[i] = m.ask(ctx, ids, n) })
	}
	wg.Wait()
	return got, errors.Join(errs...)
}

// tests runs tests. It stops at the first wrong answer.
func (m *measurement) tests(ctx context.Context, list []test) error {
	for _, t := range list {
		var speeds, latencies []float64
		var before engine.Clock
		var began time.Time
		for i := -1; i < m.o.Repetitions; i++ { // the first run is for what is made when it is first needed
			m.o.tell("%s, KV %s: %s", t.Name, m.run.KV, progress(i, m.o.Repetitions))
			if i == 0 {
				before, began = m.eng.Stats().Clock, time.Now()
			}
			speed, latency, err := t.run(ctx, &t.Test)
			if err != nil {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
			if m.wrong != nil {
				return m.verdict()
			}
			if i >= 0 {
				speeds, latencies = append(speeds, speed), append(latencies, 1e3*latency.Seconds())
			}
		}
		all, wall := m.eng.Stats().Clock, time.Since(began)
		t.Speed, t.LatencyMS = spread(speeds), spread(latencies).Median
		mean := 0.0 // as what is counted is that of all runs
		for _, l := range latencies {
			mean += l / float64(len(latencies))
		}
		switch n := float64(m.o.Repetitions); t.Kind {
		case KindPrefill:
			t.Stages = stages(before, all, all, m.o.Repetitions, 0).times(float64(all.Steps-before.Steps)/n, mean)
		case KindDecode: // without what the prompt takes
			if _, err := m.askAll(ctx, m.prompts(&t.Test), 1); err != nil {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
			t.Stages = stages(before, all, m.eng.Stats().Clock, m.o.Repetitions, mean)
		case KindBatch: // prompts and answers share steps
			t.Stages = stages(before, all, all, m.o.Repetitions, 1e3*wall.Seconds()/float64(max(1, all.Steps-before.Steps)))
		}
		m.run.Tests = append(m.run.Tests, t.Test)
	}
	return nil
}

func progress(i, n int) string {
	if i < 0 {
		return "warming up"
	}
	return fmt.Sprintf("run %d of %d", i+1, n)
}

// prompts are those of a test. Known cases are among them as far as they fit.
func (m *measurement) prompts(t *Test) [][]int32 {
	vocab := tokens(m.eng)
	switch t.Kind {
	case KindPrefill:
		return [][]int32{prompt(t.Name, t.Prompt, vocab)}
	case KindDecode:
		n := max(t.Depth, 1)
		if a := m.caseOfLength(n); a != nil {
			return [][]int32{a.Prompt}
		}
		return [][]int32{prompt(t.Name, n, vocab)}
	}
	known, rows := m.casesOf(t), make([][]int32, t.Batch)
	for i := range rows {
		if i < len(known) {
			rows[i] = known[i].Prompt
		} else {
			rows[i] = prompt(fmt.Sprintf("row %d", i), BatchPrompt, vocab)
		}
	}
	return rows
}

func (m *measurement) caseOfLength(n int) *Answer {
	for i := range m.cases {
		if len(m.cases[i].Prompt) == n {
			return &m.cases[i]
		}
	}
	return nil
}

// casesOf are the cases among the rows of a test of many answers: the longest ones that are no longer than its prompts.
func (m *measurement) casesOf(t *Test) (known []*Answer) {
	for i := range m.cases {
		if len(m.cases[i].Prompt) <= BatchPrompt {
			known = append(known, &m.cases[i])
		}
	}
	return known[max(0, len(known)-t.Batch):]
}

// prefill computes a prompt and its first token.
func (m *measurement) prefill(ctx context.Context, t *Test) (float64, time.Duration, error) {
	_, took, err := m.ask(ctx, m.prompts(t)[0], 1)
	return float64(t.Prompt) / took.FirstToken.Seconds(), took.FirstToken, err
}

// decode computes an answer after a prompt of the test's depth, at least one token; its first token belongs to the prompt.
func (m *measurement) decode(ctx context.Context, t *Test) (float64, time.Duration, error) {
	got, took, err := m.ask(ctx, m.prompts(t)[0], t.Gen+1)
	if err == nil && len(got) != t.Gen+1 {
		err = fmt.Errorf("%d tokens came, %d were asked for", len(got), t.Gen+1)
	}
	if known := m.caseOfLength(max(t.Depth, 1)); err == nil && known != nil {
		m.compare(t.Name, known, got)
	}
	if err == nil && !m.audited[t.Name] {
		m.audited[t.Name] = true
		err = m.audit(ctx, t.Name, m.prompts(t)[0], got)
	}
	return float64(t.Gen) / took.Decode.Seconds(), took.Decode / time.Duration(t.Gen), err
}

// batch computes many answers at once and counts the tokens from when all have their first one until the first of them ends:
// then all are at work in every step.
func (m *measurement) batch(ctx context.Context, t *Test) (float64, time.Duration, error) {
	// Answers that start early are ahead of the others when these begin, which is how much longer they all have to be.
	ahead, room := m.past.begin(t.Batch), m.eng.Info().MaxModelLen-BatchPrompt
	prompts := m.prompts(t)
	got, err := m.askAll(ctx, prompts, min(1+BatchGen+ahead, room))
	if err != nil {
		return 0, 0, err
	}
	for i, a := range m.casesOf(t) {
		m.compare(t.Name, a, got[i])
	}
	if last := t.Batch - 1; !m.audited[t.Name] { // a whole answer, across blocks and bursts, once
		m.audited[t.Name] = true
		if err := m.audit(ctx, t.Name, prompts[last], got[last]); err != nil {
			return 0, 0, err
		}
	}
	n, steps, took := m.past.window()
	if n == 0 && ahead > 0 {
		return 0, 0, fmt.Errorf("the first answer ended before the last began: the context of %d tokens is too short for %d answers at once", m.eng.Info().MaxModelLen, t.Batch)
	}
	if n == 0 {
		return 0, 0, nil // while warming up
	}
	return float64(n) / took.Seconds(), took / time.Duration(steps), nil
}
