//go:build !js

// Package gputest opens devices for tests and runs single kernels on them.
package gputest

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/wgpunative"
)

// Open opens a native adapter for t and closes it at the end of t; a software adapter will do. $PAGELIGHT_ADAPTER, a part
// of a name, chooses among several. Without any adapter the test is skipped, or fails where GPU tests are required:
// REQUIRE_GPU=1 or CI=true.
func Open(t testing.TB) gpu.Device {
	t.Helper()
	return open(t, wgpunative.Options{Label: t.Name()})
}

// OpenDefaultLimits is Open with exactly the limits that WebGPU guarantees everywhere.
func OpenDefaultLimits(t testing.TB) gpu.Device {
	t.Helper()
	return open(t, wgpunative.Options{Label: t.Name(), DefaultLimits: true})
}

func open(t testing.TB, opts wgpunative.Options) gpu.Device {
	t.Helper()
	opts.Adapter = os.Getenv("PAGELIGHT_ADAPTER")
	d, err := wgpunative.Open(context.Background(), opts)
	if errors.Is(err, gpu.ErrNoAdapter) && !required() {
		t.Skipf("%v (scripts/ensure-vulkan.sh installs a software adapter)", err)
	}
	if err != nil {
		t.Fatalf("open a device: %v", err)
	}
	t.Cleanup(d.Close)
	return d
}

func required() bool { return os.Getenv("REQUIRE_GPU") == "1" || os.Getenv("CI") == "true" }

// Kernel is one WGSL kernel with its data, for Run.
type Kernel struct {
	Source string // complete WGSL
	Entry  string // the entry point; "main" when empty
	// Bindings are the contents of the bindings 0, 1, ... of group 0, in order.
	Bindings []Data
	Grid     [3]uint32 // workgroups; 0 counts as 1
}

// Data is the content of one binding.
type Data struct {
	Kind  gpu.BindingKind
	Bytes []byte // a multiple of 4
}

// Run runs k once on d and returns what its bindings hold afterwards, in their order.
func Run(t testing.TB, d gpu.Device, k Kernel) [][]byte {
	t.Helper()
	if k.Entry == "" {
		k.Entry = "main"
	}
	for i := range k.Grid {
		k.Grid[i] = max(k.Grid[i], 1)
	}
	layout := make([]gpu.BindingKind, len(k.Bindings))
	bindings := make([]gpu.Binding, len(k.Bindings))
	for i, b := range k.Bindings {
		layout[i] = b.Kind
		usage := gpu.UsageStorage
		if b.Kind == gpu.BindUniform {
			usage = gpu.UsageUniform
		}
		buf := Buffer(t, d, usage|gpu.UsageCopySrc|gpu.UsageCopyDst, b.Bytes)
		defer buf.Release()
		bindings[i] = gpu.Binding{Buffer: buf}
	}
	pipelines, err := d.NewPipelines(context.Background(),
		[]gpu.PipelineDesc{{Label: k.Entry, Kernel: k.Entry, Source: k.Source, Layout: layout}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pipelines[0].Release()
	group, err := d.NewBindGroup(k.Entry, layout, bindings)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Release()
	Submit(t, d, gpu.Command{Pipeline: pipelines[0], BindGroup: group, Grid: k.Grid})
	out := make([][]byte, len(bindings))
	for i, b := range bindings {
		out[i] = Read(t, d, b.Buffer)
	}
	return out
}

// Buffer makes a buffer that holds data. usage must have gpu.UsageCopyDst.
func Buffer(t testing.TB, d gpu.Device, usage gpu.Usage, data []byte) gpu.Buffer {
	t.Helper()
	b, err := d.NewBuffer("test", int64(len(data)), usage)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteBuffer(b, 0, data); err != nil {
		t.Fatal(err)
	}
	return b
}

// Submit runs commands once, as one program.
func Submit(t testing.TB, d gpu.Device, commands ...gpu.Command) {
	t.Helper()
	p, err := d.NewProgram("test", commands)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if err := d.Submit(p); err != nil {
		t.Fatal(err)
	}
}

// Read returns the content of b, which needs gpu.UsageCopySrc.
func Read(t testing.TB, d gpu.Device, b gpu.Buffer) []byte {
	t.Helper()
	out := make([]byte, b.Size())
	back, err := d.NewBuffer("read back", b.Size(), gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Release()
	Submit(t, d, gpu.Command{CopySrc: b, CopyDst: back, CopySize: b.Size()})
	if err := d.Read(context.Background(), back, 0, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Words is little-endian bytes of 32-bit words: uint32, int32 or float32.
func Words[T uint32 | int32 | float32](words ...T) []byte {
	out, err := binary.Append(nil, binary.LittleEndian, words)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return out
}

// As is the inverse of Words.
func As[T uint32 | int32 | float32](data []byte) []T {
	out := make([]T, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, out); err != nil {
		panic("BUG: " + err.Error())
	}
	return out
}
