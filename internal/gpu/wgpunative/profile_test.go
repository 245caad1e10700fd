//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

func TestProfile(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 4096)
	ctx := context.Background()
	spin := gpu.Command{Pipeline: compile(t, d, "spin", spins, readWrite), BindGroup: r.group, Grid: r.dispatch().Grid}
	fetch := gpu.Command{CopySrc: r.data, CopyDst: r.out, CopySize: r.out.Size()}
	p := must[gpu.Program](t)(d.NewProgram("profiled", []gpu.Command{r.dispatch(), spin, fetch, r.dispatch()}))
	times, err := d.(gpu.Profiler).Profile(ctx, p, 2)
	if errors.Is(err, gpu.ErrNoTimestamps) {
		t.Skip(err)
	}
	check(t, err)
	t.Logf("%v ns", times)
	if len(times) != 4 || times[2] != 0 {
		t.Fatalf("got %v, want four times, that of the copy 0", times)
	}
	for _, i := range []int{0, 3} {
		if times[i] <= 0 || 10*times[i] > times[1] {
			t.Errorf("an addition took %d ns and 60,000 steps of a loop %d", times[i], times[1])
		}
	}
	// The times are those of a clock: a long kernel's is near what the wait for it takes.
	start := time.Now()
	gputest.Submit(t, d, spin)
	check(t, d.Wait(ctx))
	if took := time.Since(start).Nanoseconds(); times[1] > 4*took || took > 40*times[1] {
		t.Errorf("profiled %d ns, waited for it %d ns", times[1], took)
	}
	// It ran the program as often as it should, a first time included.
	got := make([]byte, r.out.Size())
	check(t, d.Submit(r.fetch))
	check(t, d.Read(ctx, r.out, 0, got))
	x := uint32(0)
	for range 3 {
		x = advance(x+1, 60000) + 1
	}
	x = advance(x, 60000) // the one that was waited for
	if w := gputest.As[uint32](got)[0]; w != x {
		t.Errorf("got %d, want %d", w, x)
	}
}

func TestProfileOfManyCommands(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 64)
	ctx := context.Background()
	commands := make([]gpu.Command, 2500) // more than one set of queries
	for i := range commands {
		commands[i] = r.dispatch()
	}
	p := must[gpu.Program](t)(d.NewProgram("many", commands))
	times, err := d.(gpu.Profiler).Profile(ctx, p, 1)
	if errors.Is(err, gpu.ErrNoTimestamps) {
		t.Skip(err)
	}
	check(t, err)
	for i, ns := range times {
		if ns <= 0 || ns > 1e9 {
			t.Fatalf("command %d took %d ns", i, ns)
		}
	}
	if _, err := d.(gpu.Profiler).Profile(ctx, p, 0); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("no repetition: got %v, want ErrInvalid", err)
	}
	p.Release()
	if _, err := d.(gpu.Profiler).Profile(ctx, p, 1); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a released program: got %v, want ErrInvalid", err)
	}
	empty := must[gpu.Program](t)(d.NewProgram("empty", nil))
	if times, err := d.(gpu.Profiler).Profile(ctx, empty, 1); err != nil || len(times) != 0 {
		t.Errorf("no commands: got %v, %v", times, err)
	}
}
