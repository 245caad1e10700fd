package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	room  room // what bounds the tests, as Configure found
}

// New checks what is to be measured.
func New(o Options) (*Bench, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &Bench{o: o, known: Known}, nil
}

// NewRun is a run of which nothing has been measured yet.
func NewRun(info engine.Info) Run {
	return Run{
		Model: Model{info.Model, info.Architecture, info.Parameters, info.Weights, info.WeightBytes},
		KV:    string(info.KVType), Kernels: info.Kernels, Check: Check{Cases: []CheckCase{}}, Tests: []Test{}, Notes: slices.Clone(info.Notes),
	}
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
	done   int   // tests
	total  int
	// audited are the tests an answer of which was held to its logits.
	audited map[string]bool
	// firsts are the tokens that may follow the prompts of tests.
	firsts map[string]first
}

// Run checks and measures eng, which was opened with what Configure gave. When answers are wrong the error wraps ErrWrong, and
// the run says what was wrong and holds no speed. device is what MeasureDevice found, for the roofline; it may be empty.
func (b *Bench) Run(ctx context.Context, eng *engine.Engine, device Device) (Run, error) {
	info := eng.Info()
	m := &measurement{Bench: b, eng: eng, device: device, audited: map[string]bool{}, firsts: map[string]first{}, approx: info.KVType == engine.KVI8}
	m.run = NewRun(info)
	known := len(m.run.Notes) // about the model
	tests := m.plan(info)
	if len(tests) == 0 {
		return m.run, &engine.ParamError{Field: "n_prompt, n_gen and batch", Reason: "leave nothing to measure: " + strings.Join(m.run.Notes[known:], "; ")}
	}
	m.total = len(tests)
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
		m.run.Tests, m.run.Profiles, m.run.Token = []Test{}, nil, nil
	}
	return m.run, err
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

// result is one run of a test.
type result struct {
	speed   float64 // tokens/s; 0 where too few were counted, which happens while warming up
	latency time.Duration
	span    span
}

// errRoom says that a test turned out to need more room than there is.
var errRoom = errors.New("too little room")

// tests runs tests. It stops at the first wrong answer.
func (m *measurement) tests(ctx context.Context, list []test) error {
	for i := range list {
		t := &list[i]
		m.done = i
		err := m.test(ctx, &t.Test)
		switch {
		case errors.Is(err, errRoom):
			m.leaveOut(LeftOut{Name: t.Name, Reason: err.Error()})
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", t.Name, err)
		case m.wrong != nil:
			return m.verdict()
		}
		m.run.Tests = append(m.run.Tests, t.Test)
		if m.o.Measured != nil {
			m.o.Measured(t.Test)
		}
	}
	return nil
}

// test runs a test as often as is asked for, or until an answer is wrong.
func (m *measurement) test(ctx context.Context, t *Test) error {
	once := map[string]func(context.Context, *Test) (result, error){KindPrefill: m.prefill, KindDecode: m.decode, KindBatch: m.batch}[t.Kind]
	var speeds, latencies []float64
	var sum span
	for i := -1; i < m.o.Repetitions; i++ { // the first run is for what is made when it is first needed
		m.tell(DoingTest, t.Name, i+1)
		r, err := once(ctx, t)
		if err != nil || m.wrong != nil {
			return err
		}
		if i < 0 {
			continue
		}
		speeds, latencies = append(speeds, r.speed), append(latencies, 1e3*r.latency.Seconds())
		sum.add(&r.span)
	}
	t.Speed, t.LatencyMS, t.Stages = spread(speeds), spread(latencies).Median, sum.stages(t.Kind)
	return nil
}

// tell says what is being done.
func (m *measurement) tell(doing, name string, run int) {
	if m.o.Progress != nil {
		m.o.Progress(Progress{Doing: doing, KV: m.run.KV, Name: name, Run: run, Runs: m.o.Repetitions, Done: m.done, Total: m.total})
	}
}

// prompts are those of a test. Known cases are among them as far as they fit.
func (m *measurement) prompts(t *Test) [][]int32 {
	vocab := tokens(m.eng)
	switch t.Kind {
	case KindPrefill, KindDecode:
		n := max(t.Prompt, t.Depth, 1)
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
func (m *measurement) prefill(ctx context.Context, t *Test) (r result, err error) {
	ids, before := m.prompts(t)[0], m.eng.Stats().Clock
	m.past.begin(1)
	got, took, err := m.ask(ctx, ids, 1)
	if err == nil && len(got) != 1 {
		err = fmt.Errorf("%d tokens came, 1 was asked for", len(got))
	}
	if err != nil {
		return r, err
	}
	r = result{float64(t.Prompt) / took.FirstToken.Seconds(), took.FirstToken, span{m.past.first(), took.FirstToken, 1}}
	r.span.since(before)
	if a := m.caseOfLength(t.Prompt); a != nil && m.run.Check.KnownAnswer && a.comparable(m.run.Check.LeastMargin) > 0 {
		m.compare(t.Name, a, got)
		return r, nil
	}
	return r, m.compareFirst(ctx, t.Name, ids, got[0])
}

// decode computes an answer after a prompt of the test's depth, at least one token; its first token belongs to the prompt.
func (m *measurement) decode(ctx context.Context, t *Test) (r result, err error) {
	m.past.begin(1)
	got, took, err := m.ask(ctx, m.prompts(t)[0], t.Gen+1)
	if err == nil && len(got) != t.Gen+1 {
		err = fmt.Errorf("%d tokens came, %d were asked for", len(got), t.Gen+1)
	}
	if err != nil {
		return r, err
	}
	r = result{float64(t.Gen) / took.Decode.Seconds(), took.Decode / time.Duration(t.Gen), m.past.span()}
	if known := m.caseOfLength(max(t.Depth, 1)); known != nil {
		m.compare(t.Name, known, got)
	}
	return r, m.audit(ctx, t.Name, m.prompts(t)[0], got)
}

// batch computes many answers at once and counts the tokens from when all have their first one until the first of them ends:
// then all are at work in every step.
func (m *measurement) batch(ctx context.Context, t *Test) (r result, err error) {
	// Answers that start early are ahead of the others when these begin, which is how much longer they all have to be.
	early, room := m.past.begin(t.Batch), m.eng.Info().MaxModelLen-BatchPrompt
	prompts, preempted := m.prompts(t), m.eng.Stats().Preemptions
	got, err := m.askAll(ctx, prompts, min(1+BatchGen+early, room))
	if err != nil {
		return r, err
	}
	n, steps, took := m.past.window()
	r.span = m.past.span()
	for i, a := range m.casesOf(t) {
		m.compare(t.Name, a, got[i])
	}
	last := t.Batch - 1
	if err := m.audit(ctx, t.Name, prompts[last], got[last]); err != nil { // across blocks and bursts
		return r, err
	}
	switch {
	case m.eng.Stats().Preemptions > preempted:
		return r, fmt.Errorf("%w: the KV cache of %d blocks does not hold %d answers at once", errRoom, m.eng.Info().NumBlocks, t.Batch)
	case n == 0 && early > 0:
		return r, fmt.Errorf("%w: the first answer ended before the last began, the context of %d tokens is too short for %d answers at once",
			errRoom, m.eng.Info().MaxModelLen, t.Batch)
	case n > 0:
		r.speed, r.latency = float64(n)/took.Seconds(), took/time.Duration(steps)
	}
	return r, nil
}
