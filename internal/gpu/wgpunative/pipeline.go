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

// A layout is what pipelines and bind groups of one []gpu.BindingKind share, so that they fit each other.
type layout struct {
	kinds    string // one byte a binding
	group    C.WGPUBindGroupLayout
	pipeline C.WGPUPipelineLayout
}

// layoutOf returns the layout for kinds, which lives as long as the device.
func (d *device) layoutOf(kinds []gpu.BindingKind) (*layout, error) {
	key := make([]byte, len(kinds))
	storage := 0
	for i, k := range kinds {
		key[i] = byte(k)
		switch k {
		case gpu.BindUniform:
		case gpu.BindRead, gpu.BindReadWrite:
			storage++
		default:
			return nil, fmt.Errorf("%w: binding %d is of unknown kind %d", gpu.ErrInvalid, i, k)
		}
	}
	if l := d.layouts[string(key)]; l != nil {
		return l, nil
	}
	if storage > d.limits.MaxStorageBuffers {
		return nil, fmt.Errorf("%w: %d storage buffers; the device has %d", gpu.ErrInvalid, storage, d.limits.MaxStorageBuffers)
	}
	l := &layout{kinds: string(key)}
	l.group = C.pl_create_bind_group_layout(d.raw, (*C.uint8_t)(unsafe.SliceData(key)), C.size_t(len(kinds)), d.cerr)
	if err := d.failed("bind group layout"); err != nil {
		return nil, err
	}
	l.pipeline = C.pl_create_pipeline_layout(d.raw, l.group, d.cerr)
	if err := d.failed("pipeline layout"); err != nil {
		if d.Err() == nil {
			C.pl_release_bind_group_layout(l.group, d.cerr)
		}
		return nil, err
	}
	d.layouts[l.kinds] = l
	return l, nil
}

// A pipeline implements gpu.Pipeline. Programs count as users too, so it may be released while one of them has it.
type pipeline struct {
	d        *device
	raw      C.WGPUComputePipeline
	layout   *layout
	label    string
	users    int
	released bool
}

// Release implements gpu.Pipeline.
func (p *pipeline) Release() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if !p.released {
		p.released = true
		p.leave()
	}
}

func (p *pipeline) leave() {
	if p.users--; p.users == 0 && p.d.Err() == nil {
		p.d.drop(p)
	}
}

func (p *pipeline) free() {
	C.pl_release_pipeline(p.raw, p.d.cerr)
	_ = p.d.failed("release pipeline")
}

// A bindGroup implements gpu.BindGroup. Programs count as users too.
type bindGroup struct {
	d        *device
	raw      C.WGPUBindGroup
	layout   *layout
	label    string
	buffers  []*buffer
	users    int
	released bool
}

// Release implements gpu.BindGroup.
func (g *bindGroup) Release() {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	if !g.released {
		g.released = true
		g.leave()
	}
}

func (g *bindGroup) leave() {
	if g.users--; g.users == 0 && g.d.Err() == nil {
		g.d.drop(g)
	}
}

func (g *bindGroup) free() {
	C.pl_release_bind_group(g.raw, g.d.cerr)
	_ = g.d.failed("release bind group")
}

// NewBindGroup implements gpu.Device.
func (d *device) NewBindGroup(label string, kinds []gpu.BindingKind, bindings []gpu.Binding) (gpu.BindGroup, error) {
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	g, err := d.newBindGroup(label, kinds, bindings)
	if err != nil {
		return nil, fmt.Errorf("bind group %q: %w", label, err)
	}
	return g, nil
}

func (d *device) newBindGroup(label string, kinds []gpu.BindingKind, bindings []gpu.Binding) (*bindGroup, error) {
	if len(kinds) != len(bindings) {
		return nil, fmt.Errorf("%w: %d bindings for a layout of %d", gpu.ErrInvalid, len(bindings), len(kinds))
	}
	l, err := d.layoutOf(kinds)
	if err != nil {
		return nil, err
	}
	n := len(bindings)
	ranges := make([]span, n)
	raw := make([]C.WGPUBuffer, n+1) // + 1: &raw[0] must exist
	offsets, sizes := make([]C.uint64_t, n+1), make([]C.uint64_t, n+1)
	buffers := make([]*buffer, n)
	for i, b := range bindings {
		if ranges[i], err = d.bindable(kinds[i], b); err == nil {
			err = conflict(ranges[:i], ranges[i])
		}
		if err != nil {
			return nil, fmt.Errorf("binding %d: %w", i, err)
		}
		r := ranges[i]
		buffers[i], raw[i], offsets[i], sizes[i] = r.buffer, r.buffer.raw, C.uint64_t(r.start), C.uint64_t(r.end-r.start)
	}
	name := C.CString(label)
	defer C.free(unsafe.Pointer(name))
	made := C.pl_create_bind_group(d.raw, name, l.group, &raw[0], &offsets[0], &sizes[0], C.size_t(n), d.cerr)
	if err := d.failed("create"); err != nil {
		return nil, err
	}
	g := &bindGroup{d: d, raw: made, layout: l, label: label, buffers: buffers, users: 1}
	d.keep(g)
	return g, nil
}

// A span is a checked binding: bytes start to end of buffer.
type span struct {
	buffer     *buffer
	start, end int64
	kind       gpu.BindingKind
}

// bindable checks b against its buffer and the limits.
func (d *device) bindable(kind gpu.BindingKind, b gpu.Binding) (span, error) {
	usage, name, most := gpu.UsageStorage, "UsageStorage", d.limits.MaxStorageBinding
	if kind == gpu.BindUniform {
		usage, name, most = gpu.UsageUniform, "UsageUniform", d.limits.MaxUniformBinding
	}
	buf, err := d.use(b.Buffer, usage, name)
	if err != nil {
		return span{}, err
	}
	size := b.Size
	if size == 0 {
		size = buf.size - b.Offset
	}
	if err := buf.within(b.Offset, size); err != nil {
		return span{}, err
	}
	switch {
	case size == 0:
		return span{}, fmt.Errorf("%w: no bytes of buffer %q", gpu.ErrInvalid, buf.label)
	case size > most:
		return span{}, fmt.Errorf("%w: %d bytes of buffer %q; a binding can show %d", gpu.ErrInvalid, size, buf.label, most)
	case b.Offset%int64(d.limits.OffsetAlignment) != 0:
		return span{}, fmt.Errorf("%w: offset %d in buffer %q is not a multiple of %d", gpu.ErrInvalid, b.Offset, buf.label,
			d.limits.OffsetAlignment)
	}
	return span{buf, b.Offset, b.Offset + size, kind}, nil
}

// conflict says whether s cannot be bound beside the others: WebGPU wants a buffer, whatever the ranges, to be either read
// or read and written in one dispatch, and ranges that are written not to overlap.
func conflict(others []span, s span) error {
	for i, o := range others {
		if o.buffer != s.buffer {
			continue
		}
		if (o.kind == gpu.BindReadWrite) != (s.kind == gpu.BindReadWrite) {
			return fmt.Errorf("%w: buffer %q is read only here or at binding %d, and read_write at the other", gpu.ErrInvalid,
				s.buffer.label, i)
		}
		if s.kind == gpu.BindReadWrite && s.start < o.end && o.start < s.end {
			return fmt.Errorf("%w: overlaps binding %d, and both are written", gpu.ErrInvalid, i)
		}
	}
	return nil
}
