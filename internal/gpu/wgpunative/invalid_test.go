//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

// Each of these would end the process, or corrupt a later call, if it reached the library. After them all the device works.
func TestInvalidUseIsAnError(t *testing.T) {
	d, other := gputest.Open(t), gputest.Open(t)
	r, foreign := newRig(t, d, 256), newRig(t, other, 256)
	limits := d.Limits()
	buffer := func(size int64, usage gpu.Usage) gpu.Buffer {
		return must[gpu.Buffer](t)(d.NewBuffer("b", size, usage))
	}
	uniform := buffer(256, gpu.UsageUniform)
	storage := buffer(4096, gpu.UsageStorage)
	plain := buffer(256, gpu.UsageCopySrc)
	dead := buffer(256, gpu.UsageStorage|gpu.UsageCopySrc|gpu.UsageCopyDst)
	dead.Release()
	bind := func(kinds []gpu.BindingKind, bindings ...gpu.Binding) error {
		_, err := d.NewBindGroup("g", kinds, bindings)
		return err
	}
	program := func(c gpu.Command) error {
		_, err := d.NewProgram("p", []gpu.Command{c})
		return err
	}
	grid := func(x, y, z uint32) error {
		return program(gpu.Command{Pipeline: r.pipeline, BindGroup: r.group, Grid: [3]uint32{x, y, z}})
	}
	newBuffer := func(size int64, usage gpu.Usage) error {
		_, err := d.NewBuffer("b", size, usage)
		return err
	}
	read := func(b gpu.Buffer, offset int64, n int) error {
		return d.Read(context.Background(), b, offset, make([]byte, n))
	}
	one := [3]uint32{1, 1, 1}
	write := []gpu.BindingKind{gpu.BindReadWrite, gpu.BindReadWrite}
	mixed := []gpu.BindingKind{gpu.BindRead, gpu.BindReadWrite}
	tooMany := make([]gpu.BindingKind, limits.MaxStorageBuffers+1)
	for i := range tooMany {
		tooMany[i] = gpu.BindRead
	}
	many := make([]gpu.Binding, len(tooMany))
	for i := range many {
		many[i] = gpu.Binding{Buffer: storage}
	}
	wrongGroup := must[gpu.BindGroup](t)(d.NewBindGroup("u", []gpu.BindingKind{gpu.BindUniform}, []gpu.Binding{{Buffer: uniform}}))
	lateGroup := must[gpu.BindGroup](t)(d.NewBindGroup("late", readWrite, []gpu.Binding{{Buffer: storage}}))
	lateGroup.Release()

	for name, err := range map[string]error{
		"buffer of no size":          newBuffer(0, gpu.UsageStorage),
		"buffer of no use":           newBuffer(4, 0),
		"buffer of unknown use":      newBuffer(4, 1<<20),
		"mapped buffer of other use": newBuffer(4, gpu.UsageMapRead|gpu.UsageStorage),

		"write without use":       d.WriteBuffer(storage, 0, make([]byte, 4)),
		"write past the end":      d.WriteBuffer(r.data, 1024, make([]byte, 4)),
		"write before the start":  d.WriteBuffer(r.data, -4, make([]byte, 4)),
		"write unaligned":         d.WriteBuffer(r.data, 2, make([]byte, 4)),
		"write of unaligned size": d.WriteBuffer(r.data, 0, make([]byte, 3)),
		"write to released":       d.WriteBuffer(dead, 0, make([]byte, 4)),
		"write to foreign":        d.WriteBuffer(foreign.data, 0, make([]byte, 4)),
		"write to nil":            d.WriteBuffer(nil, 0, make([]byte, 4)),

		"read without use":          read(r.data, 0, 4),
		"read past the end":         read(r.out, 1020, 8),
		"read at a negative offset": read(r.out, -1, 4),

		"bind too few":            bind(readWrite),
		"bind too many":           bind(tooMany, many...),
		"bind unknown kind":       bind([]gpu.BindingKind{9}, gpu.Binding{Buffer: storage}),
		"bind without use":        bind(readWrite, gpu.Binding{Buffer: uniform}),
		"bind copy buffer":        bind(readWrite, gpu.Binding{Buffer: plain}),
		"bind storage as uniform": bind([]gpu.BindingKind{gpu.BindUniform}, gpu.Binding{Buffer: storage}),
		"bind released":           bind(readWrite, gpu.Binding{Buffer: dead}),
		"bind foreign":            bind(readWrite, gpu.Binding{Buffer: foreign.data}),
		"bind unaligned offset":   bind(readWrite, gpu.Binding{Buffer: storage, Offset: 4}),
		"bind past the end":       bind(readWrite, gpu.Binding{Buffer: storage, Offset: 2048, Size: 4096}),
		"bind at the end":         bind(readWrite, gpu.Binding{Buffer: storage, Offset: 4096}),
		"bind overflow":           bind(readWrite, gpu.Binding{Buffer: storage, Offset: 256, Size: 1<<63 - 4}),
		"read and read_write":     bind(mixed, gpu.Binding{Buffer: storage, Size: 256}, gpu.Binding{Buffer: storage, Offset: 2048}),
		"overlapping writes":      bind(write, gpu.Binding{Buffer: storage, Size: 512}, gpu.Binding{Buffer: storage, Offset: 256}),

		"grid of 0":              grid(1, 0, 1),
		"grid too large":         grid(uint32(limits.MaxWorkgroupsPerDim)+1, 1, 1),
		"dispatch, no group":     program(gpu.Command{Pipeline: r.pipeline, Grid: one}),
		"dispatch, no pipeline":  program(gpu.Command{BindGroup: r.group, Grid: one}),
		"dispatch, other layout": program(gpu.Command{Pipeline: r.pipeline, BindGroup: wrongGroup, Grid: one}),
		"dispatch, foreign":      program(gpu.Command{Pipeline: foreign.pipeline, BindGroup: foreign.group, Grid: one}),
		"dispatch, released":     program(gpu.Command{Pipeline: r.pipeline, BindGroup: lateGroup, Grid: one}),

		"copy of nothing":       program(gpu.Command{}),
		"copy of no bytes":      program(gpu.Command{CopySrc: r.data, CopyDst: r.out}),
		"copy without use":      program(gpu.Command{CopySrc: storage, CopyDst: r.out, CopySize: 4}),
		"copy to without use":   program(gpu.Command{CopySrc: r.data, CopyDst: plain, CopySize: 4}),
		"copy within":           program(gpu.Command{CopySrc: r.data, CopyDst: r.data, CopyDstOffset: 512, CopySize: 4}),
		"copy unaligned":        program(gpu.Command{CopySrc: r.data, CopyDst: r.out, CopySize: 6}),
		"copy unaligned offset": program(gpu.Command{CopySrc: r.data, CopyDst: r.out, CopySrcOffset: 1, CopySize: 4}),
		"copy past the end":     program(gpu.Command{CopySrc: r.data, CopyDst: r.out, CopySize: 1028}),
		"copy past the other":   program(gpu.Command{CopySrc: r.data, CopyDst: r.out, CopyDstOffset: 1024, CopySize: 4}),
		"copy from released":    program(gpu.Command{CopySrc: dead, CopyDst: r.out, CopySize: 4}),
		"submit foreign":        d.Submit(foreign.step),
		"submit nil":            d.Submit(nil),
	} {
		if !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	check(t, d.Submit(r.step, r.fetch))
	if err := read(r.out, 0, 4); err != nil {
		t.Errorf("the device after all that: %v", err)
	}
}

func TestProgramOfReleasedThings(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 256)
	check(t, d.Submit(r.step))
	// Pipelines and bind groups stay alive for the programs that have them.
	r.pipeline.Release()
	r.pipeline.Release()
	r.group.Release()
	check(t, d.Submit(r.step, r.fetch))
	got := make([]byte, 4)
	check(t, d.Read(context.Background(), r.out, 0, got))
	if n := gputest.As[uint32](got)[0]; n != 2 {
		t.Errorf("got %d, want 2", n)
	}
	// A buffer does not: its memory is wanted back. Work that needs it may still be running.
	check(t, d.Submit(r.step))
	r.data.Release()
	r.data.Release()
	for _, p := range []gpu.Program{r.step, r.fetch} {
		if err := d.Submit(p); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), `"data"`) {
			t.Errorf("got %v, want ErrInvalid and the buffer's name", err)
		}
	}
	r.step.Release()
	r.step.Release()
	if err := d.Submit(r.step); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a released program: got %v, want ErrInvalid", err)
	}
	check(t, d.Wait(context.Background()))
}

// Faults that only the library sees, when it records, come back as errors and do not reach the queue.
func TestFaultFoundWhileRecording(t *testing.T) {
	d := gputest.Open(t)
	source := `struct Big { a: array<vec4<u32>, 64> }
		@group(0) @binding(0) var<storage, read_write> big: Big;
		@compute @workgroup_size(1) fn main() { big.a[0] = vec4<u32>(1u); }`
	p := compile(t, d, "main", source, readWrite)
	small := must[gpu.Buffer](t)(d.NewBuffer("small", 256, gpu.UsageStorage))
	g := must[gpu.BindGroup](t)(d.NewBindGroup("small", readWrite, []gpu.Binding{{Buffer: small}}))
	program := must[gpu.Program](t)(d.NewProgram("p", []gpu.Command{{Pipeline: p, BindGroup: g, Grid: [3]uint32{1, 1, 1}}}))
	for range 3 {
		if err := d.Submit(program); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("256 bytes for a struct of 1,024: got %v, want ErrInvalid", err)
		}
	}
	r := newRig(t, d, 1)
	check(t, d.Submit(r.step))
	check(t, d.Wait(context.Background()))
}
