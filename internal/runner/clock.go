package runner

import (
	"context"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Clock counts what steps have cost since the runner was opened.
type Clock struct {
	Steps      int64 `json:"steps"`
	Tokens     int64 `json:"tokens"` // of all sequences; those that a burst computed in vain count
	Submits    int64 `json:"submits"`
	Dispatches int64 `json:"dispatches"`
	ReadBacks  int64 `json:"read_backs"`
	ReadBytes  int64 `json:"read_bytes"`

	Encode time.Duration `json:"encode_ns"` // spent in writing inputs, recording and submitting
	Wait   time.Duration `json:"wait_ns"`   // spent in waiting for the device and reading back
}

// Clock tells the costs so far.
func (r *Runner) Clock() Clock { return r.clock }

// submitAll submits programs that compute tokens in steps; preparing them began at start.
func (r *Runner) submitAll(start time.Time, programs []gpu.Program, tokens, steps int) error {
	err := r.dev.Submit(programs...)
	r.clock.Encode += time.Since(start)
	r.clock.Submits++
	r.clock.Steps += int64(steps)
	r.clock.Tokens += int64(tokens)
	for _, p := range programs {
		r.clock.Dispatches += int64(r.dispatches[p])
	}
	return err
}

// read reads the beginning of src back.
func (r *Runner) read(ctx context.Context, src gpu.Buffer, dst []byte) error {
	return r.wait(func() error { return r.dev.Read(ctx, src, 0, dst) }, len(dst))
}

// wait waits for the device; bytes are read back with it.
func (r *Runner) wait(wait func() error, bytes int) error {
	start := time.Now()
	err := wait()
	r.clock.Wait += time.Since(start)
	if bytes > 0 {
		r.clock.ReadBacks++
		r.clock.ReadBytes += int64(bytes)
	}
	return err
}
