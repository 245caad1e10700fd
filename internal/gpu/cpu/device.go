// Package cpu is the device that needs no GPU interface: it runs the kernels of internal/ref over goroutines, on host
// memory, natively and in WebAssembly. It serves machines without any adapter, and tests.
//
// It checks what it is given as strictly as WebGPU does, so that a program that is accepted here is accepted there. It
// knows kernels by name (PipelineDesc.Kernel) and by the values of their constants (PipelineDesc.Consts); it never reads
// WGSL. These constants matter:
//
//	WEIGHT    embed, matvec, matmul: the quant.Kind of the weights
//	GROUP     the same, for the kinds that have groups: Format.Group
//	HEAD_DIM  rope, kv_store, paged_attn_*: the dimension of a head
//	KV_TYPE   kv_store, paged_attn_*: what the KV cache holds, a quant.KVType
//	PART      paged_attn_decode and paged_attn_serial: tokens of a partition
//	SPLIT     paged_attn_serial: 1 when it writes partitions
package cpu

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Options say how to open the device. The zero value suits.
type Options struct {
	// Workers is the number of goroutines that compute; 0 means GOMAXPROCS.
	Workers int
	// Memory is the most bytes that all buffers may have together; 0 means what the machine has, or 2 GiB in WebAssembly.
	Memory int64
	// Yield is called about every 10 ms of computing on the goroutine that runs the commands, so that a browser can run
	// its event loop. nil means a short sleep in WebAssembly and nothing elsewhere.
	Yield func()
}

// Device implements gpu.Device and gpu.BlobWriter.
type Device struct {
	info   gpu.Info
	limits gpu.Limits
	pool   *pool

	// idle holds a token while nothing is submitted. Whoever takes it may touch the contents of buffers.
	idle chan struct{}
	wake chan struct{} // tells the runner that the queue has something
	lost chan struct{}
	done chan struct{} // closed when the runner has ended

	mu     sync.Mutex
	queue  []work
	busy   bool  // the token of idle is out
	fault  error // of submitted work, for the next Read or Wait
	err    error // why the device is lost
	memory int64 // bytes that buffers may still take
}

// work is one element of the queue.
type work struct {
	program *program
	free    *buffer // a buffer to be freed, when program is nil
	fetch   *fetch  // one that has reached its place, when both are nil
}

// Open starts the device.
func Open(o Options) (*Device, error) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, fmt.Errorf("cpu: %w: this processor is big-endian, weights are little-endian", gpu.ErrNoAdapter)
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	js := runtime.GOOS == "js"
	if o.Yield == nil && js {
		// A goroutine that sleeps lets the runtime go idle, and only then does it return to the event loop; runtime.Gosched
		// does not. Half a millisecond is the least that is sure to become a timeout of the browser.
		o.Yield = func() { time.Sleep(time.Millisecond / 2) }
	}
	if o.Memory <= 0 {
		o.Memory = machineMemory(js)
	}
	limits := gpu.DefaultLimits
	limits.MaxBufferSize, limits.MaxStorageBinding = 4<<30, 2<<30
	if js {
		limits.MaxBufferSize, limits.MaxStorageBinding = 1<<30, 1<<30
	}
	d := &Device{
		info: gpu.Info{
			Kind: gpu.KindCPU, Name: machineName(o.Workers), Vendor: "pagelight", Backend: "Go", Driver: "cpu",
			BarrierFree: true,
		},
		limits: limits,
		pool:   newPool(o.Workers, o.Yield),
		idle:   make(chan struct{}, 1),
		wake:   make(chan struct{}, 1),
		lost:   make(chan struct{}),
		done:   make(chan struct{}),
		memory: o.Memory,
	}
	d.idle <- struct{}{}
	go d.run()
	return d, nil
}

// machineName is the processor's name where it is cheap to have, and the number of threads.
func machineName(workers int) string {
	name := "CPU"
	if v := procField("/proc/cpuinfo", "model name"); v != "" {
		name = v
	}
	if workers == 1 {
		return name + ", 1 thread"
	}
	return fmt.Sprintf("%s, %d threads", name, workers)
}

// machineMemory is the most that buffers may take when the caller says nothing.
func machineMemory(js bool) int64 {
	if js {
		return 2 << 30 // of the 4 GiB that WebAssembly can address
	}
	kib, _ := strconv.ParseInt(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	if kib > 0 {
		return kib << 10
	}
	return 1 << 40
}

// procField is the first value of a key in one of Linux's "key : value" files, or "".
func procField(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Info implements gpu.Device.
func (d *Device) Info() gpu.Info { return d.info }

// Limits implements gpu.Device.
func (d *Device) Limits() gpu.Limits { return d.limits }

// Lost implements gpu.Device.
func (d *Device) Lost() <-chan struct{} { return d.lost }

// Err implements gpu.Device.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Close implements gpu.Device. Work that is under way ends early; its results are lost.
func (d *Device) Close() {
	d.mu.Lock()
	first := d.err == nil
	if first {
		d.err = fmt.Errorf("cpu: %w: closed", gpu.ErrDeviceLost)
	}
	d.mu.Unlock()
	if first {
		d.pool.stop.Store(true)
		close(d.lost)
	}
	<-d.done
}

// run executes the queue until the device is closed.
func (d *Device) run() {
	defer close(d.done)
	defer d.pool.close()
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.queue = d.queue[:0]
			if d.busy {
				d.busy = false
				d.idle <- struct{}{}
			}
			d.mu.Unlock()
			select {
			case <-d.wake:
			case <-d.lost:
				return
			}
			continue
		}
		w := d.queue[0]
		d.queue = slices.Delete(d.queue, 0, 1)
		failed := d.fault != nil
		d.mu.Unlock()

		switch {
		case w.free != nil:
			d.free(w.free)
		case w.fetch != nil:
			w.fetch.reached(d)
		case failed: // what follows a fault until it is reported would work on wrong data
		default:
			if err := w.program.run(d.pool); err != nil {
				d.mu.Lock()
				d.fault = err
				d.mu.Unlock()
			}
		}
		if d.pool.stop.Load() {
			return
		}
	}
}

// enqueue gives work to the runner.
func (d *Device) enqueue(w ...work) {
	d.mu.Lock()
	if !d.busy {
		d.busy = true
		<-d.idle
	}
	d.queue = append(d.queue, w...)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // it knows already
	}
}

// Submit implements gpu.Device. The programs run while the caller goes on. After a fault everything submitted is dropped
// until Read or Wait has reported it.
func (d *Device) Submit(programs ...gpu.Program) error {
	if err := d.Err(); err != nil {
		return err
	}
	for _, p := range programs {
		p, ok := p.(*program)
		if !ok || p.dev != d {
			return invalid("submit: a program of another device")
		}
		if err := p.check(); err != nil {
			return err
		}
	}
	for _, p := range programs {
		d.enqueue(work{program: p.(*program)})
	}
	return nil
}

// Wait implements gpu.Device.
func (d *Device) Wait(ctx context.Context) error {
	if err := d.acquire(ctx); err != nil {
		return err
	}
	d.idle <- struct{}{}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.fault
	d.fault = nil
	return err
}

// acquire waits until nothing is under way and takes the token of idle.
func (d *Device) acquire(ctx context.Context) error {
	if err := d.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.lost:
		return d.Err()
	}
}

// Read implements gpu.Device.
func (d *Device) Read(ctx context.Context, src gpu.Buffer, offset int64, dst []byte) error {
	b, err := d.buffer("read", src, gpu.UsageMapRead)
	if err == nil {
		err = b.checkFetch("read")
	}
	if err != nil {
		return err
	}
	if err := b.checkRange("read", offset, int64(len(dst))); err != nil {
		return err
	}
	if err := d.Wait(ctx); err != nil {
		return err
	}
	copy(dst, gpu.Bytes(b.words)[offset:])
	return nil
}

// WriteBuffer implements gpu.Device. It waits for what has been submitted, which could still read the old content.
func (d *Device) WriteBuffer(dst gpu.Buffer, offset int64, data []byte) error {
	return d.write(dst, offset, int64(len(data)), func(p []byte) error {
		copy(p, data)
		return nil
	})
}

// WriteBlob implements gpu.BlobWriter: it reads any blob straight into the buffer.
func (d *Device) WriteBlob(dst gpu.Buffer, offset int64, src gpu.Blob, srcOffset, size int64) (bool, error) {
	return true, d.write(dst, offset, size, func(p []byte) error {
		// ReadAt may report the end of the blob together with all the bytes.
		if n, err := src.ReadAt(p, srcOffset); n < len(p) {
			if err == nil {
				err = errors.New("short read")
			}
			return fmt.Errorf("cpu: write %q: blob: %w", dst.Label(), err)
		}
		return nil
	})
}

// write lets fill fill a range of a buffer.
func (d *Device) write(dst gpu.Buffer, offset, size int64, fill func([]byte) error) error {
	b, err := d.buffer("write", dst, gpu.UsageCopyDst)
	if err == nil {
		err = b.checkFetch("write")
	}
	if err != nil {
		return err
	}
	if err := b.checkRange("write", offset, size); err != nil {
		return err
	}
	if err := d.acquire(context.Background()); err != nil {
		return err
	}
	defer func() { d.idle <- struct{}{} }()
	return fill(gpu.Bytes(b.words)[offset : offset+size])
}

// invalid is an error about how the device is used.
func invalid(format string, args ...any) error {
	return fmt.Errorf("cpu: %s: %w", fmt.Sprintf(format, args...), gpu.ErrInvalid)
}
