package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/tokenizer"
	"github.com/pagelight/pagelight/internal/weights"
)

const fakeVocab = 1000

// fakeExec picks, for each row, the token after the row's own: 5 gives 6. It checks the plans that it is given.
type fakeExec struct {
	t      testing.TB
	delay  time.Duration
	fail   func(p *sched.Plan) error
	closed bool
	steps  int
	slow   time.Duration // what a step takes longer that reads all logits

	unsure bool    // StepTop gives candidates that prove nothing
	reads  int     // calls of ReadLogits
	ids    []int32 // of the last step's rows

	adjusts error // of OpenAdjust
	opened  int   // calls of it
	nan     int32 // a row of a burst that would choose this id has a NaN
	rows    []fakeRow
	flights []runner.Burst
	bursts  int
	ahead   func(steps int) // is told how many steps of bursts are under way after each Burst
	vain    int             // rows of steps of bursts that computed nothing, their answer having ended
}

// stepsOnly is the part of an executor that loops without bursts do not call.
type stepsOnly struct{}

func (stepsOnly) Begin(*sched.Plan, []runner.BurstRow, runner.Choice) error {
	panic("BUG: a burst")
}

func (stepsOnly) OpenAdjust(context.Context) error { panic("BUG: a burst") }
func (stepsOnly) Room() int                        { return 0 }
func (stepsOnly) Burst(*sched.Plan, int) error     { panic("BUG: a burst") }
func (stepsOnly) Clock() runner.Clock              { return runner.Clock{} }

func (stepsOnly) Collect(context.Context) (runner.Burst, error) {
	panic("BUG: a burst")
}

// fakeRow is a row of bursts.
type fakeRow struct {
	runner.BurstRow
	seq  *sched.Sequence
	last int32
	pos  int
}

func (f *fakeExec) Step(_ context.Context, p *sched.Plan, want runner.Want) (runner.Result, error) {
	f.steps++
	time.Sleep(f.delay)
	if f.fail != nil {
		if err := f.fail(p); err != nil {
			return runner.Result{}, err
		}
	}
	var ids []int32
	for _, c := range p.Chunks {
		if c.Seq.Table.Capacity() < c.Start+len(c.Tokens) {
			f.t.Errorf("sequence %s computes position %d with room for %d", c.Seq.ID, c.Start+len(c.Tokens)-1, c.Seq.Table.Capacity())
		}
		for _, id := range c.Tokens[len(c.Tokens)-c.Logits:] {
			ids = append(ids, (id+1)%fakeVocab)
		}
	}
	f.ids = ids
	if want == runner.WantLogits {
		time.Sleep(f.slow)
		return oneHot(ids), nil
	}
	return runner.Result{IDs: ids}, nil
}

// StepTop gives two candidates a row: the token that the logits of Step leave no choice but, and another.
func (f *fakeExec) StepTop(ctx context.Context, p *sched.Plan, draws []sample.Draw) (runner.Result, error) {
	res, err := f.Step(ctx, p, runner.WantIDs)
	if len(draws) != p.NumLogits {
		f.t.Errorf("%d draws for %d rows", len(draws), p.NumLogits)
	}
	var top []sample.Top
	for _, id := range res.IDs {
		c := sample.Top{IDs: []int32{id, (id + 1) % fakeVocab}, Logits: []float32{0, -1e4}, Max: 0, Total: 1}
		if f.unsure {
			c.Logits = []float32{0, 0} // as many equal ones may follow as there are tokens
			c.Total = 2
		}
		top = append(top, c)
	}
	return runner.Result{Top: top}, err
}

func (f *fakeExec) ReadLogits(_ context.Context, row int) ([]float32, error) {
	f.reads++
	return oneHot(f.ids[row : row+1]).Row(0), nil
}

func (f *fakeExec) OpenAdjust(context.Context) error {
	f.opened++
	return f.adjusts
}

func (f *fakeExec) Begin(p *sched.Plan, rows []runner.BurstRow, _ runner.Choice) error {
	if len(f.flights) > 0 || len(rows) != len(p.Chunks) {
		f.t.Errorf("%d rows for %d sequences, %d bursts under way", len(rows), len(p.Chunks), len(f.flights))
	}
	f.rows = f.rows[:0]
	for i, c := range p.Chunks {
		f.rows = append(f.rows, fakeRow{BurstRow: rows[i], seq: c.Seq, last: c.Tokens[0], pos: c.Start})
	}
	return nil
}

func (f *fakeExec) Room() int {
	return min(runner.MaxBurst, (runner.MaxFlights-len(f.flights))*runner.MaxBurst)
}

// Burst computes at once what Collect gives later.
func (f *fakeExec) Burst(p *sched.Plan, steps int) error {
	if f.fail != nil {
		if err := f.fail(p); err != nil {
			return err
		}
	}
	var ids []uint32
	for range steps {
		for i := range f.rows {
			r := &f.rows[i]
			if r.Left == 0 {
				ids = append(ids, kernels.NoToken)
				f.vain++
				continue
			}
			if r.seq.Table != nil && r.seq.Table.Capacity() <= r.pos {
				f.t.Errorf("sequence %s computes position %d with room for %d", r.seq.ID, r.pos, r.seq.Table.Capacity())
			}
			if f.unsure && r.pos%3 == 0 {
				ids, r.Left = append(ids, kernels.Undecided), 0
				continue
			}
			if f.nan > 0 && r.last+1 == f.nan {
				ids, r.Left = append(ids, kernels.NoID), 0
				continue
			}
			r.last, r.pos, r.Left = (r.last+1)%fakeVocab, r.pos+1, r.Left-1
			if slices.Contains(r.Stops, r.last) {
				r.Left = 0
			}
			if r.Left > 0 && r.seq.Table != nil && r.seq.Table.Capacity() <= r.pos {
				f.t.Errorf("sequence %s has no block for position %d, whose place the step before it finds", r.seq.ID, r.pos)
			}
			ids = append(ids, uint32(r.last))
		}
	}
	f.bursts++
	f.flights = append(f.flights, runner.MakeBurst(len(f.rows), ids))
	if f.ahead != nil {
		under := 0
		for _, b := range f.flights {
			under += b.Steps
		}
		f.ahead(under)
	}
	f.ids = f.ids[:0]
	for _, r := range f.rows {
		f.ids = append(f.ids, (r.last+1)%fakeVocab)
	}
	return nil
}

func (f *fakeExec) Collect(context.Context) (runner.Burst, error) {
	b := f.flights[0]
	f.flights = f.flights[1:]
	time.Sleep(f.delay * time.Duration(b.Steps))
	return b, nil
}

func (f *fakeExec) Clock() runner.Clock { return runner.Clock{} }

// oneHot are logits that leave no choice but the given ids.
func oneHot(ids []int32) runner.Result {
	logits := slices.Repeat([]float32{-1e4}, len(ids)*fakeVocab)
	for i, id := range ids {
		logits[i*fakeVocab+int(id)] = 0
	}
	return runner.Result{Logits: logits, Vocab: fakeVocab}
}

func (f *fakeExec) Close() { f.closed = true }

// newFake is an engine over a fake executor with a pool of the given blocks, which works on four answers at once.
func newFake(t testing.TB, exec *fakeExec, blocks int) *Engine {
	return newFakeWith(t, exec, blocks, sched.Config{MaxBatchedTokens: 32, MaxLogits: 4, MaxSeqs: 4}, nil)
}

func newFakeWith(t testing.TB, exec *fakeExec, blocks int, cfg sched.Config, observer Observer) *Engine {
	exec.t = t
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: blocks})
	e := &Engine{
		Text:   &Text{tok: tokenizer.NewSynthetic(fakeVocab)},
		config: &weights.Config{VocabSize: fakeVocab, EOS: []int32{2}},
		dev:    fakeDevice{}, src: fakeSource{}, numTokens: fakeVocab,
	}
	e.info.MaxModelLen = blocks * kvcache.BlockSize
	e.loop = newLoop(exec, sched.New(cfg, pool), pool, slog.New(slog.DiscardHandler), observer)
	e.loop.bursts.most, e.loop.bursts.flights = runner.MaxBurst, runner.MaxFlights
	e.loop.hardware = true
	go e.loop.run()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := pool.Check(); err != nil || pool.NumFree() != blocks {
			t.Errorf("after Close %d of %d blocks are free, Check says %v", pool.NumFree(), blocks, err)
		}
		if !exec.closed {
			t.Error("Close did not close the executor")
		}
	})
	return e
}

type fakeDevice struct{ gpu.Device }

func (fakeDevice) Close() {}

type fakeSource struct{ weights.Source }

func (fakeSource) Close() error { return nil }

func greedy(ids []int32, maxTokens int) Request {
	zero := 0.0
	return Request{TokenIDs: ids, Params: Params{Temperature: &zero, MaxTokens: maxTokens}}
}

// collect reads a stream to its end.
func collect(ctx context.Context, e *Engine, req Request) (text string, ids []int32, last Event, err error) {
	for ev, err := range e.Generate(ctx, req) {
		if err != nil {
			return text, ids, last, err
		}
		text += ev.Text
		ids = append(ids, ev.TokenIDs...)
		last = ev
	}
	return text, ids, last, nil
}

func TestGenerateCountsUp(t *testing.T) {
	e := newFake(t, &fakeExec{}, 16)
	prompt := make([]int32, 50) // two chunks
	prompt[49] = 300
	text, ids, last, err := collect(t.Context(), e, greedy(prompt, 3))
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{301, 302, 303}; !slices.Equal(ids, want) {
		t.Errorf("ids = %v, want %v", ids, want)
	}
	if text != " 301 302 303" || last.FinishReason != FinishLength {
		t.Errorf("text %q, finish %q; want \" 301 302 303\", length", text, last.FinishReason)
	}
	if last.Usage != (Usage{PromptTokens: 50, CompletionTokens: 3, TotalTokens: 53}) {
		t.Errorf("usage = %+v", last.Usage)
	}
	st := e.Stats()
	if st.PromptTokens != 50 || st.GenerationTokens != 3 || st.Requests != 1 || st.BlocksUsed != 0 {
		t.Errorf("stats = %+v", st)
	}
}

func TestEndOfAnswerIDEndsAndIsNotText(t *testing.T) {
	e := newFake(t, &fakeExec{}, 4)
	req := greedy([]int32{0}, 0)
	text, ids, last, err := collect(t.Context(), e, req)
	if err != nil || !slices.Equal(ids, []int32{1, 2}) || last.FinishReason != FinishStop || strings.Contains(text, "2") {
		t.Errorf("text %q, ids %v, finish %q, err %v; want [1 2] and stop", text, ids, last.FinishReason, err)
	}
	req.Params.IgnoreEOS, req.Params.MaxTokens = true, 4
	if _, ids, _, _ := collect(t.Context(), e, req); !slices.Equal(ids, []int32{1, 2, 3, 4}) {
		t.Errorf("ignoring the end: ids %v, want [1 2 3 4]", ids)
	}
}

func TestStopStringEndsBeforeIt(t *testing.T) {
	e := newFake(t, &fakeExec{}, 4)
	req := greedy([]int32{10}, 30)
	req.Params.Stop = []string{" 13 1", "15"}
	text, ids, last, err := collect(t.Context(), e, req)
	if err != nil || text != " 11 12" {
		t.Errorf("text %q, err %v; want \" 11 12\"", text, err)
	}
	if last.FinishReason != FinishStop || last.StopReason != " 13 1" || !slices.Equal(ids, []int32{11, 12, 13, 14}) {
		t.Errorf("finish %q, reason %v, ids %v", last.FinishReason, last.StopReason, ids)
	}
}

func TestSamplingReadsLogits(t *testing.T) {
	e := newFake(t, &fakeExec{}, 4)
	one, seed := 1.0, int64(7)
	req := Request{TokenIDs: []int32{20}, Params: Params{Temperature: &one, Seed: &seed, MaxTokens: 3}}
	if _, ids, _, err := collect(t.Context(), e, req); err != nil || !slices.Equal(ids, []int32{21, 22, 23}) {
		t.Errorf("ids %v, err %v; the fake's distribution has one token", ids, err)
	}
}

func TestPromptThatDoesNotFit(t *testing.T) {
	e := newFake(t, &fakeExec{}, 2)
	var long *ContextLengthError
	_, _, _, err := collect(t.Context(), e, greedy(make([]int32, 32), 0))
	if !errors.As(err, &long) || long.PromptTokens != 32 || long.MaxModelLen != 32 {
		t.Errorf("prompt of 32 in a context of 32: %v", err)
	}
	_, _, _, err = collect(t.Context(), e, greedy(make([]int32, 30), 3))
	if !errors.As(err, &long) || long.MaxTokens != 3 || !strings.Contains(err.Error(), "33") {
		t.Errorf("30 + 3 in a context of 32: %v", err)
	}
	if _, ids, last, err := collect(t.Context(), e, greedy(slices.Repeat([]int32{5}, 30), 2)); err != nil || len(ids) != 2 || last.FinishReason != FinishLength {
		t.Errorf("30 + 2 in a context of 32: %v %v %v", ids, last.FinishReason, err)
	}
}

// TestAnswersEndAtTheModelsOwnLimit: max_new_tokens of generation_config.json holds where a request says nothing.
func TestAnswersEndAtTheModelsOwnLimit(t *testing.T) {
	e := newFake(t, &fakeExec{}, 2)
	own := 3
	e.config.Sampling.MaxNewTokens = &own
	for asked, want := range map[int]int{0: 3, 1: 1, 5: 5} {
		if _, ids, last, err := collect(t.Context(), e, greedy([]int32{5}, asked)); err != nil || len(ids) != want || last.FinishReason != FinishLength {
			t.Errorf("%d asked for: %d tokens, %v, %v; want %d", asked, len(ids), last.FinishReason, err, want)
		}
	}
	if _, ids, _, err := collect(t.Context(), e, greedy(slices.Repeat([]int32{5}, 30), 0)); err != nil || len(ids) != 2 {
		t.Errorf("with room for 2: %d tokens, %v", len(ids), err)
	}
}

func TestBadRequests(t *testing.T) {
	e := newFake(t, &fakeExec{}, 2)
	two, text := 2.0, ""
	for name, c := range map[string]struct {
		req   Request
		field string
	}{
		"nothing":      {Request{}, "prompt"},
		"both":         {Request{Prompt: &text, TokenIDs: []int32{1}}, "prompt"},
		"empty":        {Request{Prompt: &text}, "prompt"},
		"id too large": {Request{TokenIDs: []int32{fakeVocab}}, "prompt"},
		"id negative":  {Request{TokenIDs: []int32{-1}}, "prompt"},
		"top_p":        {Request{TokenIDs: []int32{1}, Params: Params{TopP: &two}}, "top_p"},
		"max_tokens":   {Request{TokenIDs: []int32{1}, Params: Params{MaxTokens: -1}}, "max_tokens"},
		"empty stop":   {Request{TokenIDs: []int32{1}, Params: Params{Stop: []string{""}}}, "stop"},
	} {
		var p *ParamError
		if _, _, _, err := collect(t.Context(), e, c.req); !errors.As(err, &p) || p.Field != c.field {
			t.Errorf("%s: %v, want a fault in %s", name, err, c.field)
		}
	}
	if _, _, _, err := collect(t.Context(), e, Request{Messages: []Message{{"user", "x"}}}); !errors.Is(err, ErrNoChatTemplate) {
		t.Errorf("messages without a template: %v", err)
	}
}

func TestCancelFreesBlocksWithinOneStep(t *testing.T) {
	exec := &fakeExec{delay: 2 * time.Millisecond}
	e := newFake(t, exec, 64)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	var err error
	for _, err = range e.Generate(ctx, greedy([]int32{100}, 500)) {
		if n++; n == 3 {
			cancel()
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled stream ended with %v", err)
	}
	waitForNoBlocks(t, e)
	for _, err := range e.Generate(t.Context(), greedy([]int32{100}, 500)) {
		if err != nil {
			t.Fatal(err)
		}
		break // leaving the loop cancels too
	}
	waitForNoBlocks(t, e)
}

func waitForNoBlocks(t *testing.T, e *Engine) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); e.Stats().BlocksUsed > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d blocks still in use", e.Stats().BlocksUsed)
		}
	}
}

func TestCancelWhileWaiting(t *testing.T) {
	e := newFakeWith(t, &fakeExec{delay: time.Millisecond}, 8, sched.Config{MaxBatchedTokens: 32, MaxLogits: 1, MaxSeqs: 1}, nil)
	first := make(chan error, 1)
	go func() {
		_, _, _, err := collect(t.Context(), e, greedy([]int32{100}, 100))
		first <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, ids, _, err := collect(ctx, e, greedy([]int32{500}, 100)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second request: ids %v, err %v; want its deadline", ids, err)
	}
	if err := <-first; err != nil {
		t.Errorf("the first request was disturbed: %v", err)
	}
}

func TestFailedStepFailsItsRequestsOnly(t *testing.T) {
	broken := errors.New("broken")
	exec := &fakeExec{fail: func(p *sched.Plan) error {
		if p.Chunks[0].Tokens[0] == 666 {
			return broken
		}
		return nil
	}}
	e := newFake(t, exec, 8)
	if _, _, _, err := collect(t.Context(), e, greedy([]int32{666}, 1)); !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	if _, ids, _, err := collect(t.Context(), e, greedy([]int32{7}, 1)); err != nil || !slices.Equal(ids, []int32{8}) {
		t.Errorf("after a failed step: %v, %v", ids, err)
	}
}

func TestNaNLogitsAreAnError(t *testing.T) {
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: 2})
	exec := &nanExec{fakeExec{t: t}}
	l := newLoop(exec, sched.New(sched.Config{MaxBatchedTokens: 8, MaxLogits: 1, MaxSeqs: 1}, pool), pool, slog.New(slog.DiscardHandler), nil)
	e := &Engine{Text: &Text{}, config: &weights.Config{VocabSize: fakeVocab}, dev: fakeDevice{}, src: fakeSource{}, loop: l, numTokens: fakeVocab}
	e.info.MaxModelLen = 32
	go l.run()
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, _, _, err := collect(t.Context(), e, greedy([]int32{1}, 1)); !errors.Is(err, ErrInvalidLogits) {
		t.Errorf("err = %v, want ErrInvalidLogits", err)
	}
}

type nanExec struct{ fakeExec }

func (f *nanExec) Step(context.Context, *sched.Plan, runner.Want) (runner.Result, error) {
	return runner.Result{IDs: []int32{-1}}, nil
}

func TestDeviceLossReachesEverybody(t *testing.T) {
	exec := &fakeExec{delay: time.Millisecond}
	lose := make(chan struct{})
	exec.fail = func(*sched.Plan) error {
		select {
		case <-lose:
			return fmt.Errorf("reset: %w", gpu.ErrDeviceLost)
		default:
			return nil
		}
	}
	e := newFake(t, exec, 64)
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, _, err := collect(t.Context(), e, greedy([]int32{1, 100}, 500))
			errs <- err
		}()
	}
	time.Sleep(10 * time.Millisecond)
	close(lose)
	for range 2 {
		if err := <-errs; !errors.Is(err, ErrDeviceLost) {
			t.Errorf("err = %v, want ErrDeviceLost", err)
		}
	}
}

func TestCloseEndsRequests(t *testing.T) {
	e := newFake(t, &fakeExec{delay: time.Millisecond}, 64)
	errs := make(chan error, 1)
	go func() {
		_, _, _, err := collect(t.Context(), e, greedy([]int32{100}, 500))
		errs <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; !errors.Is(err, ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
	if _, _, _, err := collect(t.Context(), e, greedy([]int32{1}, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

// TestHammer has 200 goroutines ask, cancel, leave, ask for too much and meet failing steps at random, in a cache that holds
// few of them; each must get its own tokens, and in the end nothing is held.
func TestHammer(t *testing.T) {
	broken := errors.New("a step that fails")
	exec := &fakeExec{}
	exec.fail = func(*sched.Plan) error {
		if exec.steps%97 == 0 {
			return broken
		}
		return nil
	}
	e := newFake(t, exec, 16)
	var wg sync.WaitGroup
	var ended [4]atomic.Int64 // finished, gave up, met a failing step, refused
	for g := range 200 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 10 {
				ended[hammerOnce(t, e, r, broken)].Add(1)
			}
		})
	}
	wg.Wait()
	t.Logf("%d finished, %d gave up, %d met a failing step, %d were refused", ended[0].Load(), ended[1].Load(), ended[2].Load(), ended[3].Load())
	for i := range ended {
		if ended[i].Load() == 0 {
			t.Errorf("no request of kind %d", i)
		}
	}
	waitForNoBlocks(t, e)
}

// hammerOnce asks once and says how it ended, as an index of ended.
func hammerOnce(t *testing.T, e *Engine, r *rand.Rand, broken error) int {
	start := int32(10 + r.IntN(700))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leave := r.IntN(12)
	req := greedy(slices.Repeat([]int32{start}, 1+r.IntN(40)), 1+r.IntN(20))
	req.N = 1 + r.IntN(2)
	if r.IntN(10) == 0 {
		req.Params.MaxTokens = 300
	}
	next := []int32{start + 1, start + 1}
	for ev, err := range e.Generate(ctx, req) {
		switch long := (*ContextLengthError)(nil); {
		case err == nil:
		case errors.Is(err, context.Canceled):
			return 1
		case errors.Is(err, broken):
			return 2
		case errors.As(err, &long) && req.Params.MaxTokens == 300:
			return 3
		default:
			t.Errorf("start %d: %v", start, err)
			return 1
		}
		for _, id := range ev.TokenIDs {
			if id != next[ev.Index] {
				t.Errorf("start %d, answer %d: got %d, want %d", start, ev.Index, id, next[ev.Index])
			}
			next[ev.Index]++
		}
		if leave--; leave == 0 {
			if r.IntN(2) == 0 {
				return 1
			}
			cancel()
		}
	}
	return 0
}

func TestStopMatcherHoldsBackNoMoreThanNeeded(t *testing.T) {
	m := stopMatcher{stops: []string{"END", "\n\n"}}
	for _, c := range []struct{ in, out, hit string }{
		{"hello E", "hello ", ""}, {"N", "", ""}, {"X", "ENX", ""}, {"\n", "", ""}, {"a\n", "\na", ""}, {"\nrest", "", "\n\n"},
	} {
		if out, hit := m.push(c.in); out != c.out || hit != c.hit {
			t.Errorf("push(%q) = %q, %q; want %q, %q", c.in, out, hit, c.out, c.hit)
		}
	}
	m.held = "EN"
	if got := m.flush(); got != "EN" || m.flush() != "" {
		t.Errorf("flush = %q", got)
	}
}

func TestLogSumExp(t *testing.T) {
	if got := logSumExp([]float32{1000, 1000}); got < 1000.6931 || got > 1000.6932 {
		t.Errorf("logSumExp = %v, want 1000 + ln 2", got)
	}
}
