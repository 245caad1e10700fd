package jinja

import (
	"context"
	"fmt"
	"time"
)

// Limits bound what rendering one template may cost. They are checked where
// the cost arises, before it is paid, so no template can exceed them by more
// than one small step.
type Limits struct {
	Steps  int64         // evaluated nodes, loop rounds, items and 64-byte units of text
	Memory int64         // bytes that may be allocated in all, freed or not
	Text   int           // bytes of any one string
	Output int           // bytes of the result
	Items  int           // of any one list that is made in the template
	Depth  int           // of evaluation: nesting, and calls of macros
	Time   time.Duration // from the start of Render
}

// DefaultLimits are far above what chat templates need (Qwen 3 with tools
// and 206 messages takes about 30,000 steps), and still end a hostile one
// in about a second. Depth is held low because WebAssembly runs on the
// browser's stack, of about 1 MB.
var DefaultLimits = Limits{
	Steps:  5_000_000,
	Memory: 128 << 20,
	Text:   2 << 20,
	Output: 1 << 20,
	Items:  200_000,
	Depth:  300,
	Time:   2 * time.Second,
}

// LimitError is the error of a template that would exceed a limit.
type LimitError struct {
	What string // "output is larger than 1048576 bytes"
}

func (e *LimitError) Error() string { return "limit exceeded: " + e.What }

func limitf(format string, args ...any) error { return &LimitError{fmt.Sprintf(format, args...)} }

// budget counts down what a run has left.
type budget struct {
	limits   Limits
	steps    int64
	memory   int64
	depth    int
	unlooked int64 // steps since the clock and the context were last looked at
	deadline time.Time
	ctx      context.Context
}

// step counts n steps.
func (b *budget) step(n int64) error {
	b.steps -= n
	if b.steps < 0 {
		return limitf("more than %d steps", b.limits.Steps)
	}
	b.unlooked += n
	if b.unlooked < 1024 {
		return nil
	}
	b.unlooked = 0
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if time.Now().After(b.deadline) {
		return limitf("more than %v", b.limits.Time)
	}
	return nil
}

// work counts the reading of n bytes of text.
func (b *budget) work(n int) error { return b.step(1 + int64(n)/64) }

// alloc counts n bytes that are about to be allocated.
func (b *budget) alloc(n int) error {
	b.memory -= int64(n)
	if b.memory < 0 {
		return limitf("more than %d bytes of memory", b.limits.Memory)
	}
	return b.work(n)
}

// text is alloc for a string of n bytes.
func (b *budget) text(n int) error {
	if n < 0 || n > b.limits.Text {
		return limitf("a string is longer than %d bytes", b.limits.Text)
	}
	return b.alloc(n)
}

// items is alloc for a list of n values.
func (b *budget) items(n int) error {
	if n < 0 || n > b.limits.Items {
		return limitf("a list has more than %d items", b.limits.Items)
	}
	return b.alloc(48 + 16*n)
}

// enter counts one level of evaluation; leave must follow if it succeeds.
func (b *budget) enter() error {
	if b.depth >= b.limits.Depth {
		return limitf("nested more than %d levels deep", b.limits.Depth)
	}
	if err := b.step(1); err != nil {
		return err
	}
	b.depth++
	return nil
}

func (b *budget) leave() { b.depth-- }
