//go:build cgo && !js

package wgpunative

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/pagelight/pagelight/internal/gpu"
)

// A program implements gpu.Program: commands in C memory, ready to be replayed, and whom they need.
type program struct {
	d         *device
	label     string
	commands  *C.pl_command
	count     int
	pipelines map[*pipeline]struct{}
	groups    map[*bindGroup]struct{}
	buffers   map[*buffer]struct{}
	mappable  []*buffer // those that can be fetched
	checked   uint64    // d.deaths when all buffers were last seen alive
	released  bool
}

// NewProgram implements gpu.Device. It checks all that the library would check, since an invalid submit is fatal there.
func (d *device) NewProgram(label string, commands []gpu.Command) (gpu.Program, error) {
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	p := &program{
		d: d, label: label, count: len(commands), checked: d.deaths,
		pipelines: map[*pipeline]struct{}{}, groups: map[*bindGroup]struct{}{}, buffers: map[*buffer]struct{}{},
	}
	native := make([]C.pl_command, len(commands))
	for i, c := range commands {
		var err error
		if c.Pipeline != nil || c.BindGroup != nil {
			err = p.dispatch(&native[i], c)
		} else {
			err = p.copy(&native[i], c)
		}
		if err != nil {
			return nil, fmt.Errorf("program %q: command %d: %w", label, i, err)
		}
	}
	if len(native) > 0 {
		p.commands = (*C.pl_command)(C.calloc(C.size_t(len(native)), C.sizeof_pl_command))
		copy(unsafe.Slice(p.commands, len(native)), native)
	}
	for b := range p.buffers {
		if b.mapping != nil {
			p.mappable = append(p.mappable, b)
		}
	}
	for x := range p.pipelines {
		x.users++
	}
	for g := range p.groups {
		g.users++
	}
	d.keep(p)
	return p, nil
}

func (p *program) dispatch(to *C.pl_command, c gpu.Command) error {
	x, ok := c.Pipeline.(*pipeline)
	if !ok || x == nil || x.d != p.d || x.released {
		return fmt.Errorf("%w: the pipeline is missing, released or of another device", gpu.ErrInvalid)
	}
	g, ok := c.BindGroup.(*bindGroup)
	if !ok || g == nil || g.d != p.d || g.released {
		return fmt.Errorf("%w: %s: the bind group is missing, released or of another device", gpu.ErrInvalid, x.label)
	}
	if x.layout != g.layout {
		return fmt.Errorf("%w: bind group %q does not have the layout of pipeline %s", gpu.ErrInvalid, g.label, x.label)
	}
	for _, n := range c.Grid {
		if n == 0 || int64(n) > int64(p.d.limits.MaxWorkgroupsPerDim) {
			return fmt.Errorf("%w: %s: a grid of %v workgroups; each must be 1 to %d", gpu.ErrInvalid, x.label, c.Grid,
				p.d.limits.MaxWorkgroupsPerDim)
		}
	}
	for _, b := range g.buffers {
		if b.released {
			return fmt.Errorf("%w: %s: buffer %q of bind group %q is released", gpu.ErrInvalid, x.label, b.label, g.label)
		}
		p.buffers[b] = struct{}{}
	}
	p.pipelines[x] = struct{}{}
	p.groups[g] = struct{}{}
	to.pipeline, to.group = x.raw, g.raw
	to.x, to.y, to.z = C.uint32_t(c.Grid[0]), C.uint32_t(c.Grid[1]), C.uint32_t(c.Grid[2])
	return nil
}

func (p *program) copy(to *C.pl_command, c gpu.Command) error {
	src, err := p.d.use(c.CopySrc, gpu.UsageCopySrc, "UsageCopySrc")
	if err == nil {
		err = src.within(c.CopySrcOffset, c.CopySize)
	}
	if err != nil {
		return fmt.Errorf("copy from: %w", err)
	}
	dst, err := p.d.use(c.CopyDst, gpu.UsageCopyDst, "UsageCopyDst")
	if err == nil {
		err = dst.within(c.CopyDstOffset, c.CopySize)
	}
	if err != nil {
		return fmt.Errorf("copy to: %w", err)
	}
	if src == dst {
		return fmt.Errorf("%w: copy within buffer %q", gpu.ErrInvalid, src.label)
	}
	if c.CopySize == 0 {
		return fmt.Errorf("%w: copy of no bytes", gpu.ErrInvalid)
	}
	p.buffers[src] = struct{}{}
	p.buffers[dst] = struct{}{}
	to.src, to.src_offset = src.raw, C.uint64_t(c.CopySrcOffset)
	to.dst, to.dst_offset = dst.raw, C.uint64_t(c.CopyDstOffset)
	to.size = C.uint64_t(c.CopySize)
	return nil
}

// Release implements gpu.Program.
func (p *program) Release() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if p.released {
		return
	}
	p.released = true
	for x := range p.pipelines {
		x.leave()
	}
	for g := range p.groups {
		g.leave()
	}
	if p.d.Err() == nil {
		p.d.drop(p)
	}
}

// native is the commands as C has them.
func (p *program) native() []C.pl_command { return unsafe.Slice(p.commands, p.count) }

func (p *program) free() { C.free(unsafe.Pointer(p.commands)) }

// ready says whether p can be submitted to d now.
func (p *program) ready(d *device) error {
	if p.d != d {
		return fmt.Errorf("%w: program %q is of another device", gpu.ErrInvalid, p.label)
	}
	if p.released {
		return fmt.Errorf("%w: program %q is released", gpu.ErrInvalid, p.label)
	}
	if d.fetching > 0 {
		for _, b := range p.mappable {
			if b.fetch != nil {
				return fmt.Errorf("program %q: %w", p.label, b.busy())
			}
		}
	}
	if p.checked == d.deaths {
		return nil
	}
	for b := range p.buffers {
		if b.released {
			return fmt.Errorf("%w: program %q needs buffer %q, which is released", gpu.ErrInvalid, p.label, b.label)
		}
	}
	p.checked = d.deaths
	return nil
}

// Submit implements gpu.Device: one encoder, one command buffer and one call into C, whatever the number of programs.
func (d *device) Submit(programs ...gpu.Program) error {
	if err := d.lock(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	d.batch = d.batch[:0]
	for _, x := range programs {
		p, ok := x.(*program)
		if !ok || p == nil {
			return fmt.Errorf("submit: %w: not a program of this driver", gpu.ErrInvalid)
		}
		if err := p.ready(d); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		if p.count > 0 {
			d.batch = append(d.batch, C.pl_program{commands: p.commands, count: C.size_t(p.count)})
		}
	}
	var first *C.pl_program
	if len(d.batch) > 0 {
		first = &d.batch[0]
	}
	C.pl_submit(d.raw, d.queue, first, C.size_t(len(d.batch)), d.cerr)
	if err := d.failed("submit"); err != nil {
		return err
	}
	d.staged = 0
	return nil
}
