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
	t := kernels.Tuner{Set: r.set, Budget: budget, Time: r.time, Prepare: r.tuneStep}
	return t.Run(ctx)
}

// tuneStep writes a step of rows rows: tokens of as many sequences as there may be, or of one when there are more. Contexts are at most
// positions long if that is not 0.
func (r *Runner) tuneStep(rows, positions int) error {
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
		if own {
			tokens = append(tokens, 0, uint32(length-1), uint32(i%length), uint32(i))
		} else {
			tokens = append(tokens, 0, uint32(i%length), uint32(i%length), 0)
		}
	}
	tables := make([]uint32, r.limits.MaxSeqs*r.fwd.MaxBlocksPerSeq)
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

// time is the shortest of three times that a program takes when it runs again and again, for about tuneRun each.
func (r *Runner) time(ctx context.Context, p gpu.Program) (best time.Duration, err error) {
	const tuneRun, most = 4 * time.Millisecond, 256
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
	n := int(min(max(tuneRun/max(once, 1), 1), most))
	for i := range 3 {
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
