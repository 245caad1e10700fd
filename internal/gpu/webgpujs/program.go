//go:build js && wasm

package webgpujs

import (
	"context"
	"fmt"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu"
)

type program struct {
	d        *Device
	id       any // an int, boxed once for Submit
	released bool
}

func (p *program) Release() {
	if p.released {
		return
	}
	p.released = true
	p.d.f.releaseProgram.Invoke(p.id)
}

// NewProgram records commands; Submit then replays them with one call.
func (d *Device) NewProgram(label string, commands []gpu.Command) (gpu.Program, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	list := make([]float64, 0, 6*len(commands))
	for i, cmd := range commands {
		var err error
		if cmd.Pipeline != nil {
			list, err = d.appendDispatch(list, cmd)
		} else {
			list, err = d.appendCopy(list, cmd)
		}
		if err != nil {
			return nil, fmt.Errorf("program %q, command %d: %w", label, i, err)
		}
	}
	d.numbers(list)
	return &program{d: d, id: d.f.newProgram.Invoke(label, len(list)).Int()}, nil
}

func (d *Device) appendDispatch(list []float64, cmd gpu.Command) ([]float64, error) {
	p, ok := cmd.Pipeline.(*pipeline)
	if !ok || p.d != d || p.released {
		return nil, invalid("dispatch of a pipeline of another device, or one that was released")
	}
	g, ok := cmd.BindGroup.(*bindGroup)
	switch {
	case !ok || g.d != d || g.released:
		return nil, invalid("dispatch of %s with a bind group of another device, or one that was released", p.label)
	case g.kinds != p.kinds:
		return nil, invalid("dispatch of %s: its layout is %q, that of the bind group %q", p.label, p.kinds, g.kinds)
	}
	for _, n := range cmd.Grid {
		if n == 0 || int(n) > d.limits.MaxWorkgroupsPerDim {
			return nil, invalid("dispatch of %s with a grid of %v workgroups", p.label, cmd.Grid)
		}
	}
	return append(list, float64(p.id), float64(g.id), float64(cmd.Grid[0]), float64(cmd.Grid[1]), float64(cmd.Grid[2]), 0), nil
}

func (d *Device) appendCopy(list []float64, cmd gpu.Command) ([]float64, error) {
	src, err := d.own(cmd.CopySrc, gpu.UsageCopySrc, "copy")
	if err != nil {
		return nil, err
	}
	dst, err := d.own(cmd.CopyDst, gpu.UsageCopyDst, "copy")
	if err != nil {
		return nil, err
	}
	if err := src.checkRange("copy", cmd.CopySrcOffset, cmd.CopySize); err != nil {
		return nil, err
	}
	if err := dst.checkRange("copy", cmd.CopyDstOffset, cmd.CopySize); err != nil {
		return nil, err
	}
	if src == dst {
		return nil, invalid("copy within buffer %q", src.label)
	}
	return append(list, 0, float64(src.id), float64(cmd.CopySrcOffset), float64(dst.id), float64(cmd.CopyDstOffset),
		float64(cmd.CopySize)), nil
}

// Submit replays programs.
func (d *Device) Submit(programs ...gpu.Program) error {
	if err := d.Err(); err != nil {
		return err
	}
	d.args = d.args[:0]
	for _, p := range programs {
		p, ok := p.(*program)
		if !ok || p.d != d || p.released {
			return invalid("submission of a program of another device, or one that was released")
		}
		d.args = append(d.args, p.id)
	}
	d.f.submit.Invoke(d.args...)
	return nil
}

// Read copies from a buffer that the device has finished with. A fault of an earlier Submit is returned here, and what was
// read is not.
func (d *Device) Read(ctx context.Context, src gpu.Buffer, offset int64, dst []byte) error {
	if err := d.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := d.own(src, gpu.UsageMapRead, "read")
	if err != nil {
		return err
	}
	if offset < 0 || offset > b.size-int64(len(dst)) {
		return invalid("read of %d bytes at %d of buffer %q (%d bytes)", len(dst), offset, b.label, b.size)
	}
	if len(dst) == 0 {
		return d.Wait(ctx)
	}
	if d.readSize < len(dst) {
		d.readSize = max(64<<10, nextPow2(len(dst)))
		d.readScratch = d.f.growRead.Invoke(d.readSize)
	}
	c := make(chan result, 1)
	token := d.expect(c)
	d.f.read.Invoke(token, b.id, float64(offset), len(dst))
	r, err := d.await(ctx, c, token, func() { d.f.cancelRead.Invoke(token, b.id) })
	if err != nil {
		return err
	}
	if err := r.err("read of buffer " + b.label); err != nil {
		return err
	}
	d.staged = 0
	js.CopyBytesToGo(dst, d.readScratch)
	return nil
}

// Wait returns when everything submitted is done, with the fault of an earlier Submit if there was one.
func (d *Device) Wait(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := make(chan result, 1)
	token := d.expect(c)
	d.f.wait.Invoke(token)
	r, err := d.await(ctx, c, token, func() { d.f.forget.Invoke(token) })
	if err != nil {
		return err
	}
	d.staged = 0
	return r.err("wait")
}
