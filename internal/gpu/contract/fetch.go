// Package contract holds tests of the device seam that every driver must pass. They copy bytes and run no kernel, so they need no
// compiler and fit each kind of device.
package contract

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Fetch tests gpu.Device.Fetch. open gives a new device, which it closes at the end of its test.
func Fetch(t *testing.T, open func(testing.TB) gpu.Device) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"GivesWhatWasSubmittedBefore", fetchOrder},
		{"DoesNotWaitForLaterWork", fetchEarly},
		{"SeveralAtATime", fetchSeveral},
		{"RefusesOtherUsesMeanwhile", fetchExcludes},
		{"EndsWithItsContext", fetchCancelled},
		{"BufferReleasedMeanwhile", fetchReleased},
		{"DeviceClosedMeanwhile", fetchClosed},
		{"BadArguments", fetchInvalid},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, &bench{t, open(t)}) })
	}
}

// A bench is a device with helpers that end the test on an error.
type bench struct {
	t *testing.T
	d gpu.Device
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) refused(what string, err error) {
	b.t.Helper()
	if !errors.Is(err, gpu.ErrInvalid) {
		b.t.Errorf("%s: got %v, want ErrInvalid", what, err)
	}
}

// source makes a buffer that holds the words first, first+1, ...
func (b *bench) source(words int, first uint32) gpu.Buffer {
	b.t.Helper()
	data := make([]uint32, words)
	for i := range data {
		data[i] = first + uint32(i)
	}
	x := b.buffer(int64(4*words), gpu.UsageStorage|gpu.UsageCopySrc|gpu.UsageCopyDst)
	b.check(b.d.WriteBuffer(x, 0, gpu.Bytes(data)))
	return x
}

// ring makes a buffer that can be fetched.
func (b *bench) ring(words int) gpu.Buffer {
	b.t.Helper()
	return b.buffer(int64(4*words), gpu.UsageMapRead|gpu.UsageCopyDst)
}

func (b *bench) buffer(size int64, usage gpu.Usage) gpu.Buffer {
	b.t.Helper()
	x, err := b.d.NewBuffer(fmt.Sprintf("contract %d", size), size, usage)
	b.check(err)
	return x
}

// copies makes a program that copies the size of dst from src, times times.
func (b *bench) copies(dst, src gpu.Buffer, times int) gpu.Program {
	b.t.Helper()
	commands := make([]gpu.Command, times)
	for i := range commands {
		commands[i] = gpu.Command{CopySrc: src, CopyDst: dst, CopySize: dst.Size()}
	}
	p, err := b.d.NewProgram("copies", commands)
	b.check(err)
	return p
}

func (b *bench) fetch(src gpu.Buffer) gpu.Fetch {
	b.t.Helper()
	f, err := b.d.Fetch(src, src.Size())
	b.check(err)
	return f
}

// wait ends a fetch and looks at the words, which must be first, first+1, ...
func (b *bench) wait(f gpu.Fetch, words int, first uint32) {
	b.t.Helper()
	got := make([]uint32, words)
	b.check(f.Wait(b.t.Context(), gpu.Bytes(got)))
	for i, w := range got {
		if w != first+uint32(i) {
			b.t.Fatalf("word %d: got %d, want %d", i, w, first+uint32(i))
		}
	}
}

// work prepares programs that take about the given time together, by measuring.
func (b *bench) work(length time.Duration) []gpu.Program {
	b.t.Helper()
	const words = 4 << 20
	p := b.copies(b.buffer(4*words, gpu.UsageStorage|gpu.UsageCopyDst), b.source(words, 0), 16)
	programs := []gpu.Program{p}
	for {
		start := time.Now()
		b.check(b.d.Submit(programs...))
		b.check(b.d.Wait(b.t.Context()))
		took := time.Since(start)
		if took > length/16 {
			for want := int(length * time.Duration(len(programs)) / took); len(programs) < want; {
				programs = append(programs, p)
			}
			return programs
		}
		programs = append(programs, programs...)
	}
}

// stillBusy says whether submitted work is under way.
func (b *bench) stillBusy() bool {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Millisecond)
	defer cancel()
	err := b.d.Wait(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		b.t.Fatal(err)
	}
	return err != nil
}

func fetchOrder(t *testing.T, b *bench) {
	const words = 33
	ring := b.ring(words)
	programs := [2]gpu.Program{b.copies(ring, b.source(words, 100), 1), b.copies(ring, b.source(words, 200), 1)}
	for range 50 {
		for i, p := range programs {
			b.check(b.d.Submit(p))
			b.wait(b.fetch(ring), words, uint32(100*(i+1)))
		}
	}
	// Bytes that were written and not submitted, and a part that is no multiple of 4.
	b.check(b.d.WriteBuffer(ring, 0, []byte{1, 2, 3, 4}))
	f, err := b.d.Fetch(ring, 3)
	b.check(err)
	got := make([]byte, 3)
	b.check(f.Wait(t.Context(), got))
	if string(got) != "\x01\x02\x03" {
		t.Errorf("got %v, want [1 2 3]", got)
	}
}

func fetchEarly(t *testing.T, b *bench) {
	const words = 64
	ring := b.ring(words)
	p := b.copies(ring, b.source(words, 7), 1)
	work := b.work(500 * time.Millisecond)
	b.check(b.d.Submit(p))
	f := b.fetch(ring)
	b.check(b.d.Submit(work...))
	b.wait(f, words, 7)
	if !b.stillBusy() {
		t.Error("the fetch waited for what was submitted after it")
	}
	b.check(b.d.Wait(t.Context()))
}

func fetchSeveral(t *testing.T, b *bench) {
	const words, depth = 16, 3
	var rings [depth]gpu.Buffer
	var programs [depth]gpu.Program
	for i := range rings {
		rings[i] = b.ring(words)
		programs[i] = b.copies(rings[i], b.source(words, uint32(1000*i)), 1)
	}
	var pending [depth]gpu.Fetch
	for n := range 60 {
		i := n % depth
		if pending[i] != nil {
			b.wait(pending[i], words, uint32(1000*i))
		}
		b.check(b.d.Submit(programs[i]))
		pending[i] = b.fetch(rings[i])
	}
	// An ordinary read of another buffer does not disturb them.
	other := b.ring(words)
	b.check(b.d.Submit(b.copies(other, b.source(words, 5), 1)))
	got := make([]uint32, words)
	b.check(b.d.Read(t.Context(), other, 0, gpu.Bytes(got)))
	if got[1] != 6 {
		t.Errorf("read: got %d, want 6", got[1])
	}
	for i, f := range pending {
		b.wait(f, words, uint32(1000*i))
	}
}

func fetchExcludes(t *testing.T, b *bench) {
	const words = 16
	ring := b.ring(words)
	p := b.copies(ring, b.source(words, 3), 1)
	b.check(b.d.Submit(p))
	f := b.fetch(ring)
	b.refused("submit", b.d.Submit(p))
	b.refused("read", b.d.Read(t.Context(), ring, 0, make([]byte, 4)))
	b.refused("write", b.d.WriteBuffer(ring, 0, make([]byte, 4)))
	_, err := b.d.Fetch(ring, 4)
	b.refused("second fetch", err)
	b.wait(f, words, 3)
	b.refused("second wait", f.Wait(t.Context(), make([]byte, 4*words)))
	b.check(b.d.Submit(p))
	b.wait(b.fetch(ring), words, 3)
}

func fetchCancelled(t *testing.T, b *bench) {
	const words = 16
	ring := b.ring(words)
	p := b.copies(ring, b.source(words, 9), 1)
	later := b.copies(ring, b.source(words, 70), 1)
	work := b.work(500 * time.Millisecond)
	b.check(b.d.Submit(append(work[:len(work):len(work)], p)...))
	f := b.fetch(ring)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := f.Wait(ctx, make([]byte, 4*words)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want context.DeadlineExceeded", err)
	}
	if took := time.Since(start); took > 250*time.Millisecond {
		t.Errorf("giving up took %v", took)
	}
	// What the first one waited for must not end the second.
	b.check(b.d.Submit(append(work[:len(work):len(work)], later)...))
	b.wait(b.fetch(ring), words, 70)
}

func fetchReleased(t *testing.T, b *bench) {
	const words = 16
	ring, src := b.ring(words), b.source(words, 9)
	b.check(b.d.Submit(b.copies(ring, src, 1)))
	f := b.fetch(ring)
	ring.Release()
	b.refused("wait", f.Wait(t.Context(), make([]byte, 4*words)))
	// Released while the work is under way, and never waited for.
	for range 20 {
		ring := b.ring(words)
		b.check(b.d.Submit(b.copies(ring, src, 1)))
		b.fetch(ring)
		ring.Release()
	}
	ring = b.ring(words)
	b.check(b.d.Submit(b.copies(ring, src, 1)))
	b.wait(b.fetch(ring), words, 9)
}

func fetchClosed(t *testing.T, b *bench) {
	const words = 16
	rings := []gpu.Buffer{b.ring(words), b.ring(words)}
	src := b.source(words, 9)
	fetches := make([]gpu.Fetch, len(rings))
	for i, ring := range rings {
		b.check(b.d.Submit(b.copies(ring, src, 1)))
		fetches[i] = b.fetch(ring)
	}
	b.d.Close()
	for _, f := range fetches {
		if err := f.Wait(t.Context(), make([]byte, 4*words)); !errors.Is(err, gpu.ErrDeviceLost) {
			t.Errorf("wait: got %v, want ErrDeviceLost", err)
		}
	}
	if _, err := b.d.Fetch(rings[0], 4); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("fetch: got %v, want ErrDeviceLost", err)
	}
}

func fetchInvalid(t *testing.T, b *bench) {
	ring := b.ring(4)
	for _, size := range []int64{-4, 0, 17, 1 << 40} {
		_, err := b.d.Fetch(ring, size)
		b.refused(fmt.Sprintf("%d bytes", size), err)
	}
	_, err := b.d.Fetch(b.source(4, 0), 16)
	b.refused("a buffer that cannot be read", err)
	f := b.fetch(ring)
	b.refused("too little room", f.Wait(t.Context(), make([]byte, 12)))
	b.check(b.d.Submit(b.copies(ring, b.source(4, 1), 1)))
	b.wait(b.fetch(ring), 4, 1)
	ring.Release()
	_, err = b.d.Fetch(ring, 16)
	b.refused("a released buffer", err)
}
