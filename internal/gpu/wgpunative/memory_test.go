//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

func TestBufferBeyondAllLimits(t *testing.T) {
	d := gputest.Open(t)
	for _, size := range []int64{d.Limits().MaxBufferSize + 1, 1 << 50, 1<<63 - 1} {
		if size < 0 {
			continue // the device knows no limit
		}
		if _, err := d.NewBuffer("huge", size, gpu.UsageStorage); !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("%d bytes: got %v, want ErrOutOfMemory", size, err)
		}
	}
	r := newRig(t, d, 1)
	check(t, d.Submit(r.step))
	check(t, d.Wait(context.Background()))
}

func TestSubmitsDoNotLeak(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 1024)
	if residentKB(t) == 0 {
		t.Skip("the memory in use is not known here")
	}
	got := make([]byte, 4)
	steps := func(n int) {
		for range n {
			check(t, d.WriteBuffer(r.data, 4, gputest.Words[uint32](1)))
			check(t, d.Submit(r.step, r.fetch))
			check(t, d.Read(context.Background(), r.out, 0, got))
		}
	}
	steps(500) // pools fill up
	before := residentKB(t)
	steps(2000)
	if grown := residentKB(t) - before; grown > 4<<10 {
		t.Errorf("2,000 submits: %d KB more in use", grown)
	}
	if w := gputest.As[uint32](got)[0]; w != 2500 {
		t.Errorf("got %d, want 2,500", w)
	}
}

// Objects that are made and released do not add up either.
func TestObjectsDoNotLeak(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 1024)
	if residentKB(t) == 0 {
		t.Skip("the memory in use is not known here")
	}
	rounds := func(n int) {
		for range n {
			b := must[gpu.Buffer](t)(d.NewBuffer("b", 1<<20, gpu.UsageStorage))
			g := must[gpu.BindGroup](t)(d.NewBindGroup("g", readWrite, []gpu.Binding{{Buffer: b}}))
			gputest.Submit(t, d, gpu.Command{Pipeline: r.pipeline, BindGroup: g, Grid: [3]uint32{1 << 10, 1, 1}})
			b.Release()
			g.Release()
			check(t, d.Wait(context.Background()))
		}
	}
	rounds(50)
	before := residentKB(t)
	rounds(300) // of 1 MB each
	if grown := residentKB(t) - before; grown > 16<<10 {
		t.Errorf("300 buffers of 1 MB: %d KB more in use", grown)
	}
}

// The library keeps a copy of written bytes until a submit, so a large upload must not wait for one.
func TestUploadsAreBounded(t *testing.T) {
	d := gputest.Open(t)
	if residentKB(t) == 0 {
		t.Skip("the memory in use is not known here")
	}
	const size, rounds = 32 << 20, 24
	b := must[gpu.Buffer](t)(d.NewBuffer("weights", size, gpu.UsageStorage|gpu.UsageCopySrc|gpu.UsageCopyDst))
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i>>12) ^ byte(i)
	}
	before, most := residentKB(t), 0
	for range rounds {
		check(t, d.WriteBuffer(b, 0, data))
		most = max(most, residentKB(t)-before)
	}
	// The buffer itself, and at most 64 MB and a write staged; the library keeps some of what it frees.
	if most > 192<<10 {
		t.Errorf("%d MB more in use while %d MB were written", most>>10, size*rounds>>20)
	}
	t.Logf("at most %d MB more in use", most>>10)
	if got := gputest.Read(t, d, b); string(got) != string(data) {
		t.Error("the bytes differ")
	}
}
