//go:build cgo && !js && !windows

package wgpunative_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/gpu/wgpunative"
)

func TestAbortIsALostDevice(t *testing.T) {
	// Several at once, on threads of their own, beside a device that must not notice.
	healthy := gputest.Open(t)
	var devices sync.WaitGroup
	for range 4 {
		d, err := wgpunative.Open(context.Background(), wgpunative.Options{Adapter: healthy.Info().Name})
		if err != nil {
			t.Fatal(err)
		}
		devices.Go(func() { loseDevice(t, d) })
	}
	devices.Wait()
	data := gputest.Words[uint32](1, 2)
	b := gputest.Buffer(t, healthy, gpu.UsageCopySrc|gpu.UsageCopyDst, data)
	if got := gputest.Read(t, healthy, b); string(got) != string(data) {
		t.Errorf("another device: got %v, want %v", got, data)
	}
}

// The thread that saw the library give up goes on to serve the next device.
func TestReopenAfterLoss(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	loseDevice(t, gputest.Open(t))
	r := newRig(t, gputest.Open(t), 64)
	got := make([]byte, 4)
	for i := range 100 {
		check(t, r.d.Submit(r.step, r.fetch))
		check(t, r.d.Read(context.Background(), r.out, 0, got))
		if w := gputest.As[uint32](got)[0]; w != uint32(i+1) {
			t.Fatalf("got %d, want %d", w, i+1)
		}
	}
}

func loseDevice(t *testing.T, d gpu.Device) {
	ctx := context.Background()
	src, err := d.NewBuffer("src", 4, gpu.UsageCopySrc|gpu.UsageCopyDst)
	if err != nil {
		t.Error(err)
		return
	}
	dst, err := d.NewBuffer("dst", 4, gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		t.Error(err)
		return
	}
	p, err := d.NewProgram("p", []gpu.Command{{CopySrc: src, CopyDst: dst, CopySize: 4}})
	if err != nil {
		t.Error(err)
		return
	}
	select {
	case <-d.Lost():
		t.Error("lost before it is")
	default:
	}
	if err := wgpunative.LeaveMapped(dst); err != nil {
		t.Error(err)
	}
	if err := d.Submit(p); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("submit: got %v, want ErrDeviceLost", err)
	}
	select {
	case <-d.Lost():
	case <-time.After(time.Second):
		t.Error("Lost is not closed")
	}
	_, bufferErr := d.NewBuffer("b", 4, gpu.UsageStorage)
	for name, err := range map[string]error{
		"Err": d.Err(), "Submit": d.Submit(p), "Wait": d.Wait(ctx), "Read": d.Read(ctx, dst, 0, make([]byte, 4)),
		"WriteBuffer": d.WriteBuffer(dst, 0, make([]byte, 4)), "NewBuffer": bufferErr,
	} {
		if !errors.Is(err, gpu.ErrDeviceLost) {
			t.Errorf("%s: got %v, want ErrDeviceLost", name, err)
		}
	}
	p.Release()
	src.Release()
	dst.Release()
	d.Close()
	d.Close()
}

func TestCloseIsALostDevice(t *testing.T) {
	d := gputest.Open(t)
	b := gputest.Buffer(t, d, gpu.UsageCopySrc|gpu.UsageCopyDst, make([]byte, 4))
	d.Close()
	d.Close()
	<-d.Lost()
	if err := d.Err(); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("Err: got %v, want ErrDeviceLost", err)
	}
	if err := d.Submit(); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("Submit: got %v, want ErrDeviceLost", err)
	}
	b.Release()
	_, err := d.NewPipelines(context.Background(), []gpu.PipelineDesc{{}}, nil)
	if !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("NewPipelines: got %v, want ErrDeviceLost", err)
	}
}
