package cpu

import (
	"context"
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
)

// pipeline implements gpu.Pipeline.
type pipeline struct {
	dev      *Device
	desc     gpu.PipelineDesc
	kernel   kernel
	released bool
}

// Release implements gpu.Pipeline.
func (p *pipeline) Release() { p.released = true }

// NewPipelines implements gpu.Device.
func (d *Device) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(string)) ([]gpu.Pipeline, error) {
	list := make([]gpu.Pipeline, len(descs))
	for i, desc := range descs {
		if err := d.Err(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		k, ok := kernels[desc.Kernel]
		if !ok {
			return nil, invalid("pipeline %q: no kernel is named %q", desc.Label, desc.Kernel)
		}
		if !slices.Equal(k.layout, desc.Layout) {
			return nil, invalid("pipeline %q: layout %v, kernel %s has %v", desc.Label, desc.Layout, desc.Kernel, k.layout)
		}
		if _, err := k.make(desc.Consts); err != nil {
			return nil, invalid("pipeline %q: kernel %s: %v", desc.Label, desc.Kernel, err)
		}
		list[i] = &pipeline{dev: d, desc: desc, kernel: k}
		if done != nil {
			done(desc.Label)
		}
	}
	return list, nil
}

// binding is a range of a buffer, in words.
type binding struct {
	buffer   *buffer
	from, to int64
	kind     gpu.BindingKind
}

// bindGroup implements gpu.BindGroup.
type bindGroup struct {
	dev      *Device
	label    string
	layout   []gpu.BindingKind
	bindings []binding
	released bool
}

// Release implements gpu.BindGroup.
func (g *bindGroup) Release() { g.released = true }

// NewBindGroup implements gpu.Device.
func (d *Device) NewBindGroup(label string, layout []gpu.BindingKind, bindings []gpu.Binding) (gpu.BindGroup, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	if len(layout) != len(bindings) {
		return nil, invalid("bind group %q: %d bindings for a layout of %d", label, len(bindings), len(layout))
	}
	g := &bindGroup{dev: d, label: label, layout: slices.Clone(layout), bindings: make([]binding, len(bindings))}
	storage := 0
	for i, b := range bindings {
		what := fmt.Sprintf("bind group %q: binding %d", label, i)
		usage, most := gpu.UsageStorage, d.limits.MaxStorageBinding
		switch layout[i] {
		case gpu.BindUniform:
			usage, most = gpu.UsageUniform, d.limits.MaxUniformBinding
		case gpu.BindRead, gpu.BindReadWrite:
			storage++
		default:
			return nil, invalid("%s: unknown kind %d", what, layout[i])
		}
		own, err := d.buffer(what, b.Buffer, usage)
		if err != nil {
			return nil, err
		}
		size := b.Size
		if size == 0 {
			size = own.size - b.Offset
		}
		if err := own.checkRange(what, b.Offset, size); err != nil {
			return nil, err
		}
		switch {
		case b.Offset%int64(d.limits.OffsetAlignment) != 0:
			return nil, invalid("%s: offset %d is not a multiple of %d", what, b.Offset, d.limits.OffsetAlignment)
		case size == 0:
			return nil, invalid("%s: buffer %q: nothing is left at offset %d", what, own.label, b.Offset)
		case size > most:
			return nil, invalid("%s: buffer %q: %d bytes exceed the limit of %d", what, own.label, size, most)
		}
		g.bindings[i] = binding{buffer: own, from: b.Offset / 4, to: (b.Offset + size) / 4, kind: layout[i]}
	}
	if storage > d.limits.MaxStorageBuffers {
		return nil, invalid("bind group %q: %d storage buffers, the limit is %d", label, storage, d.limits.MaxStorageBuffers)
	}
	return g, g.checkAliases()
}

// checkAliases enforces the rules of WebGPU's usage scopes: a buffer that a dispatch writes has no other use in it, and
// is written through distinct ranges.
func (g *bindGroup) checkAliases() error {
	for i, a := range g.bindings {
		for j, b := range g.bindings[:i] {
			writeA, writeB := a.kind == gpu.BindReadWrite, b.kind == gpu.BindReadWrite
			switch {
			case a.buffer != b.buffer || !writeA && !writeB:
			case writeA != writeB:
				return invalid("bind group %q: buffer %q is both read and written, by bindings %d and %d", g.label, a.buffer.label, j, i)
			case a.from < b.to && b.from < a.to:
				return invalid("bind group %q: bindings %d and %d write the same bytes of buffer %q", g.label, j, i, a.buffer.label)
			}
		}
	}
	return nil
}

// program implements gpu.Program.
type program struct {
	dev      *Device
	label    string
	commands []command
	released bool
}

// command is a dispatch, or a copy when pipeline is nil.
type command struct {
	pipeline *pipeline
	group    *bindGroup
	phases   []phase // of the kernel, with its own arguments

	src, dst         *buffer
	srcFrom, dstFrom int64 // words
	count            int64 // words
}

// Release implements gpu.Program.
func (p *program) Release() { p.released = true }

// NewProgram implements gpu.Device.
func (d *Device) NewProgram(label string, commands []gpu.Command) (gpu.Program, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	p := &program{dev: d, label: label, commands: make([]command, len(commands))}
	for i, c := range commands {
		what := fmt.Sprintf("program %q: command %d", label, i)
		var err error
		if c.Pipeline != nil {
			p.commands[i], err = d.dispatch(what, c)
		} else {
			p.commands[i], err = d.copy(what, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, p.check()
}

// dispatch checks a dispatch and prepares it.
func (d *Device) dispatch(what string, c gpu.Command) (command, error) {
	p, ok := c.Pipeline.(*pipeline)
	if !ok || p.dev != d {
		return command{}, invalid("%s: not a pipeline of this device", what)
	}
	g, ok := c.BindGroup.(*bindGroup)
	if !ok || g == nil || g.dev != d {
		return command{}, invalid("%s: %s: not a bind group of this device", what, p.desc.Label)
	}
	if !slices.Equal(p.desc.Layout, g.layout) {
		return command{}, invalid("%s: bind group %q has layout %v, pipeline %q has %v", what, g.label, g.layout, p.desc.Label, p.desc.Layout)
	}
	for _, n := range c.Grid {
		if n == 0 || int64(n) > int64(d.limits.MaxWorkgroupsPerDim) {
			return command{}, invalid("%s: %s: grid %v, each element is 1 to %d", what, p.desc.Label, c.Grid, d.limits.MaxWorkgroupsPerDim)
		}
	}
	phases, err := p.kernel.make(p.desc.Consts)
	return command{pipeline: p, group: g, phases: phases}, err
}

// copy checks a copy.
func (d *Device) copy(what string, c gpu.Command) (command, error) {
	src, err := d.buffer(what+": copy", c.CopySrc, gpu.UsageCopySrc)
	if err != nil {
		return command{}, err
	}
	dst, err := d.buffer(what+": copy", c.CopyDst, gpu.UsageCopyDst)
	if err != nil {
		return command{}, err
	}
	if src == dst {
		return command{}, invalid("%s: copy of buffer %q onto itself", what, src.label)
	}
	if err := src.checkRange(what+": copy from", c.CopySrcOffset, c.CopySize); err != nil {
		return command{}, err
	}
	if err := dst.checkRange(what+": copy to", c.CopyDstOffset, c.CopySize); err != nil {
		return command{}, err
	}
	return command{src: src, dst: dst, srcFrom: c.CopySrcOffset / 4, dstFrom: c.CopyDstOffset / 4, count: c.CopySize / 4}, nil
}

// check finds what has been released since.
func (p *program) check() error {
	if p.released {
		return invalid("program %q has been released", p.label)
	}
	for i := range p.commands {
		c := &p.commands[i]
		gone := ""
		if c.pipeline == nil && c.dst.fetch != nil {
			// Only a copy can write a buffer that can be fetched.
			if err := c.dst.checkFetch(fmt.Sprintf("program %q: command %d", p.label, i)); err != nil {
				return err
			}
		}
		switch {
		case c.pipeline == nil && c.src.released:
			gone = c.src.label
		case c.pipeline == nil:
			if c.dst.released {
				gone = c.dst.label
			}
		case c.pipeline.released:
			gone = c.pipeline.desc.Label
		case c.group.released:
			gone = c.group.label
		default:
			for j := range c.group.bindings {
				if b := c.group.bindings[j].buffer; b.released {
					gone = b.label
				}
			}
		}
		if gone != "" {
			return invalid("program %q: command %d: %q has been released", p.label, i, gone)
		}
	}
	return nil
}

// run executes the commands in order. It returns early, without an error, when the pool is stopped.
func (p *program) run(pool *pool) error {
	for i := range p.commands {
		c := &p.commands[i]
		if pool.stop.Load() {
			return nil
		}
		if c.pipeline == nil {
			copy(c.dst.words[c.dstFrom:][:c.count], c.src.words[c.srcFrom:][:c.count])
			continue
		}
		if err := pool.dispatch(c.group.bindings, c.phases); err != nil {
			return invalid("program %q: command %d: %s: bind group %q: %v", p.label, i, c.pipeline.desc.Label, c.group.label, err)
		}
	}
	return nil
}
