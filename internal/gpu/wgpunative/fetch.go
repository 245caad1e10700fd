//go:build cgo && !js

package wgpunative

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

// A fetch implements gpu.Fetch: a mapping that has begun, and a mark behind what had been submitted by then. The library finds out
// that they are done in a poll or in a later submit. A buffer has one, used again for each of its fetches.
type fetch struct {
	b     *buffer
	size  int64
	mark  C.uint64_t
	ended bool
}

// Fetch implements gpu.Device.
func (d *device) Fetch(src gpu.Buffer, size int64) (gpu.Fetch, error) {
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	b, err := d.idle(src, gpu.UsageMapRead, "UsageMapRead")
	if err == nil && (size <= 0 || size > b.size) {
		err = fmt.Errorf("%w: %d bytes of buffer %q of %d", gpu.ErrInvalid, size, b.label, b.size)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	if err := d.flush(); err != nil {
		return nil, err
	}
	f := &b.own
	*f = fetch{b: b, size: size, ended: true}
	if f.mark, err = d.mark(); err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	if err := d.startMap(b, 0, f.mapped()); err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	b.fetch, f.ended = f, false
	d.fetching++
	return f, nil
}

// mapped is the number of bytes that are mapped: a multiple of 4.
func (f *fetch) mapped() int64 { return (f.size + 3) &^ 3 }

// Wait implements gpu.Fetch.
func (f *fetch) Wait(ctx context.Context, dst []byte) error {
	b, d := f.b, f.b.d
	if err := d.lock(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	switch {
	case b.released:
		return fmt.Errorf("fetch: %w: buffer %q was released meanwhile", gpu.ErrInvalid, b.label)
	case f.ended:
		return fmt.Errorf("fetch: %w: buffer %q was waited for before", gpu.ErrInvalid, b.label)
	}
	if int64(len(dst)) != f.size {
		_ = f.end()
		return fmt.Errorf("fetch: %w: room for %d bytes, asked for were %d", gpu.ErrInvalid, len(dst), f.size)
	}
	err := ctx.Err()
	if err == nil {
		err = d.await(ctx, f.mark, b.mapping)
	}
	if err == nil {
		if err = d.readMapped(b, 0, f.mapped(), 0, dst); err != nil {
			err = fmt.Errorf("fetch: %w", err)
		}
	}
	late := f.end()
	if err != nil {
		return err
	}
	return late
}

// end takes the mapping back, done or not, so that the buffer can be used again.
func (f *fetch) end() error {
	f.ended = true
	f.b.fetch = nil
	f.b.d.fetching--
	return f.b.d.unmap(f.b)
}
