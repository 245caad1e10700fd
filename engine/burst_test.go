package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// counting is what the fake answers to a prompt that ends with id: the n ids that follow it.
func counting(id int32, n int) (ids []int32) {
	for range n {
		id = (id + 1) % fakeVocab
		ids = append(ids, id)
	}
	return ids
}

func TestBurstsTakeFewSubmissions(t *testing.T) {
	exec := &fakeExec{}
	e := newFake(t, exec, 32)
	_, ids, _, err := collect(t.Context(), e, greedy([]int32{100}, 300))
	if err != nil || !slices.Equal(ids, counting(100, 300)) {
		t.Fatalf("ids %v, error %v", ids, err)
	}
	// A step for the prompt, one to see how long steps take, then bursts of 1, 2, 4, 8, 16, 16, ..
	if least := 2 + 4 + (300-15)/runner.MaxBurst; exec.steps > 3 || exec.bursts < least-4 || exec.bursts > least+4 {
		t.Errorf("%d steps and %d bursts, want 2 and about %d", exec.steps, exec.bursts, least)
	}
}

func TestWithoutBursts(t *testing.T) {
	exec := &fakeExec{}
	e := newFake(t, exec, 32)
	e.loop.bursts.most = 1
	if _, ids, _, err := collect(t.Context(), e, greedy([]int32{100}, 40)); err != nil || !slices.Equal(ids, counting(100, 40)) {
		t.Fatalf("ids %v, error %v", ids, err)
	}
	if exec.bursts != 0 || exec.steps != 40 {
		t.Errorf("%d bursts and %d steps", exec.bursts, exec.steps)
	}
}

// TestSlowStepsAreSingle leaves nobody waiting for several steps that take long.
func TestSlowStepsAreSingle(t *testing.T) {
	exec := &fakeExec{delay: burstTime}
	e := newFake(t, exec, 8)
	if _, _, _, err := collect(t.Context(), e, greedy([]int32{100}, 6)); err != nil {
		t.Fatal(err)
	}
	if exec.bursts != 0 {
		t.Errorf("%d bursts of steps of %v", exec.bursts, exec.delay)
	}
}

// TestBurstsEndWhereAnswersEnd has answers end inside bursts in every way that there is.
func TestBurstsEndWhereAnswersEnd(t *testing.T) {
	exec := &fakeExec{}
	e := newFake(t, exec, 64)
	for name, c := range map[string]struct {
		from   int32
		change func(*Params)
		n      int
		reason FinishReason
	}{
		"length":         {100, func(p *Params) { p.MaxTokens = 53 }, 53, FinishLength},
		"end of answer":  {950, func(*Params) {}, 52, FinishStop}, // the id 2
		"ignored":        {950, func(p *Params) { p.IgnoreEOS, p.MaxTokens = true, 60 }, 60, FinishLength},
		"stop id":        {100, func(p *Params) { p.StopTokenIDs = []int32{141} }, 41, FinishStop},
		"many stop ids":  {100, func(p *Params) { p.StopTokenIDs = counting(140, 12) }, 41, FinishStop},
		"the last of 12": {100, func(p *Params) { p.StopTokenIDs = []int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 137} }, 37, FinishStop},
		"stop string":    {100, func(p *Params) { p.Stop = []string{" 133 134"} }, 34, FinishStop},
	} {
		req := greedy([]int32{c.from}, 500)
		c.change(&req.Params)
		_, ids, last, err := collect(t.Context(), e, req)
		if err != nil || !slices.Equal(ids, counting(c.from, c.n)) || last.FinishReason != c.reason {
			t.Errorf("%s: %d ids, finish %q, error %v; want %d, %q", name, len(ids), last.FinishReason, err, c.n, c.reason)
		}
	}
	if exec.bursts == 0 {
		t.Error("there were no bursts")
	}
}

// TestUndecidedTokensAreTheHosts gives rows that the device cannot decide.
func TestUndecidedTokensAreTheHosts(t *testing.T) {
	exec := &fakeExec{unsure: true}
	e := newFake(t, exec, 64)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			from := int32(100 * (i + 1))
			if _, ids, _, err := collect(t.Context(), e, greedy([]int32{from}, 50+i)); err != nil || !slices.Equal(ids, counting(from, 50+i)) {
				t.Errorf("ids %v, error %v", ids, err)
			}
		})
	}
	wg.Wait()
	if exec.reads == 0 || exec.bursts == 0 {
		t.Errorf("%d bursts, the logits of %d rows", exec.bursts, exec.reads)
	}
}

func TestNaNInABurstFailsItsRequestOnly(t *testing.T) {
	exec := &fakeExec{nan: 130}
	e := newFake(t, exec, 64)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, ids, _, err := collect(t.Context(), e, greedy([]int32{100}, 50)); !errors.Is(err, sample.ErrNaN) || len(ids) != 29 {
			t.Errorf("%d ids, error %v", len(ids), err)
		}
	})
	wg.Go(func() {
		if _, ids, _, err := collect(t.Context(), e, greedy([]int32{500}, 100)); err != nil || !slices.Equal(ids, counting(500, 100)) {
			t.Errorf("the other: %d ids, error %v", len(ids), err)
		}
	})
	wg.Wait()
}

func TestFailedBurstFailsItsRequestsOnly(t *testing.T) {
	broken := errors.New("broken")
	exec := &fakeExec{}
	exec.fail = func(p *sched.Plan) error {
		if p.Chunks[0].Seq.Tokens[0] == 7 && exec.bursts > 4 {
			return broken
		}
		return nil
	}
	e := newFake(t, exec, 64)
	if _, _, _, err := collect(t.Context(), e, greedy([]int32{7}, 400)); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if _, ids, _, err := collect(t.Context(), e, greedy([]int32{8}, 100)); err != nil || !slices.Equal(ids, counting(8, 100)) {
		t.Errorf("the next request: %d ids, error %v", len(ids), err)
	}
}

// TestSomebodyComesDuringBursts sees that a new request does not wait for the end of another's answer.
func TestSomebodyComesDuringBursts(t *testing.T) {
	exec := &fakeExec{delay: 300 * time.Microsecond}
	e := newFake(t, exec, 256)
	long := make(chan int, 1)
	started := make(chan struct{})
	go func() {
		n, req := 0, greedy([]int32{100}, 3000)
		req.Params.IgnoreEOS = true
		for ev, err := range e.Generate(context.Background(), req) {
			if err != nil {
				t.Error(err)
			}
			if n += len(ev.TokenIDs); n == 100 {
				close(started)
			}
		}
		long <- n
	}()
	<-started
	_, ids, _, err := collect(t.Context(), e, greedy([]int32{500}, 20))
	if err != nil || !slices.Equal(ids, counting(500, 20)) {
		t.Errorf("ids %v, error %v", ids, err)
	}
	select {
	case <-long:
		t.Error("the long answer ended first")
	default:
	}
	if n := <-long; n != 3000 {
		t.Errorf("the long answer has %d tokens", n)
	}
}

// crowd asks for answers of the given lengths at once, and checks each. Some of them end with the id 2, before their length.
func crowd(t *testing.T, e *Engine, lengths []int, early func(i int) bool) {
	t.Helper()
	var wg sync.WaitGroup
	for i, n := range lengths {
		wg.Go(func() {
			req, from := greedy([]int32{int32(10 + i)}, n), int32(10+i)
			if early(i) {
				from = int32(fakeVocab + 2 - n) // the last of n ids is 2
				req = greedy([]int32{from}, 3*n)
			}
			if _, ids, _, err := collect(t.Context(), e, req); err != nil || !slices.Equal(ids, counting(from, n)) {
				t.Errorf("answer %d of %d ids: %v, error %v", i, n, ids, err)
			}
		})
	}
	wg.Wait()
}

// whileOthersWait has f told how many steps are under way after each burst that begins while somebody waits, and counts rows of theirs
// that are computed in vain.
func whileOthersWait(e *Engine, exec *fakeExec, f func(steps int)) (vain *int) {
	before := 0
	vain = new(int)
	exec.ahead = func(steps int) {
		if len(e.loop.sched.Waiting()) > 0 {
			f(steps)
			*vain += exec.vain - before
		}
		before = exec.vain
	}
	return vain
}

// TestBurstsWhileOthersWait has more answers than seats. Steps go on in bursts, few are under way while somebody waits, and no
// seat stays empty when an answer has its length.
func TestBurstsWhileOthersWait(t *testing.T) {
	lengths := []int{90, 83, 97, 71, 88, 93, 79, 101, 64, 85, 92, 77}
	most, crowded := 0, 0
	exec := &fakeExec{delay: 50 * time.Microsecond}
	e := newFake(t, exec, 64)
	e.loop.bursts.flights = nativeFlights
	vain := whileOthersWait(e, exec, func(steps int) { most, crowded = max(most, steps), crowded+1 })
	crowd(t, e, lengths, func(int) bool { return false })
	if most > queueSteps || crowded == 0 || *vain > 0 {
		t.Errorf("%d bursts while somebody waited, up to %d steps under way, %d rows of steps in vain", crowded, most, *vain)
	}
	// 12 answers of 85 tokens on 4 seats are 255 steps, with a step or two for who comes and goes.
	if t.Logf("%d single steps and %d bursts", exec.steps, exec.bursts); exec.steps > 60 || exec.bursts > 180 {
		t.Errorf("%d single steps and %d bursts", exec.steps, exec.bursts)
	}
}

// TestSeatsAreEmptyForAShortTime has answers end with a token while others wait for their seats.
func TestSeatsAreEmptyForAShortTime(t *testing.T) {
	lengths := slices.Repeat([]int{60, 45, 52}, 8)
	exec := &fakeExec{delay: 50 * time.Microsecond}
	e := newFake(t, exec, 64)
	e.loop.bursts.flights = nativeFlights
	crowded := 0
	vain := whileOthersWait(e, exec, func(int) { crowded++ })
	crowd(t, e, lengths, func(i int) bool { return i%3 > 0 })
	if most := len(lengths) * (queueSteps - 1); crowded == 0 || *vain > most {
		t.Errorf("%d bursts while somebody waited, %d rows of steps in vain, want %d at most", crowded, *vain, most)
	}
}

// TestBurstsWithoutRoom has the queue wait for blocks while seats are free.
func TestBurstsWithoutRoom(t *testing.T) {
	exec := &fakeExec{delay: 50 * time.Microsecond}
	e := newFake(t, exec, 8) // 128 tokens
	most, crowded := 0, 0
	whileOthersWait(e, exec, func(steps int) {
		if !e.loop.sched.Full() {
			most, crowded = max(most, steps), crowded+1
		}
	})
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			prompt := counting(int32(100*i), 40)
			_, ids, _, err := collect(t.Context(), e, greedy(prompt, 30))
			if err != nil || !slices.Equal(ids, counting(prompt[39], 30)) {
				t.Errorf("ids %v, error %v", ids, err)
			}
		})
	}
	wg.Wait()
	if most > queueSteps || crowded == 0 {
		t.Errorf("%d bursts while somebody waited for blocks, up to %d steps under way", crowded, most)
	}
}

// TestLongStepsFollowEachOther has all seats taken: then a step that takes a while has the next one behind it. Software adapters compute
// single steps.
func TestLongStepsFollowEachOther(t *testing.T) {
	for _, c := range []struct {
		hardware bool
		delay    time.Duration
		bursts   bool
	}{{true, burstTime * 5 / 4, true}, {true, 3 * burstTime, false}, {false, burstTime * 5 / 8, false}} {
		exec := &fakeExec{delay: c.delay}
		most := 0
		exec.ahead = func(steps int) { most = max(most, steps) }
		e := newFake(t, exec, 64)
		e.loop.hardware, e.loop.bursts.flights = c.hardware, nativeFlights
		crowd(t, e, []int{12, 12, 12, 12}, func(int) bool { return false })
		if (exec.bursts > 0) != c.bursts || most > nativeFlights {
			t.Errorf("hardware %v, steps of %v: %d bursts, %d steps under way", c.hardware, c.delay, exec.bursts, most)
		}
	}
}

// TestBurstsUnderPressure lets many answers come, go and be cancelled over a pool that they do not fit.
func TestBurstsUnderPressure(t *testing.T) {
	for seed := range uint64(4) {
		exec := &fakeExec{unsure: seed%2 == 1}
		e := newFake(t, exec, 24)
		rng := rand.New(rand.NewPCG(seed, 1))
		var wg sync.WaitGroup
		for range 40 {
			from, n, cut := int32(10+rng.IntN(500)), 1+rng.IntN(150), rng.IntN(200)
			pause := time.Duration(rng.IntN(2000)) * time.Microsecond
			wg.Go(func() {
				time.Sleep(pause)
				var ids []int32
				for ev, err := range e.Generate(t.Context(), greedy([]int32{from}, n)) {
					if err != nil {
						t.Errorf("error %v", err)
					}
					if ids = append(ids, ev.TokenIDs...); len(ids) > cut {
						break
					}
				}
				if want := counting(from, n); !slices.Equal(ids, want[:min(len(ids), n)]) || len(ids) < min(n, cut) {
					t.Errorf("from %d: %d of %d ids, cut after %d: %v", from, len(ids), n, cut, ids)
				}
			})
		}
		wg.Wait()
	}
}
