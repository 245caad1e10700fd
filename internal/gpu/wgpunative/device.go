//go:build cgo && !js

package wgpunative

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/pagelight/pagelight/internal/gpu"
)

// A device implements gpu.Device. mu is held through every call into the library, also while waiting: the library's
// error scopes are one stack per device.
type device struct {
	info   gpu.Info
	limits gpu.Limits
	// spin is how long a wait polls without a pause. On a software adapter the processor has the work to do, so none.
	spin time.Duration
	// timestamps says that the device can tell the time of its work.
	timestamps bool

	mu       sync.Mutex
	instance C.WGPUInstance
	adapter  C.WGPUAdapter
	raw      C.WGPUDevice
	queue    C.WGPUQueue
	progress *C.pl_progress
	cerr     *C.pl_error // reused by every call, in C memory: &e of a Go variable would be an allocation each time
	layouts  map[string]*layout
	made     map[freer]struct{} // what Close has to free
	staged   int64              // bytes written since the last submit: the library holds a copy of them
	building *build             // under way, nil otherwise
	deaths   uint64             // buffers released so far; programs compare it to know whether to look again
	batch    []C.pl_program     // reused by Submit
	fetching int                // buffers with a fetch that has not ended

	lost     chan struct{}
	lostOnce sync.Once
	err      atomic.Pointer[error]
}

// A freer is a native object that the device made.
type freer interface{ free() }

// newDevice opens the adapter of c. On success the device owns instance and adapter.
func newDevice(instance C.WGPUInstance, c candidate, opts Options) (*device, error) {
	d := &device{
		info: c.info, spin: time.Millisecond,
		instance: instance, adapter: c.adapter,
		cerr: (*C.pl_error)(C.calloc(1, C.sizeof_pl_error)),
		// Never freed: the library may write to it whenever it likes.
		progress: (*C.pl_progress)(C.calloc(1, C.sizeof_pl_progress)),
		layouts:  map[string]*layout{},
		made:     map[freer]struct{}{},
		lost:     make(chan struct{}),
	}
	if c.info.Kind == gpu.KindSoftware {
		d.spin = 0
	}
	var (
		defaults C.int
		limits   C.pl_limits
		features C.uint32_t
	)
	if opts.DefaultLimits {
		defaults = 1
	}
	label := C.CString(opts.Label)
	defer C.free(unsafe.Pointer(label))
	d.raw = C.pl_request_device(c.adapter, label, defaults, &limits, &features, d.progress, d.cerr)
	if err := takeError(d.cerr); err != nil || d.raw == nil {
		C.free(unsafe.Pointer(d.cerr))
		return nil, fmt.Errorf("%s: no device: %w", c.info.Name, err)
	}
	d.limits = convertLimits(limits)
	d.timestamps = features&C.PL_FEATURE_TIMESTAMPS != 0
	if features&C.PL_FEATURE_SUBGROUPS != 0 {
		d.info.Features = append(d.info.Features, "subgroups", "subgroup_id") // its compiler has both or neither
	}
	if features&C.PL_FEATURE_F16 != 0 {
		d.info.Features = append(d.info.Features, "shader-f16")
	}
	d.queue = C.pl_queue(d.raw)
	return d, nil
}

// convertLimits takes the limits that matter, rounded so that every buffer within them has a size that is a multiple of 4.
func convertLimits(l C.pl_limits) gpu.Limits {
	bytes := func(n C.uint64_t) int64 { return int64(min(n, math.MaxInt64)) &^ 3 }
	count := func(n C.uint32_t) int { return int(min(n, math.MaxInt32)) }
	return gpu.Limits{
		MaxBufferSize:       bytes(l.buffer),
		MaxStorageBinding:   bytes(l.storage_binding),
		MaxStorageBuffers:   count(l.storage_buffers),
		MaxWorkgroupMemory:  count(l.workgroup_memory),
		MaxInvocations:      count(l.invocations),
		MaxWorkgroupsPerDim: count(l.workgroups_per_dim),
		OffsetAlignment:     count(l.offset_alignment),
		MaxUniformBinding:   bytes(l.uniform_binding),
	}
}

// Info implements gpu.Device.
func (d *device) Info() gpu.Info { return d.info }

// Limits implements gpu.Device.
func (d *device) Limits() gpu.Limits { return d.limits }

// Lost implements gpu.Device.
func (d *device) Lost() <-chan struct{} { return d.lost }

// Err implements gpu.Device.
func (d *device) Err() error {
	if err := d.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (d *device) lose(err error) {
	d.lostOnce.Do(func() {
		d.err.Store(&err)
		close(d.lost)
	})
}

// lock takes the device for a call. On an error, which wraps gpu.ErrDeviceLost, it is not taken.
func (d *device) lock() error {
	d.mu.Lock()
	if err := d.Err(); err != nil {
		d.mu.Unlock()
		return err
	}
	return nil
}

// failed turns what the last call left in d.cerr into an error, and makes d.cerr ready for the next call.
func (d *device) failed(doing string) error {
	if d.cerr._type == C.PL_ERROR_NONE {
		return nil
	}
	err := takeError(d.cerr)
	if errors.Is(err, gpu.ErrDeviceLost) {
		d.lose(fmt.Errorf("%s: %s: %w", d.info.Name, doing, err))
		return d.Err()
	}
	if d.building != nil {
		d.building.suspect = true
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// takeError makes a Go error of e and clears e.
func takeError(e *C.pl_error) error {
	kind, message := e._type, ""
	if e.message != nil {
		message = strings.TrimSpace(C.GoString(e.message))
		C.free(unsafe.Pointer(e.message))
	}
	*e = C.pl_error{}
	if kind == C.PL_ERROR_VALIDATION || kind == C.PL_ERROR_OTHER {
		kind = cause(kind, message)
	}
	switch kind {
	case C.PL_ERROR_NONE:
		return nil
	case C.PL_ERROR_ABORT:
		return fmt.Errorf("%w: the WebGPU library gave up; what it said is on standard error", gpu.ErrDeviceLost)
	case C.PL_ERROR_LOST:
		return fmt.Errorf("%w: %s", gpu.ErrDeviceLost, message)
	case C.PL_ERROR_OUT_OF_MEMORY:
		return fmt.Errorf("%w: %s", gpu.ErrOutOfMemory, message)
	case C.PL_ERROR_VALIDATION:
		return fmt.Errorf("%w: %s", gpu.ErrInvalid, message)
	}
	return fmt.Errorf("the WebGPU library failed: %s", message)
}

// cause looks at the words of a validation error, since the library calls by that name whatever went wrong in making an
// object. The words are those of wgpu-core's DeviceError, at the end of the chain of causes.
func cause(kind C.int32_t, message string) C.int32_t {
	switch {
	case strings.Contains(message, "Not enough memory left"):
		return C.PL_ERROR_OUT_OF_MEMORY
	case strings.Contains(message, "Parent device is lost"):
		return C.PL_ERROR_LOST
	}
	return kind
}

// Wait implements gpu.Device.
func (d *device) Wait(ctx context.Context) error {
	if err := d.lock(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if err := d.flush(); err != nil {
		return err
	}
	return d.awaitAll(ctx, nil)
}

// flush hands bytes that WriteBuffer left with the library to the GPU, so that what follows waits for them too.
func (d *device) flush() error {
	if d.staged == 0 {
		return nil
	}
	d.staged = 0
	C.pl_submit(d.raw, d.queue, nil, 0, d.cerr)
	return d.failed("flush writes")
}

// mark returns the number of a mark behind everything submitted so far, for await.
func (d *device) mark() (C.uint64_t, error) {
	mark := C.pl_mark(d.queue, d.progress, d.cerr)
	return mark, d.failed("mark")
}

// awaitAll returns when m, if not nil, and everything submitted is done, or with ctx.Err() when ctx ends first.
func (d *device) awaitAll(ctx context.Context, m *C.pl_map) error {
	mark, err := d.mark()
	if err != nil {
		return err
	}
	return d.await(ctx, mark, m)
}

// await returns when the GPU has passed a mark and m, if not nil, is done, or with ctx.Err() when ctx ends first.
func (d *device) await(ctx context.Context, mark C.uint64_t, m *C.pl_map) error {
	slice := 100 * time.Millisecond // how long one call into C may take
	if ctx.Done() != nil {
		slice = 2 * time.Millisecond
	}
	start := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		waited := time.Since(start)
		done := C.pl_poll(d.raw, d.progress, mark, m, C.int64_t(d.spin), C.int64_t(slice), C.int64_t(waited), d.cerr)
		if err := d.failed("wait for the GPU"); err != nil {
			return err
		}
		if done != 0 {
			return nil
		}
	}
}

// keep notes that o must be freed by Close.
func (d *device) keep(o freer) { d.made[o] = struct{}{} }

// drop frees o now, unless the device is gone (then there is nothing left that could be freed).
func (d *device) drop(o freer) {
	if _, ok := d.made[o]; !ok {
		return
	}
	delete(d.made, o)
	o.free()
}

// Close implements gpu.Device. It waits for submitted work: the library gives up waiting after 5 s and would free memory
// that the GPU still uses.
func (d *device) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.building != nil {
		d.building.abandon()
		d.building = nil
	}
	if d.Err() == nil {
		// A failure leaves the device lost, which is looked at next.
		_ = d.awaitAll(context.Background(), nil)
	}
	if d.Err() != nil {
		// Closed before, or lost: then native objects must not be touched, not even to free them.
		return
	}
	for o := range d.made {
		o.free()
	}
	clear(d.made)
	for _, l := range d.layouts {
		C.pl_release_pipeline_layout(l.pipeline, d.cerr)
		C.pl_release_bind_group_layout(l.group, d.cerr)
	}
	clear(d.layouts)
	C.pl_release_device(d.raw, d.queue, d.cerr)
	C.pl_release_adapter(d.adapter)
	C.pl_release_instance(d.instance)
	C.free(unsafe.Pointer(d.cerr.message))
	C.free(unsafe.Pointer(d.cerr))
	d.lose(fmt.Errorf("%s: %w: closed", d.info.Name, gpu.ErrDeviceLost))
}
