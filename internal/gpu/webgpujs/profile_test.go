//go:build js && wasm

package webgpujs

import (
	"context"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
)

// A command that computes 16 times as much takes longer, a copy takes none, and the program's other commands run all the same.
func TestProfile(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	busy := slowCommand(t, x)
	more := busy
	busy.Grid[0], more.Grid[0] = 4, 64
	p, err := d.NewProgram("profiled", []gpu.Command{
		busy,
		{CopySrc: x.b, CopyDst: x.back, CopySize: 4000},
		more,
		{Pipeline: x.pipeline, BindGroup: x.group, Grid: [3]uint32{16, 1, 1}},
	})
	check(t, err)
	ns, err := d.Profile(t.Context(), p, 3)
	check(t, err)
	t.Logf("%d ns", ns)
	if len(ns) != 4 || ns[1] != 0 || ns[0] <= 0 || ns[3] < 0 {
		t.Fatalf("times are %d", ns)
	}
	if ns[2] < 4*ns[0] || ns[3] > ns[0] {
		t.Errorf("16 times the work takes %d ns instead of %d, and an addition %d", ns[2], ns[0], ns[3])
	}
	x.run(t)
}

func TestProfileRefused(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	_, err := d.Profile(t.Context(), newAdder(t, open(t)).program, 1)
	wantError(t, err, gpu.ErrInvalid, "another device")
	_, err = d.Profile(t.Context(), x.program, 0)
	wantError(t, err, gpu.ErrInvalid)
	spare, err := d.NewBuffer("spare", 4000, gpu.UsageCopySrc)
	check(t, err)
	bad, err := d.NewProgram("bad", []gpu.Command{{CopySrc: spare, CopyDst: x.back, CopySize: 4000}})
	check(t, err)
	spare.Release()
	_, err = d.Profile(t.Context(), bad, 1)
	wantError(t, err, gpu.ErrInvalid, "spare")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Profile(ctx, x.program, 1)
	wantError(t, err, context.Canceled)
	x.run(t)
}
