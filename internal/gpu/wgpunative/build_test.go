//go:build cgo && !js

package wgpunative_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

// adders are kernels that differ, so that no compiler has seen them before.
func adders(n int) []gpu.PipelineDesc {
	descs := make([]gpu.PipelineDesc, n)
	for i := range descs {
		descs[i] = gpu.PipelineDesc{
			Label: fmt.Sprintf("add %d", i), Kernel: "add_one", Layout: readWrite,
			Source: strings.Replace(addOne, "+ 1u", fmt.Sprintf("+ %du", i+1), 1),
		}
	}
	return descs
}

// TestCompilingWhileTheDeviceIsUsed writes and runs while kernels are compiled; the kernels are right, and so is what ran.
func TestCompilingWhileTheDeviceIsUsed(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 64)
	descs := adders(12)
	b, err := d.(gpu.Compiler).StartPipelines(descs)
	check(t, err)
	if _, err := d.(gpu.Compiler).StartPipelines(descs); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a second build at the same time: %v", err)
	}
	big := must[gpu.Buffer](t)(d.NewBuffer("big", 8<<20, gpu.UsageCopyDst|gpu.UsageStorage))
	data := bytes.Repeat([]byte{7}, 8<<20)
	for range 20 {
		check(t, d.WriteBuffer(big, 0, data))
		check(t, d.Submit(r.step))
	}
	if _, err := d.NewBuffer("none", -1, gpu.UsageStorage); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a buffer of no size while compiling: %v", err)
	}
	labels := 0
	made, err := b.Wait(t.Context(), func(string) { labels++ })
	check(t, err)
	if len(made) != len(descs) || labels != len(descs) {
		t.Fatalf("%d pipelines, told of %d; want %d", len(made), labels, len(descs))
	}
	want := uint32(20)
	for i, p := range made {
		program := must[gpu.Program](t)(d.NewProgram("add", []gpu.Command{{Pipeline: p, BindGroup: r.group, Grid: [3]uint32{1, 1, 1}}}))
		check(t, d.Submit(program))
		want += uint32(i + 1)
	}
	check(t, d.Submit(r.fetch))
	got := make([]uint32, 64)
	check(t, d.Read(t.Context(), r.out, 0, gpu.Bytes(got)))
	if got[0] != want || got[63] != want {
		t.Errorf("%d and %d, want %d", got[0], got[63], want)
	}
}

// TestBuildNamesTheBrokenKernel, whoever was told of the error; the device works on.
func TestBuildNamesTheBrokenKernel(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 64)
	for round := range 4 {
		descs := adders(8)
		descs[3+round] = gpu.PipelineDesc{Label: "the bad one", Kernel: "add_one", Layout: readWrite, Source: "@compute fn nonsense"}
		b, err := d.(gpu.Compiler).StartPipelines(descs)
		check(t, err)
		for range 50 { // some of these may be told of it instead
			_ = d.WriteBuffer(r.data, 0, make([]byte, 256))
		}
		if _, err := b.Wait(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the bad one") || d.Err() != nil {
			t.Fatalf("round %d: %v, device %v", round, err, d.Err())
		}
	}
	check(t, d.WriteBuffer(r.data, 0, make([]byte, 256)))
	check(t, d.Submit(r.step, r.fetch))
	got := make([]uint32, 1)
	check(t, d.Read(t.Context(), r.out, 0, gpu.Bytes(got)))
	if got[0] != 1 {
		t.Errorf("afterwards %d, want 1", got[0])
	}
}

// TestBuildGivenUp: by its context, or by closing the device.
func TestBuildGivenUp(t *testing.T) {
	d := gputest.Open(t)
	b, err := d.(gpu.Compiler).StartPipelines(adders(30))
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if made, err := b.Wait(ctx, nil); made != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%d pipelines, %v", len(made), err)
	}
	compile(t, d, "add_one", addOne, readWrite)
	_, err = d.(gpu.Compiler).StartPipelines(adders(30))
	check(t, err)
	d.Close()
	if !errors.Is(d.Err(), gpu.ErrDeviceLost) {
		t.Errorf("closed: %v", d.Err())
	}
}
