//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

// BenchmarkDispatch is the cost of a small dispatch that depends on the one before, in one program.
func BenchmarkDispatch(b *testing.B) {
	d := gputest.Open(b)
	r := newRig(b, d, 64)
	const n = 1000
	commands := make([]gpu.Command, n)
	for i := range commands {
		commands[i] = r.dispatch()
	}
	p := must[gpu.Program](b)(d.NewProgram("chain", commands))
	submitted := 0.0
	for b.Loop() {
		before := b.Elapsed()
		check(b, d.Submit(p))
		submitted += float64((b.Elapsed() - before).Nanoseconds())
		check(b, d.Wait(context.Background()))
	}
	each := 1e3 * float64(b.N) * n
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/each, "us/dispatch")
	b.ReportMetric(submitted/each, "encode-us/dispatch")
}

// BenchmarkReadBack is what reading 4 bytes back costs: a dispatch, a copy, the submit and the wait.
func BenchmarkReadBack(b *testing.B) {
	d := gputest.Open(b)
	r := newRig(b, d, 1)
	got := make([]byte, 4)
	for b.Loop() {
		check(b, d.Submit(r.step, r.fetch))
		check(b, d.Read(context.Background(), r.out, 0, got))
	}
}

// BenchmarkWriteAndReadBack also writes 4 bytes first, as a step of a model does.
func BenchmarkWriteAndReadBack(b *testing.B) {
	d := gputest.Open(b)
	r := newRig(b, d, 1)
	got := make([]byte, 4)
	for b.Loop() {
		check(b, d.WriteBuffer(r.data, 0, got))
		check(b, d.Submit(r.step, r.fetch))
		check(b, d.Read(context.Background(), r.out, 0, got))
	}
}

// BenchmarkUpload writes 64 MB at a time, as loading a model does.
func BenchmarkUpload(b *testing.B) {
	d := gputest.Open(b)
	data := make([]byte, 64<<20)
	dst := must[gpu.Buffer](b)(d.NewBuffer("weights", int64(len(data)), gpu.UsageStorage|gpu.UsageCopyDst))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		check(b, d.WriteBuffer(dst, 0, data))
		check(b, d.Wait(context.Background()))
	}
}
