//go:build js && wasm

package webgpujs

import (
	"context"
	"fmt"
	"slices"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu"
)

type buffer struct {
	d        *Device
	label    string
	size     int64
	usage    gpu.Usage
	id       any // an int, boxed once
	released bool
	reading  *reading // what reads it back; nil where it has another use
}

// number is what gpu.js calls the buffer in lists of numbers.
func (b *buffer) number() float64 { return float64(b.id.(int)) }

func (b *buffer) Label() string { return b.label }
func (b *buffer) Size() int64   { return b.size }

func (b *buffer) Release() {
	if b.released {
		return
	}
	b.released = true
	b.d.f.releaseBuffer.Invoke(b.id)
}

// The bits of GPUBufferUsage.
const (
	usageMapRead = 0x1
	usageCopySrc = 0x4
	usageCopyDst = 0x8
	usageUniform = 0x40
	usageStorage = 0x80
)

func usageBits(u gpu.Usage) int {
	bits := 0
	for _, p := range [...]struct {
		usage gpu.Usage
		bit   int
	}{
		{gpu.UsageStorage, usageStorage},
		{gpu.UsageUniform, usageUniform},
		{gpu.UsageCopySrc, usageCopySrc},
		{gpu.UsageCopyDst, usageCopyDst},
		{gpu.UsageMapRead, usageMapRead},
	} {
		if u&p.usage != 0 {
			bits |= p.bit
		}
	}
	return bits
}

// invalid makes the error of a call that breaks the contract and need not reach the browser.
func invalid(format string, args ...any) error {
	return fmt.Errorf("webgpujs: %w: %s", gpu.ErrInvalid, fmt.Sprintf(format, args...))
}

// NewBuffer allocates size bytes.
func (d *Device) NewBuffer(label string, size int64, usage gpu.Usage) (gpu.Buffer, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	size = (size + 3) &^ 3
	switch {
	case size <= 0:
		return nil, invalid("buffer %q of %d bytes", label, size)
	case size > d.limits.MaxBufferSize:
		return nil, fmt.Errorf("webgpujs: buffer %q of %d bytes: %w: the largest buffer is %d bytes", label, size,
			gpu.ErrOutOfMemory, d.limits.MaxBufferSize)
	}
	c := make(chan result, 1)
	token := d.expect(c)
	d.f.newBuffer.Invoke(token, label, float64(size), usageBits(usage))
	r, err := d.await(context.Background(), c, token, func() { d.f.forget.Invoke(token) })
	if err != nil {
		return nil, err
	}
	if err := r.err(fmt.Sprintf("buffer %q of %d bytes", label, size)); err != nil {
		return nil, err
	}
	b := &buffer{d: d, label: label, size: size, usage: usage, id: r.value}
	if usage&gpu.UsageMapRead != 0 {
		d.lastToken++
		b.reading = &reading{b: b, what: fmt.Sprintf("read of buffer %q", label), token: d.lastToken, boxed: d.lastToken, done: make(chan result, 1)}
	}
	return b, nil
}

// own checks that b belongs to d, still exists and has a use.
func (d *Device) own(b gpu.Buffer, usage gpu.Usage, what string) (*buffer, error) {
	p, ok := b.(*buffer)
	switch {
	case !ok || p.d != d:
		return nil, invalid("%s of a buffer of another device", what)
	case p.released:
		return nil, invalid("%s of buffer %q, which was released", what, p.label)
	case p.usage&usage != usage:
		return nil, invalid("%s of buffer %q, which was not made for that", what, p.label)
	}
	return p, nil
}

// checkRange checks a range that must be aligned to 4 bytes.
func (b *buffer) checkRange(what string, offset, size int64) error {
	if offset < 0 || size < 0 || offset%4 != 0 || size%4 != 0 || offset > b.size-size {
		return invalid("%s of %d bytes at %d of buffer %q (%d bytes)", what, size, offset, b.label, b.size)
	}
	return nil
}

// stage gives the write scratch with room for at least size bytes.
func (d *Device) stage(size int) js.Value {
	if d.writeSize < size {
		d.writeSize = max(64<<10, nextPow2(size))
		d.writeScratch = d.f.growWrite.Invoke(d.writeSize)
	}
	return d.writeScratch
}

func nextPow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// WriteBuffer puts data into dst.
func (d *Device) WriteBuffer(dst gpu.Buffer, offset int64, data []byte) error {
	if err := d.Err(); err != nil {
		return err
	}
	b, err := d.own(dst, gpu.UsageCopyDst, "write")
	if err != nil {
		return err
	}
	if err := b.checkRange("write", offset, int64(len(data))); err != nil {
		return err
	}
	for part := range slices.Chunk(data, maxScratch) {
		js.CopyBytesToJS(d.stage(len(part)), part)
		d.f.writeBuffer.Invoke(b.id, float64(offset), len(part))
		offset += int64(len(part))
		if err := d.pace(len(part)); err != nil {
			return err
		}
	}
	return nil
}

// pace lets the event loop run now and then while much is written, and the device catch up: until then the browser holds every
// byte a second time.
func (d *Device) pace(n int) error {
	if d.staged += int64(n); d.staged >= maxStaged {
		return d.Wait(context.Background())
	}
	if d.sliced += n; d.sliced >= slice {
		d.sliced = 0
		Turn()
	}
	return nil
}

// WriteBlob copies a *Blob into dst without passing it through the Go heap.
func (d *Device) WriteBlob(dst gpu.Buffer, offset int64, src gpu.Blob, srcOffset, size int64) (bool, error) {
	blob, ok := src.(*Blob)
	if !ok {
		return false, nil
	}
	if err := d.Err(); err != nil {
		return true, err
	}
	b, err := d.own(dst, gpu.UsageCopyDst, "write")
	if err != nil {
		return true, err
	}
	if err := b.checkRange("write", offset, size); err != nil {
		return true, err
	}
	if err := blob.checkRange(srcOffset, size); err != nil {
		return true, err
	}
	for size > 0 {
		n := min(size, maxBlobRun)
		d.f.writeBlob.Invoke(b.id, float64(offset), blob.id, float64(srcOffset), float64(n))
		offset, srcOffset, size = offset+n, srcOffset+n, size-n
		if err := d.pace(int(n)); err != nil {
			return true, err
		}
	}
	return true, nil
}
