//go:build cgo && !js

package wgpunative

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/pagelight/pagelight/internal/gpu"
)

// maxCompilers bounds the threads that compile at the same time: drivers gain little beyond.
const maxCompilers = 8

// A build implements gpu.Build. The library compiles on several threads, but its error scopes cannot tell them apart, nor from
// the calls that others make meanwhile. So all share the scopes that lie below those of other calls, and only when these, or a
// call of others, have caught something is each kernel compiled again, alone, to find the one at fault.
type build struct {
	d     *device
	descs []gpu.PipelineDesc
	made  []*pipeline

	stop     atomic.Bool // to the workers: begin no more
	next     atomic.Int64
	workers  sync.WaitGroup
	finished chan int // places in descs; closed when the workers have ended
	suspect  bool     // an error of another call may be that of a kernel; guarded by d.mu
}

// NewPipelines implements gpu.Device.
func (d *device) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(label string)) ([]gpu.Pipeline, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := d.start(descs)
	if err != nil {
		return nil, err
	}
	return b.Wait(ctx, done)
}

// StartPipelines implements gpu.Compiler.
func (d *device) StartPipelines(descs []gpu.PipelineDesc) (gpu.Build, error) {
	b, err := d.start(descs)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (d *device) start(descs []gpu.PipelineDesc) (*build, error) {
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if d.building != nil {
		return nil, fmt.Errorf("compile: %w: a build is under way", gpu.ErrInvalid)
	}
	b := &build{
		d: d, descs: descs, made: make([]*pipeline, len(descs)),
		finished: make(chan int, len(descs)), // a worker never waits for anybody
	}
	for i, desc := range descs {
		l, err := d.layoutOf(desc.Layout)
		if err != nil {
			return nil, kernelError(desc, err)
		}
		b.made[i] = &pipeline{d: d, layout: l, label: desc.Label, users: 1}
	}
	C.pl_push_scopes(d.raw, d.cerr)
	if err := d.failed("compile"); err != nil {
		return nil, err
	}
	d.building = b
	for range min(maxCompilers, runtime.GOMAXPROCS(0), len(descs)) {
		b.workers.Go(b.work)
	}
	go func() {
		b.workers.Wait()
		close(b.finished)
	}()
	return b, nil
}

// work compiles until nothing is left.
func (b *build) work() {
	var e C.pl_error
	for !b.stop.Load() && e._type == C.PL_ERROR_NONE {
		i := int(b.next.Add(1)) - 1
		if i >= len(b.descs) {
			break
		}
		b.made[i].raw = compile(b.d, b.descs[i], b.made[i].layout, 0, &e)
		b.finished <- i
	}
	if err := takeError(&e); err != nil {
		// The library may hold its locks for ever, so nobody may call it again.
		b.d.lose(fmt.Errorf("%s: compile: %w", b.d.info.Name, err))
	}
}

// abandon ends a build that nobody waits for. Other calls are kept out meanwhile.
func (b *build) abandon() {
	b.stop.Store(true)
	b.workers.Wait()
	if b.d.Err() == nil {
		b.free()
	}
}

// Wait implements gpu.Build.
func (b *build) Wait(ctx context.Context, done func(label string)) ([]gpu.Pipeline, error) {
	if ctx.Err() != nil {
		b.stop.Store(true)
	}
	ended := ctx.Done()
	for waiting := true; waiting; {
		select {
		case i, more := <-b.finished:
			if waiting = more; more && done != nil {
				done(b.descs[i].Label)
			}
		case <-ended:
			b.stop.Store(true)
			ended = nil
		}
	}
	d := b.d
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	d.building = nil
	C.pl_pop_scopes(d.raw, d.cerr)
	fault := d.failed("compile")
	if err := d.Err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		b.free()
		return nil, err
	}
	if fault != nil || b.suspect {
		b.free()
		if err := b.again(); err != nil {
			return nil, err
		}
	}
	pipelines := make([]gpu.Pipeline, len(b.made))
	for i, p := range b.made {
		d.keep(p)
		pipelines[i] = p
	}
	return pipelines, nil
}

func (b *build) free() {
	for _, p := range b.made {
		if p.raw != nil {
			p.free()
			p.raw = nil
		}
	}
}

// again compiles one kernel after the other, each with scopes of its own.
func (b *build) again() error {
	for i, desc := range b.descs {
		p := b.made[i]
		p.raw = compile(b.d, desc, p.layout, 1, b.d.cerr)
		if err := b.d.failed("compile"); err != nil {
			if b.d.Err() == nil {
				b.free()
			}
			return kernelError(desc, err)
		}
	}
	return nil
}

func kernelError(desc gpu.PipelineDesc, err error) error {
	return fmt.Errorf("kernel %s (%s): %w", desc.Kernel, desc.Label, err)
}

// compile makes one pipeline, with error scopes of its own or without.
func compile(d *device, desc gpu.PipelineDesc, l *layout, scoped C.int, e *C.pl_error) C.WGPUComputePipeline {
	source := portable(desc.Source, subgroupsDirective, namedSizes)
	label, code, entry := C.CString(desc.Label), C.CString(source), C.CString(desc.Kernel)
	defer C.free(unsafe.Pointer(label))
	defer C.free(unsafe.Pointer(code))
	defer C.free(unsafe.Pointer(entry))
	return C.pl_create_pipeline(d.raw, label, code, entry, l.pipeline, scoped, e)
}
