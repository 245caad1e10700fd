package local

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// ledger books what an engine tells of itself. The engine's goroutine writes it; it may be read once the engine is closed.
type ledger struct {
	steps engine.StepRecord // summed up
	first int
	done  []engine.AnswerRecord
}

func (l *ledger) Step(r engine.StepRecord) {
	l.steps.PromptTokens += r.PromptTokens
	l.steps.GeneratedTokens += r.GeneratedTokens
	l.first += len(r.FirstTokens)
}

func (l *ledger) Done(r engine.AnswerRecord) { l.done = append(l.done, r) }

// crowd counts how the requests of a hammered engine ended, as those saw it who asked.
type crowd struct {
	mu                            sync.Mutex
	finished, left, full, refused int
	tokens                        int // that readers saw
}

// TestHammerOfTwoEngines has 200 goroutines ask two engines with few seats and few blocks at once. They finish, leave, run out
// of time, ask for too much and find the queue full. Who finishes gets what is got alone; then nothing is held, and all that
// counts has counted the same.
func TestHammerOfTwoEngines(t *testing.T) {
	var books [2]ledger
	var engines [2]*engine.Engine
	var crowds [2]crowd
	model := fixture(t, "goldens/ernie") // the smallest there is: the race detector makes all the rest too slow
	var prompts [][]int32
	for i, n := range []int{15, 30, 31, 46, 47} { // some answers need one block more than their prompts
		prompts = append(prompts, make([]int32, n))
		for k := range n {
			prompts[i][k] = int32(10 + (i*131+k*37)%600)
		}
	}
	const tokens = 3
	var alone [2][][]int32
	for i, kv := range []engine.KVType{engine.KVF16, engine.KVI8} {
		cfg := engine.Config{KV: kv, MaxModelLen: 64, MaxSeqs: 4, MaxBatchedTokens: 32, MaxWaiting: 20, Deterministic: true}
		cfg.GPUMemory = fewBlocks(t, "cpu", Options{Model: model, Engine: cfg}, 7)
		cfg.Observer = &books[i]
		engines[i] = open(t, "cpu", Options{Model: model, Engine: cfg})
		for _, p := range prompts {
			ids, _ := generate(t, engines[i], hammerRequest(p, tokens))
			alone[i] = append(alone[i], ids)
			crowds[i].finished++
			crowds[i].tokens += len(ids)
		}
	}
	var wg sync.WaitGroup
	for g := range 200 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 4))
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			i, p := g%2, rng.IntN(len(prompts))
			crowds[i].ask(t, engines[i], rng, hammerRequest(prompts[p], tokens), alone[i][p])
		})
	}
	wg.Wait()
	for i, eng := range engines {
		settle(t, eng)
		c := &crowds[i]
		st := eng.Stats()
		t.Logf("engine %d: %d finished, %d left, %d found the queue full, %d were refused; %d preemptions", i, c.finished, c.left, c.full, c.refused, st.Preemptions)
		if c.finished < 10 || c.left == 0 || c.refused == 0 {
			t.Errorf("engine %d: too few of one kind", i)
		}
		if err := eng.Close(); err != nil {
			t.Fatal(err)
		}
		books[i].check(t, st, c)
	}
}

func hammerRequest(ids []int32, tokens int) engine.Request {
	return engine.Request{TokenIDs: ids, Params: engine.Params{Temperature: zero(), MaxTokens: tokens, IgnoreEOS: true}}
}

// ask asks once, in one of the ways in which people ask.
func (c *crowd) ask(t *testing.T, eng *engine.Engine, rng *rand.Rand, req engine.Request, want []int32) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leaveAt, way := 0, rng.IntN(8)
	switch way {
	case 0: // asks for too much
		req.Params.MaxTokens = 100
	case 1: // may lose patience in the queue, in the prompt or in the answer
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(100))*time.Millisecond)
		defer cancel()
	case 2:
		leaveAt = 1 + rng.IntN(2)
	case 3: // two answers
		req.N = 2
	case 4: // nobody else's blocks
		req.CacheSalt = "salt"
	case 5:
		top := 1
		req.Params.PromptLogprobs = &top
	}
	var ids [2][]int32
	seen := 0
	for ev, err := range eng.Generate(ctx, req) {
		switch long := (*engine.ContextLengthError)(nil); {
		case err == nil:
		case errors.As(err, &long) && way == 0:
			c.count(&c.refused, 0)
			return
		case errors.Is(err, engine.ErrQueueFull):
			c.count(&c.full, 0)
			return
		case errors.Is(err, context.DeadlineExceeded) && way == 1:
			c.count(&c.left, 0)
			return
		default:
			t.Errorf("way %d: %v", way, err)
			return
		}
		ids[ev.Index] = append(ids[ev.Index], ev.TokenIDs...)
		if seen++; seen == leaveAt {
			c.count(&c.left, 0)
			return
		}
	}
	for _, got := range ids[:max(1, req.N)] {
		if !slices.Equal(got, want) {
			t.Errorf("way %d: %v, alone %v", way, got, want)
		}
	}
	c.count(&c.finished, len(ids[0])+len(ids[1]))
}

func (c *crowd) count(what *int, tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what++
	c.tokens += tokens
}

// settle waits until nothing runs.
func settle(t *testing.T, eng *engine.Engine) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		st := eng.Stats()
		if st.BlocksUsed == 0 && st.Running == 0 && st.Waiting == 0 && len(st.Sequences) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after everybody has left: %+v", st)
		}
	}
}

// check compares the records of an engine with its statistics and with what was seen of it.
func (l *ledger) check(t *testing.T, st engine.Stats, c *crowd) {
	t.Helper()
	var generated, cached, ends, begun int
	for _, r := range l.done {
		generated += r.GeneratedTokens
		cached += r.CachedTokens
		if r.Last && r.Err == nil {
			ends++
		}
		if r.GeneratedTokens > 0 {
			begun++
		}
	}
	for _, x := range []struct {
		what      string
		got, want int
	}{
		{"requests that ended well", int(st.Requests), ends},
		{"new tokens by answers", generated, int(st.GenerationTokens)},
		{"new tokens by steps", l.steps.GeneratedTokens, int(st.GenerationTokens)},
		{"tokens of prompts by steps", l.steps.PromptTokens, int(st.PromptTokens)},
		{"cached tokens by answers", cached, int(st.PrefixHits)},
		{"first tokens", l.first, begun},
	} {
		if x.got != x.want {
			t.Errorf("%s: %d, want %d", x.what, x.got, x.want)
		}
	}
	// Who left may have done so when the answer was complete.
	if ends < c.finished || ends > c.finished+c.left {
		t.Errorf("%d requests ended well, %d were seen to, %d left", ends, c.finished, c.left)
	}
	if generated < c.tokens {
		t.Errorf("%d new tokens, %d were seen", generated, c.tokens)
	}
	if st.PrefixHits == 0 || st.PrefixHits > st.PrefixQueries {
		t.Errorf("%d of %d tokens were cached", st.PrefixHits, st.PrefixQueries)
	}
}
