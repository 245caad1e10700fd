//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

// spins runs 60,000 steps of a linear congruential generator (llvmpipe cuts loops off at 65,535).
const spins = `
@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@compute @workgroup_size(64) fn spin(@builtin(global_invocation_id) g: vec3<u32>) {
    var x = a[g.x];
    for (var i = 0u; i < 60000u; i++) { x = x * 1664525u + 1013904223u; }
    a[g.x] = x;
}`

// advance is what n steps of the generator make of x.
func advance(x uint32, n uint64) uint32 {
	a, c := uint32(1664525), uint32(1013904223)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			x = x*a + c
		}
		c += c * a
		a *= a
	}
	return x
}

// slow makes a program of about d of work per submit, from the speed of one dispatch.
func slow(t *testing.T, r *rig, d time.Duration) (p gpu.Program, dispatches int) {
	t.Helper()
	spin := gpu.Command{Pipeline: compile(t, r.d, "spin", spins, readWrite), BindGroup: r.group, Grid: r.dispatch().Grid}
	measure := func(n int) time.Duration {
		commands := make([]gpu.Command, n)
		for i := range commands {
			commands[i] = spin
		}
		start := time.Now()
		gputest.Submit(t, r.d, commands...)
		check(t, r.d.Wait(context.Background()))
		return time.Since(start)
	}
	measure(1)
	n := int(math.Ceil(float64(d) / float64(measure(10)/10)))
	commands := make([]gpu.Command, n)
	for i := range commands {
		commands[i] = spin
	}
	return must[gpu.Program](t)(r.d.NewProgram("slow", commands)), n
}

// The library's own wait takes work for done after 5 s and then shows zeros.
func TestWaitBeyondFiveSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 8 s")
	}
	d := gputest.Open(t)
	if d.Info().Kind != gpu.KindSoftware {
		t.Skip("would keep a real GPU busy for too long")
	}
	r := newRig(t, d, 4096)
	p, dispatches := slow(t, r, 7*time.Second)
	seed := make([]uint32, 4096)
	for i := range seed {
		seed[i] = uint32(i)
	}
	check(t, d.WriteBuffer(r.data, 0, gputest.Words(seed...)))
	got := make([]byte, 4*len(seed))
	steps := uint64(0)
	// A busy machine makes the measured speed unreliable, so there are several attempts at a submit that is long enough.
	for times := 1; ; times *= 2 {
		programs := slices.Repeat([]gpu.Program{p}, times)
		start := time.Now()
		check(t, d.Submit(append(programs, r.fetch)...))
		check(t, d.Read(context.Background(), r.out, 0, got))
		steps += 60000 * uint64(dispatches*times)
		took := time.Since(start)
		t.Logf("%d dispatches in %v", dispatches*times, took)
		if took > 5500*time.Millisecond {
			break
		}
		if times == 8 {
			t.Fatal("too short to prove anything")
		}
	}
	for i, w := range gputest.As[uint32](got) {
		if want := advance(seed[i], steps); w != want {
			t.Fatalf("word %d: got %d, want %d", i, w, want)
		}
	}
}

func TestReadGivesUpWithItsContext(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 4096)
	length := time.Second
	p, dispatches := slow(t, r, length)
	check(t, d.WriteBuffer(r.data, 0, make([]byte, 4*4096)))
	check(t, d.Submit(p, r.fetch))
	got := make([]byte, 4)
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), length/25)
		start := time.Now()
		err := d.Read(ctx, r.out, 0, got)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want context.DeadlineExceeded", err)
		}
		if took := time.Since(start); took > length/2 {
			t.Errorf("giving up took %v", took)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	// The buffer that was being read is free for the next submit, and a full read then sees everything.
	check(t, d.Submit(r.step, r.fetch))
	check(t, d.Read(context.Background(), r.out, 0, got))
	if w, want := gputest.As[uint32](got)[0], advance(0, 60000*uint64(dispatches))+1; w != want {
		t.Errorf("got %d, want %d", w, want)
	}
}

// With cogentcore/webgpu's own mapping a collection between map and poll ends the process.
func TestCollectionsDuringReads(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 64)
	stop := make(chan struct{})
	var storm sync.WaitGroup
	for range 2 {
		storm.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
	}
	got := make([]byte, 4)
	for i := range 300 {
		check(t, d.Submit(r.step, r.fetch))
		if i%2 == 0 {
			check(t, d.Read(context.Background(), r.out, 0, got))
		} else {
			f := must[gpu.Fetch](t)(d.Fetch(r.out, 4))
			runtime.Gosched()
			check(t, f.Wait(context.Background(), got))
		}
		if w := gputest.As[uint32](got)[0]; w != uint32(i+1) {
			t.Fatalf("got %d, want %d", w, i+1)
		}
	}
	close(stop)
	storm.Wait()
}
