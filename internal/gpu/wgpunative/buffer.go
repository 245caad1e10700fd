//go:build cgo && !js

package wgpunative

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/pagelight/pagelight/internal/gpu"
)

const (
	// maxStaged bounds the copies of written bytes that the library holds until a submit.
	maxStaged = 64 << 20
	// maxWrite bounds one such copy.
	maxWrite = 16 << 20
	// mapAlignment is that of the offset of a mapping, in bytes.
	mapAlignment = 8
)

// A buffer implements gpu.Buffer.
type buffer struct {
	d        *device
	raw      C.WGPUBuffer
	label    string
	size     int64
	usage    gpu.Usage
	released bool
	mapping  *C.pl_map // nil unless usage has UsageMapRead
	fetch    *fetch    // own, while it reads the buffer, or nil
	own      fetch
}

// NewBuffer implements gpu.Device.
func (d *device) NewBuffer(label string, size int64, usage gpu.Usage) (gpu.Buffer, error) {
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	b, err := d.newBuffer(label, size, usage)
	if err != nil {
		return nil, err // not b, which would be an interface that is not nil
	}
	return b, nil
}

func (d *device) newBuffer(label string, size int64, usage gpu.Usage) (*buffer, error) {
	doing := fmt.Sprintf("new buffer %q of %d bytes", label, size)
	if err := checkUsage(usage); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if size <= 0 {
		return nil, fmt.Errorf("%s: %w: the size must be positive", doing, gpu.ErrInvalid)
	}
	if size > d.limits.MaxBufferSize {
		return nil, fmt.Errorf("%s: %w: a buffer can have %d", doing, gpu.ErrOutOfMemory, d.limits.MaxBufferSize)
	}
	size = (size + 3) &^ 3
	raw, err := d.create(label, size, usage)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	b := &buffer{d: d, raw: raw, label: label, size: size, usage: usage}
	if usage&gpu.UsageMapRead != 0 {
		b.mapping = (*C.pl_map)(C.calloc(1, C.sizeof_pl_map))
	}
	d.keep(b)
	return b, nil
}

// create makes a buffer in the library.
func (d *device) create(label string, size int64, usage gpu.Usage) (C.WGPUBuffer, error) {
	name := C.CString(label)
	defer C.free(unsafe.Pointer(name))
	raw := C.pl_create_buffer(d.raw, name, C.uint32_t(usage), C.uint64_t(size), d.cerr)
	return raw, d.failed("create")
}

// checkUsage checks a usage. The shim knows each bit by its value.
func checkUsage(usage gpu.Usage) error {
	const all = gpu.UsageStorage | gpu.UsageUniform | gpu.UsageCopySrc | gpu.UsageCopyDst | gpu.UsageMapRead
	switch {
	case usage&^all != 0:
		return fmt.Errorf("%w: unknown usage %#x", gpu.ErrInvalid, uint32(usage&^all))
	case usage == 0:
		return fmt.Errorf("%w: no usage", gpu.ErrInvalid)
	case usage&gpu.UsageMapRead != 0 && usage&^(gpu.UsageMapRead|gpu.UsageCopyDst) != 0:
		return fmt.Errorf("%w: UsageMapRead goes with UsageCopyDst only", gpu.ErrInvalid)
	}
	return nil
}

// Label implements gpu.Buffer.
func (b *buffer) Label() string { return b.label }

// Size implements gpu.Buffer.
func (b *buffer) Size() int64 { return b.size }

// Release implements gpu.Buffer.
func (b *buffer) Release() {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if b.released {
		return
	}
	b.released = true
	b.d.deaths++
	if b.fetch != nil {
		// Unmapped first: freed while the mapping is pending, the library would write to memory that is gone.
		_ = b.fetch.end() // a failure leaves the device lost, which is looked at next
	}
	if b.d.Err() == nil {
		b.d.drop(b)
	}
}

func (b *buffer) free() {
	if b.fetch != nil {
		_ = b.fetch.end()
	}
	C.pl_release_buffer(b.raw, b.d.cerr)
	_ = b.d.failed("release buffer")  // an abort makes the device lost; nothing else can come
	C.free(unsafe.Pointer(b.mapping)) // no mapping is pending between calls
}

// use says whether the buffer is of d, alive and made for the given use.
func (d *device) use(x gpu.Buffer, usage gpu.Usage, name string) (*buffer, error) {
	b, ok := x.(*buffer)
	switch {
	case !ok || b == nil || b.d != d:
		return nil, fmt.Errorf("%w: a buffer of another device, or none", gpu.ErrInvalid)
	case b.released:
		return nil, fmt.Errorf("%w: buffer %q is released", gpu.ErrInvalid, b.label)
	case b.usage&usage == 0:
		return nil, fmt.Errorf("%w: buffer %q was made without %s", gpu.ErrInvalid, b.label, name)
	}
	return b, nil
}

// idle is use for a buffer that must not have a fetch under way.
func (d *device) idle(x gpu.Buffer, usage gpu.Usage, name string) (*buffer, error) {
	b, err := d.use(x, usage, name)
	if err == nil && b.fetch != nil {
		return nil, b.busy()
	}
	return b, err
}

// busy says that a fetch of b has not ended.
func (b *buffer) busy() error {
	return fmt.Errorf("%w: buffer %q is being fetched", gpu.ErrInvalid, b.label)
}

// within says whether size bytes from offset lie in b, both multiples of 4.
func (b *buffer) within(offset, size int64) error {
	if offset < 0 || size < 0 || offset > b.size || size > b.size-offset {
		return fmt.Errorf("%w: %d bytes at %d are not all in buffer %q of %d", gpu.ErrInvalid, size, offset, b.label, b.size)
	}
	if offset%4 != 0 || size%4 != 0 {
		return fmt.Errorf("%w: %d bytes at %d in buffer %q: not multiples of 4", gpu.ErrInvalid, size, offset, b.label)
	}
	return nil
}

// WriteBuffer implements gpu.Device.
func (d *device) WriteBuffer(dst gpu.Buffer, offset int64, data []byte) error {
	if err := d.lock(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	b, err := d.idle(dst, gpu.UsageCopyDst, "UsageCopyDst")
	if err == nil {
		err = b.within(offset, int64(len(data)))
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for len(data) > 0 {
		if d.staged >= maxStaged {
			if err := d.flush(); err != nil {
				return err
			}
			// Only when the GPU has taken them are the copies freed.
			if err := d.awaitAll(context.Background(), nil); err != nil {
				return err
			}
		}
		n := min(len(data), maxWrite)
		C.pl_write(d.raw, d.queue, b.raw, C.uint64_t(offset), unsafe.Pointer(&data[0]), C.size_t(n), d.cerr)
		if err := d.failed("write"); err != nil {
			return err
		}
		d.staged += int64(n)
		offset += int64(n)
		data = data[n:]
	}
	return nil
}

// Read implements gpu.Device.
func (d *device) Read(ctx context.Context, src gpu.Buffer, offset int64, dst []byte) error {
	if err := d.lock(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	b, err := d.idle(src, gpu.UsageMapRead, "UsageMapRead")
	if err == nil {
		// The bytes wanted may be any; what is mapped is the aligned range around them.
		if n := int64(len(dst)); offset < 0 || n > b.size || offset > b.size-n {
			err = fmt.Errorf("%w: %d bytes at %d are not all in buffer %q of %d", gpu.ErrInvalid, n, offset, b.label, b.size)
		}
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := d.flush(); err != nil {
		return err
	}
	if len(dst) == 0 {
		return d.awaitAll(ctx, nil)
	}
	return d.read(ctx, b, offset, dst)
}

// read waits for everything submitted and copies dst out of b.
func (d *device) read(ctx context.Context, b *buffer, offset int64, dst []byte) error {
	from := offset &^ (mapAlignment - 1)
	size := min((offset+int64(len(dst))-from+3)&^3, b.size-from)
	if err := d.startMap(b, from, size); err != nil {
		return err
	}
	if err := d.awaitAll(ctx, b.mapping); err != nil {
		// Unmapping takes a pending mapping back at once, so the buffer and the device are as they were.
		if late := d.unmap(b); late != nil {
			return late
		}
		return err
	}
	err := d.readMapped(b, from, size, offset-from, dst)
	late := d.unmap(b)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return late
}

// readMapped copies dst out of a mapping that is done, of size bytes from offset from of b, leaving out its first skip bytes.
func (d *device) readMapped(b *buffer, from, size, skip int64, dst []byte) error {
	if status := b.mapping.status; status != 0 {
		return fmt.Errorf("mapping buffer %q failed with status %d", b.label, int(status))
	}
	C.pl_map_read(b.raw, C.size_t(from), C.size_t(size), C.size_t(skip), unsafe.Pointer(&dst[0]), C.size_t(len(dst)), d.cerr)
	return d.failed("read mapped bytes")
}

// startMap asks for size bytes from offset from of b. b.mapping tells when they are there; until unmap, no submit may use b.
func (d *device) startMap(b *buffer, from, size int64) error {
	C.pl_map_start(d.raw, b.raw, b.mapping, C.size_t(from), C.size_t(size), d.cerr)
	return d.failed("map")
}

// unmap ends a mapping, pending or not. On a lost device there is nothing left to unmap.
func (d *device) unmap(b *buffer) error {
	if d.Err() != nil {
		return nil
	}
	C.pl_unmap(d.raw, b.raw, d.cerr)
	if err := d.failed("unmap"); err != nil {
		return err
	}
	if b.mapping.pending != 0 {
		panic("BUG: a mapping is pending after unmap") // its memory could be freed before the library writes to it
	}
	return nil
}
