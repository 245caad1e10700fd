package runner

import (
	"context"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/sched"
)

// Taps are the places where the linear layers of the model's trunk read their inputs, in the order in which a step reaches them.
func (r *Runner) Taps() []model.Tap { return r.fwd.Taps }

// StepTaps runs the trunk for a plan and stops at the taps that want takes, to give their inputs to fn: [rows, K], valid until fn
// returns. It ends after the last of them, so the plan's keys and values are whole only up to there. It is for calibration:
// programs are recorded anew and every tap is read back.
func (r *Runner) StepTaps(ctx context.Context, p *sched.Plan, want func(t model.Tap) bool, fn func(t model.Tap, rows []float32) error) error {
	if err := r.in.write(r.dev, r.fwd, p); err != nil {
		return err
	}
	// With more rows than that no layer norms its inputs itself, so that taps show what it multiplies.
	rows := bucket(max(p.NumTokens, min(kernels.NormRows+1, r.limits.MaxTokens)), r.limits.MaxTokens)
	from := 0
	for _, t := range r.fwd.Taps {
		if !want(t) {
			continue
		}
		out, err := r.readTap(ctx, t, from, rows)
		if err != nil {
			return err
		}
		if err := fn(t, out[:p.NumTokens*t.K]); err != nil {
			return err
		}
		from = t.Op
	}
	return nil
}

// readTap runs the ops from one tap to the next and reads what the latter shows.
func (r *Runner) readTap(ctx context.Context, t model.Tap, from, rows int) (_ []float32, err error) {
	size := 4 * int64(rows) * int64(t.K)
	back, err := r.dev.NewBuffer("tap to read", size, gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		return nil, memoryError("tap", size, err)
	}
	defer back.Release()
	cmds := append(record(nil, r.fwd.Trunk[from:t.Op], rows), gpu.Command{CopySrc: t.X, CopyDst: back, CopySize: size})
	program, err := r.dev.NewProgram(fmt.Sprintf("trunk from op %d to op %d", from, t.Op), cmds)
	if err != nil {
		return nil, err
	}
	defer program.Release()
	if err := r.dev.Submit(program); err != nil {
		return nil, err
	}
	out := make([]float32, rows*t.K)
	return out, r.dev.Read(ctx, back, 0, gpu.Bytes(out))
}
