package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/weights"
)

// passing is a device that passes for hardware, so that it draws tokens itself; its kernels are those of what it is.
type passing struct{ gpu.Device }

func (d passing) Info() gpu.Info {
	info := d.Device.Info()
	info.Kind, info.BarrierFree = gpu.KindHardware, true
	return info
}

// openTiny opens the smallest checkpoint, with up to 4 answers at once and a budget of memory, or of any size.
func openTiny(t *testing.T, dev gpu.Device, maxBurst int, budget int64) *Engine {
	t.Helper()
	src, err := weights.OpenDir("../internal/model/testdata/ernie")
	if err != nil {
		t.Fatal(err)
	}
	if budget == 0 {
		budget = 1 << 30
	}
	e, err := Open(t.Context(), Config{
		Device: dev, Source: src, KV: KVF32, GPUMemory: budget, MaxModelLen: 80, MaxSeqs: 4, MaxBatchedTokens: 32, Deterministic: true, MaxBurst: maxBurst,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	e.loop.bursts.time = time.Hour // however slow the machine is
	return e
}

// randomRequest asks for ids with parameters of every kind that changes logits, or with none of them.
func randomRequest(rng *rand.Rand) Request {
	of := func(list ...float64) *float64 { return &list[rng.IntN(len(list))] }
	prompt := make([]int32, 1+rng.IntN(30))
	for i := range prompt {
		prompt[i] = rng.Int32N(500)
	}
	seed := rng.Int64()
	p := Params{
		Seed: &seed, MaxTokens: 30 + rng.IntN(20), Temperature: of(0, 0.8, 1.2), TopP: of(1, 0.9), IgnoreEOS: rng.IntN(2) == 0,
		RepetitionPenalty: of(1, 1, 1.3, 0.8), FrequencyPenalty: of(0, 0, 0.6, -0.2), PresencePenalty: of(0, 0, 0.8, -0.5),
	}
	if rng.IntN(3) == 0 {
		p.LogitBias = map[int32]float64{rng.Int32N(500): 4, rng.Int32N(500): 2, rng.Int32N(500): -100}
	}
	if rng.IntN(3) == 0 {
		end := rng.Int32N(500)
		p.StopTokenIDs, p.MinTokens = []int32{end}, 1+rng.IntN(29)
		p.LogitBias = map[int32]float64{end: []float64{3, 60}[rng.IntN(2)]}
	}
	return Request{TokenIDs: prompt, Params: p}
}

// TestAdjustedAnswersAreTheHosts gives requests with penalties, biases and least lengths to an engine that goes on by itself, many
// at once over a cache that they do not fit, so that they are preempted and resumed in other rows. The answers must be those of an
// engine whose host chooses every token, and which has room for all.
func TestAdjustedAnswersAreTheHosts(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	open := func() gpu.Device {
		d, err := cpu.Open(cpu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	single := openTiny(t, open(), 1, 0)
	info := single.Info()
	const blocks = 7 // of 16 tokens; the longest request needs 5
	budget := info.WeightBytes + info.ScratchBytes + blocks*info.KVBytes/int64(info.NumBlocks)
	bursts := openTiny(t, passing{open()}, 16, budget)
	reqs := make([]Request, 8)
	for i := range reqs {
		reqs[i] = randomRequest(rng)
	}
	answers := func(e *Engine) []string {
		list := make([]string, len(reqs))
		var wg sync.WaitGroup
		for i, req := range reqs {
			wg.Go(func() {
				_, ids, last, err := collect(t.Context(), e, req)
				list[i] = fmt.Sprint(ids, last.FinishReason, last.StopReason, err)
			})
		}
		wg.Wait()
		return list
	}
	want := answers(single)
	for i, got := range answers(bursts) {
		if got != want[i] {
			t.Errorf("%d %+v:\ngot  %s\nwant %s", i, reqs[i].Params, got, want[i])
		}
	}
	s := bursts.Stats()
	t.Logf("%d tokens, %d preemptions, %d steps in %d submissions", s.GenerationTokens, s.Preemptions, s.Clock.Steps, s.Clock.Submits)
	if s.Preemptions < 3 || s.Clock.Submits > s.Clock.Steps*9/10 {
		t.Errorf("%d preemptions, %d steps in %d submissions", s.Preemptions, s.Clock.Steps, s.Clock.Submits)
	}
}

// TestReadingLogitsIsNotTheDevice has single steps with penalties take long because all logits are read: bursts do without.
func TestReadingLogitsIsNotTheDevice(t *testing.T) {
	exec := &fakeExec{slow: 3 * burstTime}
	e := newFake(t, exec, 64)
	penalty := 0.01
	req := greedy([]int32{100}, 200)
	req.Params.PresencePenalty = &penalty
	if _, ids, _, err := collect(t.Context(), e, req); err != nil || !slices.Equal(ids, counting(100, 200)) {
		t.Errorf("ids %v, error %v", ids, err)
	}
	if exec.steps > 4 || exec.bursts == 0 {
		t.Errorf("%d single steps and %d bursts", exec.steps, exec.bursts)
	}
}

// TestNoMemoryToChangeLogits has the device refuse it: the host goes on to choose, and the device is not asked again.
func TestNoMemoryToChangeLogits(t *testing.T) {
	for _, refuse := range []error{nil, errors.Join(gpu.ErrOutOfMemory)} {
		exec := &fakeExec{adjusts: refuse}
		e := newFake(t, exec, 64)
		e.loop.bursts.time = time.Hour
		penalty := 0.01
		req := greedy([]int32{100}, 60)
		req.Params.PresencePenalty = &penalty
		for range 2 {
			if _, ids, _, err := collect(t.Context(), e, req); err != nil || !slices.Equal(ids, counting(100, 60)) {
				t.Errorf("ids %v, error %v", ids, err)
			}
		}
		if (exec.bursts > 0) != (refuse == nil) || refuse != nil && exec.opened != 1 {
			t.Errorf("refused with %v: %d bursts, asked %d times", refuse, exec.bursts, exec.opened)
		}
	}
}
