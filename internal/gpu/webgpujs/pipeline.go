//go:build js && wasm

package webgpujs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu"
)

type pipeline struct {
	d        *Device
	label    string
	kinds    string
	id       int
	released bool
}

func (p *pipeline) Release() {
	if p.released {
		return
	}
	p.released = true
	p.d.f.releasePipeline.Invoke(p.id)
}

// kindsOf writes a layout as gpu.js wants it: one letter a binding.
func kindsOf(layout []gpu.BindingKind) string {
	b := make([]byte, len(layout))
	for i, k := range layout {
		b[i] = "urw"[k]
	}
	return string(b)
}

// NewPipelines compiles all kernels at the same time.
func (d *Device) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(string)) ([]gpu.Pipeline, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := d.StartPipelines(descs)
	if err != nil {
		return nil, err
	}
	return b.Wait(ctx, done)
}

// build implements gpu.Build.
type build struct {
	d     *Device
	descs []gpu.PipelineDesc
	c     chan result
	index map[int]int // token -> place in descs, of what has not come
	made  []gpu.Pipeline
}

// StartPipelines implements gpu.Compiler: the browser compiles on threads of its own.
func (d *Device) StartPipelines(descs []gpu.PipelineDesc) (gpu.Build, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	b := &build{d: d, descs: descs, c: make(chan result, len(descs)), index: make(map[int]int, len(descs)), made: make([]gpu.Pipeline, len(descs))}
	for i, desc := range descs {
		token := d.expect(b.c)
		b.index[token] = i
		d.f.newPipeline.Invoke(token, kindsOf(desc.Layout), desc.Label, desc.Kernel, desc.Source)
	}
	return b, nil
}

// Wait implements gpu.Build.
func (b *build) Wait(ctx context.Context, done func(string)) ([]gpu.Pipeline, error) {
	failures := make([]error, len(b.descs))
	for len(b.index) > 0 {
		select {
		case r := <-b.c:
			i := b.index[r.token]
			delete(b.index, r.token)
			if r.code != codeOK {
				failures[i] = r.err("kernel " + b.descs[i].Label)
				continue
			}
			b.made[i] = &pipeline{d: b.d, label: b.descs[i].Label, kinds: kindsOf(b.descs[i].Layout), id: r.value}
			if done != nil {
				done(b.descs[i].Label)
			}
		case <-ctx.Done():
			return b.giveUp(ctx.Err())
		case <-b.d.lost:
			return b.giveUp(b.d.Err())
		}
	}
	if err := errors.Join(append(failures, ctx.Err())...); err != nil {
		return b.giveUp(err)
	}
	return b.made, nil
}

// giveUp frees what has come and forgets the rest.
func (b *build) giveUp(err error) ([]gpu.Pipeline, error) {
	for token := range b.index {
		b.d.drop(token)
		b.d.f.forget.Invoke(token)
	}
	for len(b.c) > 0 { // came, and was not looked at
		if r := <-b.c; r.code == codeOK {
			b.d.f.releasePipeline.Invoke(r.value)
		}
	}
	for _, p := range b.made {
		if p != nil {
			p.Release()
		}
	}
	return nil, err
}

type bindGroup struct {
	d        *Device
	kinds    string
	id       int
	released bool
}

func (g *bindGroup) Release() {
	if g.released {
		return
	}
	g.released = true
	g.d.f.releaseBindGroup.Invoke(g.id)
}

// numbers passes a list of numbers to gpu.js, which finds them in the write scratch.
func (d *Device) numbers(list []float64) {
	bytes := make([]byte, 0, 8*len(list))
	for _, v := range list {
		bytes = binary.LittleEndian.AppendUint64(bytes, math.Float64bits(v))
	}
	js.CopyBytesToJS(d.stage(len(bytes)), bytes)
}

// NewBindGroup binds buffers. What the browser finds wrong beyond the checks made here comes from the next Read or Wait.
func (d *Device) NewBindGroup(label string, layout []gpu.BindingKind, bindings []gpu.Binding) (gpu.BindGroup, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	if len(layout) != len(bindings) {
		return nil, invalid("bind group %q has %d bindings for a layout of %d", label, len(bindings), len(layout))
	}
	list := make([]float64, 0, 3*len(bindings))
	for i, bind := range bindings {
		usage, limit := gpu.UsageStorage, d.limits.MaxStorageBinding
		if layout[i] == gpu.BindUniform {
			usage, limit = gpu.UsageUniform, d.limits.MaxUniformBinding
		}
		what := fmt.Sprintf("bind group %q: binding %d", label, i)
		b, err := d.own(bind.Buffer, usage, what)
		if err != nil {
			return nil, err
		}
		size := bind.Size
		if size == 0 {
			size = b.size - bind.Offset
		}
		if err := b.checkRange(what, bind.Offset, size); err != nil {
			return nil, err
		}
		switch {
		case size == 0:
			return nil, invalid("%s is empty", what)
		case bind.Offset%int64(d.limits.OffsetAlignment) != 0:
			return nil, invalid("%s: offset %d is no multiple of %d", what, bind.Offset, d.limits.OffsetAlignment)
		case size > limit:
			return nil, invalid("%s: %d bytes of buffer %q, the largest binding is %d", what, size, b.label, limit)
		}
		list = append(list, b.number(), float64(bind.Offset), float64(size))
	}
	d.numbers(list)
	kinds := kindsOf(layout)
	return &bindGroup{d: d, kinds: kinds, id: d.f.newBindGroup.Invoke(label, kinds, len(list)).Int()}, nil
}
