package local

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
)

// openAsGPU opens the small model with the kernels of GPUs, on a processor that says to be one.
func openAsGPU(t *testing.T) *engine.Engine {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	src, err := OpenModel("../../internal/model/testdata/ernie", "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	info := dev.Info()
	info.Kind, info.BarrierFree = gpu.KindHardware, false
	eng, err := engine.Open(t.Context(), engine.Config{
		Device: &namedDevice{Device: dev, info: info, limits: dev.Limits()}, Source: src, GPUMemory: 64 << 20, MaxModelLen: 64,
		MaxSeqs: 4, MaxBatchedTokens: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = eng.Close() })
	return eng
}

// TestTuneIdleGivesWayToRequests: answers that come while kernels are measured are the same as ever and do not wait for the end of it,
// and all choices are measured in the end, each once.
func TestTuneIdleGivesWayToRequests(t *testing.T) {
	eng := openAsGPU(t)
	prompt := []int32{5, 77, 300, 12, 9, 41}
	answer := func() (ids []int32) {
		t.Helper()
		zero := 0.0
		req := engine.Request{TokenIDs: prompt, Params: engine.Params{MaxTokens: 8, Temperature: &zero, IgnoreEOS: true}}
		for ev, err := range eng.Generate(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, ev.TokenIDs...)
		}
		return ids
	}
	want := answer()

	type outcome struct {
		list []engine.Measured
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		list, err := eng.TuneIdle(t.Context(), func(string) bool { return false })
		ended <- outcome{list, err}
	}()
	during := 0
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		if got := answer(); !slices.Equal(got, want) {
			t.Errorf("while kernels are measured %v, before %v", got, want)
		}
		if len(ended) == 0 {
			during++
		}
	}
	if during == 0 {
		t.Error("no answer came before measuring had ended")
	}
	o := <-ended
	if o.err != nil || len(o.list) < 4 {
		t.Fatalf("%d choices were measured: %v", len(o.list), o.err)
	}
	var keys []string
	for _, m := range o.list {
		if keys = append(keys, m.Key); len(m.Times) < 2 {
			t.Errorf("%+v", m)
		}
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) != len(o.list) {
		t.Errorf("measured %v", keys)
	}
	if got := answer(); !slices.Equal(got, want) {
		t.Errorf("afterwards %v, before %v", got, want)
	}
	if list, err := eng.TuneIdle(t.Context(), func(string) bool { return true }); len(list) > 0 || err != nil {
		t.Errorf("of known choices %v, %v", list, err)
	}
}

// TestTuneIdleEnds with its context and with the engine.
func TestTuneIdleEnds(t *testing.T) {
	eng := openAsGPU(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := eng.TuneIdle(ctx, func(string) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its time: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = eng.Close() })
	if _, err := eng.TuneIdle(t.Context(), func(string) bool { return false }); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("after the engine was closed: %v", err)
	}
}
