//go:build js && wasm

package webgpujs

import (
	"context"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu"
)

// reading is the reading back of one buffer. It is made with the buffer and used again and again, so that a read-back leaves
// nothing to collect but what the browser's callback itself costs.
type reading struct {
	b     *buffer
	what  string // for errors
	token int
	boxed any // token, boxed once
	done  chan result
	size  int
	bytes any  // size, boxed while it stays the same
	begun bool // until it is waited for
}

// Fetch maps src at once: the browser then tells when it is done with what was submitted so far, each buffer by itself.
func (d *Device) Fetch(src gpu.Buffer, size int64) (gpu.Fetch, error) {
	b, err := d.own(src, gpu.UsageMapRead, "fetch")
	if err != nil {
		return nil, err
	}
	if size <= 0 {
		return nil, invalid("fetch of %d bytes of buffer %q", size, b.label)
	}
	if err := d.beginRead(b, 0, size); err != nil {
		return nil, err
	}
	return b.reading, nil
}

// Read copies from a buffer that the device has finished with. A fault of an earlier Submit is returned here, and what was
// read is not.
func (d *Device) Read(ctx context.Context, src gpu.Buffer, offset int64, dst []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := d.own(src, gpu.UsageMapRead, "read")
	if err != nil {
		return err
	}
	if len(dst) == 0 {
		return d.Wait(ctx)
	}
	if err := d.beginRead(b, offset, int64(len(dst))); err != nil {
		return err
	}
	if err := b.reading.Wait(ctx, dst); err != nil {
		return err
	}
	d.staged = 0
	return nil
}

// beginRead begins to map bytes of b, which has UsageMapRead.
func (d *Device) beginRead(b *buffer, offset, size int64) error {
	if err := d.Err(); err != nil {
		return err
	}
	if offset < 0 || offset > b.size-size {
		return invalid("read of %d bytes at %d of buffer %q (%d bytes)", size, offset, b.label, b.size)
	}
	r := b.reading
	if r.begun {
		return invalid("read of buffer %q, which is being read", b.label)
	}
	if r.begun = true; r.size != int(size) {
		r.size, r.bytes = int(size), int(size)
	}
	d.mu.Lock()
	d.waiting[r.token] = r.done
	d.mu.Unlock()
	d.f.read.Invoke(r.boxed, b.id, float64(offset), r.bytes)
	return nil
}

// Wait implements gpu.Fetch.
func (r *reading) Wait(ctx context.Context, dst []byte) error {
	b, d := r.b, r.b.d
	if !r.begun || len(dst) != r.size {
		return invalid("wait for %d bytes of buffer %q, of which %d are being read", len(dst), b.label, r.size)
	}
	if err := ctx.Err(); err != nil {
		r.giveUp()
		return err
	}
	select {
	case result := <-r.done:
		r.begun = false
		if err := d.Err(); err != nil {
			return err
		}
		if err := result.err(r.what); err != nil {
			return err
		}
		if b.released {
			return invalid("read of buffer %q, which was released", b.label)
		}
	case <-ctx.Done():
		r.giveUp()
		return ctx.Err()
	case <-d.lost:
		r.giveUp()
		return d.Err()
	}
	d.roomToRead(r.size)
	d.f.takeRead.Invoke(b.id)
	js.CopyBytesToGo(dst, d.readScratch)
	return nil
}

// giveUp makes the buffer usable again, whether or not it was mapped by now.
func (r *reading) giveUp() {
	r.begun = false
	r.b.d.drop(r.token)
	if !r.b.released {
		r.b.d.f.cancelRead.Invoke(r.b.id)
	}
	select {
	case <-r.done:
	default:
	}
}
