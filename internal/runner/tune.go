package runner

import (
	"context"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
)

// tuneContext is the position of the tokens of the steps that are timed: the length of a short chat.
const tuneContext = 255

// Tune times the variants of kernels with the model's own weights. It is to be called before any step, for what is in the cache is
// overwritten. Software adapters and Deterministic have nothing to choose.
func (r *Runner) Tune(ctx context.Context, budget time.Duration) ([]kernels.Measured, error) {
	t := kernels.Tuner{
		Set: r.set, Budget: budget, Prepare: func(rows, positions int) error { return r.tuneStep(rows, positions, true) },
		Time: func(ctx context.Context, p gpu.Program) (time.Duration, error) {
			return r.time(ctx, p, 4*time.Millisecond, 3)
		},
	}
	return t.Run(ctx)
}

// The measures of a Tuner that works between steps. Its clock is a browser's, which goes in steps of 0.1 ms and learns of the end of
// work some 0.2 ms late; a request may have to wait for idleRun.
const (
	idleRun   = 6 * time.Millisecond // that a program is run again and again
	idleRuns  = 3                    // of which the shortest counts
	idleBytes = 64 << 10
)

// Tuner times the variants of kernels for single tokens between steps. It stores nothing in the cache.
type Tuner struct {
	r *Runner
	t kernels.Tuner
}

// NewTuner makes a Tuner of the choices that only names.
func (r *Runner) NewTuner(only func(key string) bool) *Tuner {
	return &Tuner{r, kernels.Tuner{
		Set: r.set, Bytes: idleBytes, Prepare: func(rows, positions int) error { return r.tuneStep(rows, positions, false) },
		Time: func(ctx context.Context, p gpu.Program) (time.Duration, error) {
			return r.time(ctx, p, idleRun, idleRuns)
		},
		Only: func(key string, rows int) bool { return rows <= kernels.FusedRows && only(key) },
	}}
}

// Choices are the keys that are left to measure.
func (t *Tuner) Choices() []string { return t.t.Choices() }

// Run measures until all is done or ctx ends; then it can be called again after any number of steps.
func (t *Tuner) Run(ctx context.Context) ([]kernels.Measured, error) {
	defer t.r.in.forget()
	return t.t.Run(ctx)
}

// tuneStep writes a step of rows rows: tokens of as many sequences as there may be, or of one when there are more. Contexts are at most
// positions long if that is not 0. Nothing is stored in the cache unless store says so.
func (r *Runner) tuneStep(rows, positions int, store bool) error {
	length := min(tuneContext+1, r.limits.MaxModelLen, r.limits.NumBlocks*kvcache.BlockSize)
	if positions > 0 {
		length = min(length, positions)
	}
	own := rows <= r.limits.MaxSeqs
	if !own {
		length = min(max(rows, length), r.limits.MaxModelLen, r.limits.NumBlocks*kvcache.BlockSize)
	}
	tokens := make([]uint32, 0, 4*rows)
	for i := range rows {
		slot := uint32(i % length)
		if !store {
			slot = kernels.NoSlot
		}
		if own {
			tokens = append(tokens, 0, uint32(length-1), slot, uint32(i))
		} else {
			tokens = append(tokens, 0, uint32(i%length), slot, 0)
		}
	}
	tables := make([]uint32, min(rows, r.limits.MaxSeqs)*r.fwd.MaxBlocksPerSeq)
	for i := range tables {
		if block := i % r.fwd.MaxBlocksPerSeq; block < r.limits.NumBlocks {
			tables[i] = uint32(block)
		}
	}
	index := make([]uint32, min(rows, r.limits.MaxLogits))
	step := make([]uint32, 2*model.StepSlot/4)
	step[0], step[model.StepSlot/4] = uint32(rows), uint32(rows)
	for _, w := range []struct {
		to   gpu.Buffer
		data []uint32
	}{{r.fwd.Tokens, tokens}, {r.fwd.BlockTables, tables}, {r.fwd.LogitRows, index}, {r.fwd.Step, step}} {
		if err := r.dev.WriteBuffer(w.to, 0, gpu.Bytes(w.data)); err != nil {
			return err
		}
	}
	return nil
}

// time is the shortest of some times that a program takes when it runs again and again, for about as long as each says.
func (r *Runner) time(ctx context.Context, p gpu.Program, each time.Duration, times int) (best time.Duration, err error) {
	const most = 256
	run := func(n int) (time.Duration, error) {
		list := make([]gpu.Program, n)
		for i := range list {
			list[i] = p
		}
		if err := r.dev.Wait(ctx); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := r.dev.Submit(list...); err != nil {
			return 0, err
		}
		err := r.dev.Wait(ctx)
		return time.Since(start) / time.Duration(n), err
	}
	once, err := run(2)
	if err != nil {
		return 0, err
	}
	n := int(min(max(each/max(once, 1), 1), most))
	for i := range times {
		took, err := run(n)
		if err != nil {
			return 0, err
		}
		if i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
