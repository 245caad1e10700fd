//go:build js && wasm

package webgpujs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu"
)

type program struct {
	d        *Device
	id       int
	commands int
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
	return &program{d: d, id: d.f.newProgram.Invoke(label, len(list)).Int(), commands: len(commands)}, nil
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
	return append(list, 0, src.number(), float64(cmd.CopySrcOffset), dst.number(), float64(cmd.CopyDstOffset), float64(cmd.CopySize)), nil
}

// Submit replays programs. It costs one call, and a second one when they are not those of the submission before; neither
// leaves anything for Go to collect.
func (d *Device) Submit(programs ...gpu.Program) error {
	if err := d.Err(); err != nil {
		return err
	}
	d.submitting = d.submitting[:0]
	for _, p := range programs {
		p, ok := p.(*program)
		if !ok || p.d != d || p.released {
			return invalid("submission of a program of another device, or one that was released")
		}
		d.submitting = binary.LittleEndian.AppendUint32(d.submitting, uint32(p.id))
	}
	if n := len(programs); d.sequenceSize < n || d.sequenceSize == 0 {
		d.sequenceSize = max(64, nextPow2(n))
		d.sequence = d.f.growSequence.Invoke(d.sequenceSize)
		d.submitted = d.submitted[:0]
	}
	if !bytes.Equal(d.submitting, d.submitted) {
		js.CopyBytesToJS(d.sequence, d.submitting)
		d.submitting, d.submitted = d.submitted, d.submitting
	}
	d.f.submit.Invoke(len(programs))
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
