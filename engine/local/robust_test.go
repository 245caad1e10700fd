package local

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// answer reads the greedy continuation of a prompt.
func answer(ctx context.Context, eng *engine.Engine, prompt string, tokens int) (ids []int32, err error) {
	zero := 0.0
	req := engine.Request{Prompt: &prompt, Params: engine.Params{Temperature: &zero, MaxTokens: tokens, IgnoreEOS: true}}
	for ev, err := range eng.Generate(ctx, req) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, ev.TokenIDs...)
	}
	return ids, nil
}

// TestHammer asks the real engine from many goroutines, some of which leave in the middle. Everybody else gets the tokens that
// they would get alone, and no block stays taken.
func TestHammer(t *testing.T) {
	eng := open(t, "cpu", Options{})
	prompts := []string{"Once upon a time", "The cat", "你好", "Hello! My name is"}
	const tokens = 4
	var alone [][]int32
	for _, p := range prompts {
		ids, err := answer(t.Context(), eng, p, tokens)
		if err != nil || len(ids) != tokens {
			t.Fatalf("%q: %v, %v", p, ids, err)
		}
		alone = append(alone, ids)
	}
	var wg sync.WaitGroup
	for g := range 9 {
		wg.Go(func() {
			i := g % len(prompts)
			if g%3 == 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(g)*3*time.Millisecond)
				defer cancel()
				if ids, err := answer(ctx, eng, prompts[i], 500); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("cancelled after %d tokens: %v", len(ids), err)
				}
				return
			}
			if ids, err := answer(t.Context(), eng, prompts[i], tokens); err != nil || !slices.Equal(ids, alone[i]) {
				t.Errorf("%q among others: %v, %v; alone %v", prompts[i], ids, err, alone[i])
			}
		})
	}
	wg.Wait()
	for end := time.Now().Add(5 * time.Second); eng.Stats().BlocksUsed > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d blocks are taken by nobody", eng.Stats().BlocksUsed)
		}
	}
}

// TestTwoEngines of one program know nothing of each other: one is closed while the other answers.
func TestTwoEngines(t *testing.T) {
	one, two := open(t, "cpu", Options{}), open(t, "cpu", Options{})
	want, err := answer(t.Context(), two, "Once upon a time", 4)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := answer(t.Context(), one, "Once upon a time", 1500)
		ended <- err
	}()
	for end := time.Now().Add(10 * time.Second); one.Stats().GenerationTokens == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first engine computes nothing")
		}
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, engine.ErrClosed) {
		t.Errorf("an answer of an engine that was closed ended with %v", err)
	}
	if _, err := answer(t.Context(), one, "x", 1); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a closed engine answers %v", err)
	}
	if got, err := answer(t.Context(), two, "Once upon a time", 4); err != nil || !slices.Equal(got, want) {
		t.Errorf("the other engine gives %v, %v; before it gave %v", got, err, want)
	}
}

// TestCancelWhileLoading: Open returns soon and leaves no goroutine behind.
func TestCancelWhileLoading(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, phase := range []engine.Phase{engine.PhaseUpload, engine.PhaseCompile, engine.PhaseWarmup} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Open(ctx, Options{Device: "cpu", Engine: engine.Config{Progress: func(p engine.Progress) {
			if p.Phase == phase {
				cancel()
			}
		}}})
		cancel()
		if phase == engine.PhaseWarmup && err == nil {
			t.Fatal("a context that ended during the first step did not end Open")
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in phase %s: %v", phase, err)
		}
	}
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, before it were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}
