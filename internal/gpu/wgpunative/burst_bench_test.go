//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

// sums has the bindings of a kernel of a model: six buffers that are read and one that is written.
const sums = `
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> c: array<u32>;
@group(0) @binding(3) var<storage, read> d: array<u32>;
@group(0) @binding(4) var<storage, read> e: array<u32>;
@group(0) @binding(5) var<storage, read> f: array<u32>;
@group(0) @binding(6) var<storage, read_write> g: array<u32>;
@compute @workgroup_size(64) fn sum(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i < arrayLength(&g)) { g[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i]; }
}`

// step makes a program of n dispatches that each read what the one before wrote, every one with a bind group of its own.
func step(t testing.TB, d gpu.Device, n int) gpu.Program {
	t.Helper()
	layout := []gpu.BindingKind{
		gpu.BindRead, gpu.BindRead, gpu.BindRead, gpu.BindRead, gpu.BindRead, gpu.BindRead, gpu.BindReadWrite,
	}
	pipelines := []gpu.Pipeline{compile(t, d, "sum", sums, layout), compile(t, d, "sum", sums, layout)}
	buffers := make([]gpu.Buffer, 7)
	for i := range buffers {
		buffers[i] = must[gpu.Buffer](t)(d.NewBuffer("b", 4096, gpu.UsageStorage))
	}
	commands := make([]gpu.Command, n)
	for i := range commands {
		var bindings []gpu.Binding
		for j := range layout {
			bindings = append(bindings, gpu.Binding{Buffer: buffers[(i+j+1)%len(buffers)]})
		}
		group := must[gpu.BindGroup](t)(d.NewBindGroup("g", layout, bindings))
		commands[i] = gpu.Command{Pipeline: pipelines[i%2], BindGroup: group, Grid: [3]uint32{16, 1, 1}}
	}
	return must[gpu.Program](t)(d.NewProgram("step", commands))
}

// BenchmarkBurst is what bursts of 1 to 16 steps of 92 dispatches cost the processor, and what they take.
func BenchmarkBurst(b *testing.B) {
	const dispatches = 92
	d := gputest.Open(b)
	p := step(b, d, dispatches)
	for _, steps := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			var programs []gpu.Program
			for range steps {
				programs = append(programs, p)
			}
			submitting := time.Duration(0)
			for b.Loop() {
				start := time.Now()
				check(b, d.Submit(programs...))
				submitting += time.Since(start)
				check(b, d.Wait(context.Background()))
			}
			each := float64(b.N * steps)
			b.ReportMetric(float64(submitting.Nanoseconds())/each/1e3, "submit-us/step")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/each/1e3, "us/step")
		})
	}
}

// BenchmarkPipelinedFetch keeps two bursts of 8 steps in flight and reads 4 bytes of each back: time above that of the steps alone
// is what the GPU waits for the processor.
func BenchmarkPipelinedFetch(b *testing.B) {
	d := gputest.Open(b)
	r := newRig(b, d, 1)
	p := step(b, d, 92)
	var outs [2]gpu.Buffer
	var copies [2]gpu.Program
	for i := range outs {
		outs[i] = must[gpu.Buffer](b)(d.NewBuffer("out", 4, gpu.UsageMapRead|gpu.UsageCopyDst))
		copies[i] = must[gpu.Program](b)(d.NewProgram("copy", []gpu.Command{{CopySrc: r.data, CopyDst: outs[i], CopySize: 4}}))
	}
	var pending [2]gpu.Fetch
	got := make([]byte, 4)
	n := 0
	for b.Loop() {
		i := n % 2
		n++
		if pending[i] != nil {
			check(b, pending[i].Wait(context.Background(), got))
		}
		check(b, d.Submit(p, p, p, p, p, p, p, p, copies[i]))
		pending[i] = must[gpu.Fetch](b)(d.Fetch(outs[i], 4))
	}
	for _, f := range pending {
		if f != nil {
			check(b, f.Wait(context.Background(), got))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(8*b.N)/1e3, "us/step")
}

// BenchmarkNotice is how long after the end of work of some length a wait for it returns.
func BenchmarkNotice(b *testing.B) {
	d := gputest.Open(b)
	profiler, ok := d.(gpu.Profiler)
	if !ok {
		b.Skip("no profiler")
	}
	r := newRig(b, d, 64)
	spin := gpu.Command{Pipeline: compile(b, d, "spin", spins, readWrite), BindGroup: r.group, Grid: [3]uint32{1, 1, 1}}
	for _, dispatches := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("spins=%d", dispatches), func(b *testing.B) {
			commands := make([]gpu.Command, dispatches)
			for i := range commands {
				commands[i] = spin
			}
			p := must[gpu.Program](b)(d.NewProgram("spins", commands))
			times, err := profiler.Profile(context.Background(), p, 3)
			if err != nil {
				b.Skip(err)
			}
			device := int64(0)
			for _, ns := range times {
				device += ns
			}
			for b.Loop() {
				check(b, d.Submit(p))
				check(b, d.Wait(context.Background()))
			}
			b.ReportMetric(float64(device)/1e3, "device-us")
			b.ReportMetric((float64(b.Elapsed().Nanoseconds())/float64(b.N)-float64(device))/1e3, "over-us")
		})
	}
}
