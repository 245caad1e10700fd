package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/sched"
)

// StepProfile says where the time of a step goes on the device.
type StepProfile struct {
	Rows int           `json:"rows"` // tokens
	Took time.Duration `json:"took"` // of the whole step, when it is submitted again and again and nothing is read; the longer of encoding and computing
	Ops  []OpProfile   `json:"ops"`
	Why  string        `json:"why,omitempty"` // reason why ops have no times
}

// OpProfile is one op of a step.
type OpProfile struct {
	Name       string        `json:"name"`
	Part       string        `json:"part"` // trunk or head, which ends with the choice of ids
	Dispatches int           `json:"dispatches"`
	Took       time.Duration `json:"took"`  // by the device's clock, each dispatch by itself
	Bytes      int64         `json:"bytes"` // that it must move at the least, contexts left out
}

// profileRepeat is how often a step is run to take each op's shortest time.
const profileRepeat = 5

// Profile runs a plan's step several times and says what each op of it takes. It picks tokens and gives them to nobody; the plan's
// keys and values are in the cache afterwards as after Step.
func (r *Runner) Profile(ctx context.Context, p *sched.Plan) (StepProfile, error) {
	if err := r.in.write(r.dev, r.fwd, p); err != nil {
		return StepProfile{}, err
	}
	rows, logits := bucket(p.NumTokens, r.limits.MaxTokens), bucket(p.NumLogits, r.limits.MaxLogits)
	key := r.trunkKey(rows)
	out := StepProfile{Rows: p.NumTokens}
	var commands []gpu.Command
	for _, part := range []struct {
		name string
		ops  []kernels.Op
		key  trunkKey
	}{{"trunk", r.fwd.Ops(key.trunk), key}, {"head", r.fwd.HeadPickOf(logits), trunkKey{rows: logits}}} {
		for i, op := range part.ops {
			made := r.recordTrunk(part.ops[i:i+1], part.key)
			commands = append(commands, made...)
			out.Ops = append(out.Ops, OpProfile{Name: op.Name(), Part: part.name, Dispatches: len(made), Bytes: op.Traffic(part.key.rows)})
		}
	}
	program, err := r.dev.NewProgram(fmt.Sprintf("profile of %d rows", rows), commands)
	if err != nil {
		return out, err
	}
	defer program.Release()
	if out.Took, err = r.steady(ctx, program); err != nil {
		return out, err
	}
	profiler, ok := r.dev.(gpu.Profiler)
	if !ok {
		out.Why = fmt.Sprintf("%s: %v", r.dev.Info().Name, gpu.ErrNoTimestamps)
		return out, nil
	}
	times, err := profiler.Profile(ctx, program, profileRepeat)
	if errors.Is(err, gpu.ErrNoTimestamps) {
		out.Why = err.Error()
		return out, nil
	}
	if err != nil {
		return out, err
	}
	for i := range out.Ops {
		op := &out.Ops[i]
		for _, ns := range times[:op.Dispatches] {
			op.Took += time.Duration(ns)
		}
		times = times[op.Dispatches:]
	}
	return out, nil
}

// steady is the time of each run of a program that follows others, encoded while those run.
func (r *Runner) steady(ctx context.Context, p gpu.Program) (time.Duration, error) {
	run := func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := r.dev.Submit(p); err != nil {
				return 0, err
			}
		}
		err := r.dev.Wait(ctx)
		return time.Since(start), err
	}
	once, err := run(1)
	if err != nil {
		return 0, err
	}
	const few = 4
	many := few + min(max(int(20*time.Millisecond/max(once, 1)), 2), 64)
	var least [2]time.Duration
	for i := range 3 {
		for j, n := range [...]int{few, many} {
			took, err := run(n)
			if err != nil {
				return 0, err
			}
			if i == 0 || took < least[j] {
				least[j] = took
			}
		}
	}
	return max(0, least[1]-least[0]) / time.Duration(many-few), nil
}
