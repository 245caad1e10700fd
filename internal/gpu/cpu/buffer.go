package cpu

import (
	"context"
	"fmt"
	"strings"

	"github.com/pagelight/pagelight/internal/gpu"
)

// buffer implements gpu.Buffer.
type buffer struct {
	dev      *Device
	label    string
	size     int64
	usage    gpu.Usage
	words    []uint32 // touched by the runner, or by whoever holds the token of Device.idle
	released bool
	fetch    *fetch // what is reading the buffer, or nil
}

// NewBuffer implements gpu.Device.
func (d *Device) NewBuffer(label string, size int64, usage gpu.Usage) (gpu.Buffer, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	const all = gpu.UsageStorage | gpu.UsageUniform | gpu.UsageCopySrc | gpu.UsageCopyDst | gpu.UsageMapRead
	switch {
	case size <= 0:
		return nil, invalid("buffer %q: size %d", label, size)
	case size > d.limits.MaxBufferSize:
		return nil, invalid("buffer %q: size %d exceeds the limit of %d", label, size, d.limits.MaxBufferSize)
	case usage == 0 || usage&^all != 0:
		return nil, invalid("buffer %q: usage %#x", label, usage)
	case usage&gpu.UsageMapRead != 0 && usage&^(gpu.UsageMapRead|gpu.UsageCopyDst) != 0:
		return nil, invalid("buffer %q: one that is mapped for reading can be a copy's destination and nothing else", label)
	}
	size = (size + 3) &^ 3
	if !d.take(size) {
		// What has been released may not be free yet.
		if err := d.acquire(context.Background()); err != nil {
			return nil, err
		}
		d.idle <- struct{}{}
		if !d.take(size) {
			return nil, fmt.Errorf("cpu: buffer %q: %d bytes: %w", label, size, gpu.ErrOutOfMemory)
		}
	}
	return &buffer{dev: d, label: label, size: size, usage: usage, words: make([]uint32, size/4)}, nil
}

// take takes memory from what buffers may have, and says whether there is enough.
func (d *Device) take(size int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if size > d.memory {
		return false
	}
	d.memory -= size
	return true
}

// free gives the memory of a released buffer back. Called by the runner.
func (d *Device) free(b *buffer) {
	b.words = nil
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory += b.size
}

// Label implements gpu.Buffer.
func (b *buffer) Label() string { return b.label }

// Size implements gpu.Buffer.
func (b *buffer) Size() int64 { return b.size }

// Release implements gpu.Buffer.
func (b *buffer) Release() {
	if !b.released {
		b.released = true
		b.dev.enqueue(work{free: b})
	}
}

// buffer checks that a buffer is this device's, alive, and made for a use.
func (d *Device) buffer(what string, b gpu.Buffer, usage gpu.Usage) (*buffer, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	own, ok := b.(*buffer)
	switch {
	case !ok || own == nil:
		return nil, invalid("%s: not a buffer of this device", what)
	case own.dev != d:
		return nil, invalid("%s: buffer %q is another device's", what, own.label)
	case own.released:
		return nil, invalid("%s: buffer %q has been released", what, own.label)
	case own.usage&usage != usage:
		return nil, invalid("%s: buffer %q was not made for %s", what, own.label, usageNames(usage&^own.usage))
	}
	return own, nil
}

// checkRange checks that a range of bytes is aligned and inside the buffer.
func (b *buffer) checkRange(what string, offset, size int64) error {
	if offset < 0 || size < 0 || offset%4 != 0 || size%4 != 0 {
		return invalid("%s: buffer %q: offset %d and size %d are not multiples of 4", what, b.label, offset, size)
	}
	if offset > b.size || size > b.size-offset {
		return invalid("%s: buffer %q: %d bytes at %d, it has %d", what, b.label, size, offset, b.size)
	}
	return nil
}

// checkFetch checks that nothing is reading the buffer.
func (b *buffer) checkFetch(what string) error {
	if b.fetch != nil {
		return invalid("%s: buffer %q is being fetched", what, b.label)
	}
	return nil
}

// usageNames names uses for error messages.
func usageNames(u gpu.Usage) string {
	var names []string
	for i, name := range []string{"storage", "uniform", "copy source", "copy destination", "map read"} {
		if u>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
