package cpu

import (
	"context"

	"github.com/pagelight/pagelight/internal/gpu"
)

// fetch implements gpu.Fetch. It is a place in the queue; once the runner is there, nothing changes the buffer until Wait has
// copied it.
type fetch struct {
	b    *buffer
	size int64
	done chan struct{} // closed when the runner has come to the place
	err  error         // of what was submitted before; set before done is closed
}

// Fetch implements gpu.Device. A fault that its Wait returns stays for the next Read or Wait of the device too.
func (d *Device) Fetch(src gpu.Buffer, size int64) (gpu.Fetch, error) {
	b, err := d.buffer("fetch", src, gpu.UsageMapRead)
	if err == nil {
		err = b.checkFetch("fetch")
	}
	if err == nil && (size <= 0 || size > b.size) {
		err = invalid("fetch: %d bytes of buffer %q of %d", size, b.label, b.size)
	}
	if err != nil {
		return nil, err
	}
	b.fetch = &fetch{b: b, size: size, done: make(chan struct{})}
	d.enqueue(work{fetch: b.fetch})
	return b.fetch, nil
}

// reached is called by the runner when all that comes before is done.
func (f *fetch) reached(d *Device) {
	d.mu.Lock()
	f.err = d.fault
	d.mu.Unlock()
	close(f.done)
}

// Wait implements gpu.Fetch.
func (f *fetch) Wait(ctx context.Context, dst []byte) error {
	b, d := f.b, f.b.dev
	if err := d.Err(); err != nil {
		return err
	}
	if b.released {
		return invalid("fetch: buffer %q was released meanwhile", b.label)
	}
	if b.fetch != f {
		return invalid("fetch: buffer %q was waited for before", b.label)
	}
	b.fetch = nil
	if int64(len(dst)) != f.size {
		return invalid("fetch: room for %d bytes, asked for were %d", len(dst), f.size)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.lost:
		return d.Err()
	}
	if f.err != nil {
		return f.err
	}
	copy(dst, gpu.Bytes(b.words))
	return nil
}
