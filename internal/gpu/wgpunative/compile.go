//go:build cgo && !js

package wgpunative

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/pagelight/pagelight/internal/gpu"
)

// maxCompilers bounds the threads that compile at the same time: drivers gain little beyond.
const maxCompilers = 8

// NewPipelines implements gpu.Device. The library compiles on several threads, but its error scopes cannot tell them
// apart. So all share one scope, and only when that has caught something is each kernel compiled again, alone, to find
// the one at fault. done is called with the device taken, so it must not use it.
func (d *device) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(label string)) ([]gpu.Pipeline, error) {
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	made := make([]*pipeline, len(descs))
	for i, desc := range descs {
		l, err := d.layoutOf(desc.Layout)
		if err != nil {
			return nil, kernelError(desc, err)
		}
		made[i] = &pipeline{d: d, layout: l, label: desc.Label, users: 1}
	}
	fault := d.compileAll(ctx, descs, made, done)
	if fault == nil {
		pipelines := make([]gpu.Pipeline, len(made))
		for i, p := range made {
			d.keep(p)
			pipelines[i] = p
		}
		return pipelines, nil
	}
	if d.Err() == nil {
		for _, p := range made {
			if p.raw != nil {
				p.free()
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i, desc := range descs {
		if err := d.Err(); err != nil {
			return nil, err
		}
		p := made[i]
		p.raw = compile(d, desc, p.layout, 1, d.cerr)
		if err := d.failed("compile"); err != nil {
			return nil, kernelError(desc, err)
		}
		p.free()
	}
	return nil, fmt.Errorf("compile %d kernels at the same time: %w", len(descs), fault)
}

func kernelError(desc gpu.PipelineDesc, err error) error {
	return fmt.Errorf("kernel %s (%s): %w", desc.Kernel, desc.Label, err)
}

// compileAll fills in the raw pipelines of made, on several threads. An error may leave some of them empty or invalid.
func (d *device) compileAll(ctx context.Context, descs []gpu.PipelineDesc, made []*pipeline, done func(label string)) error {
	C.pl_push_scopes(d.raw, d.cerr)
	if err := d.failed("compile"); err != nil {
		return err
	}
	var next atomic.Int64
	finished := make(chan int, len(descs)) // buffered: a worker never waits for done
	aborted := make(chan error, maxCompilers)
	workers := min(maxCompilers, runtime.GOMAXPROCS(0), len(descs))
	for range workers {
		go func() {
			var e C.pl_error
			for ctx.Err() == nil && e._type == C.PL_ERROR_NONE {
				i := int(next.Add(1)) - 1
				if i >= len(descs) {
					break
				}
				made[i].raw = compile(d, descs[i], made[i].layout, 0, &e)
				finished <- i
			}
			aborted <- takeError(&e)
		}()
	}
	var fault error
	for workers > 0 {
		select {
		case i := <-finished:
			if done != nil {
				done(descs[i].Label)
			}
		case err := <-aborted:
			workers--
			if err != nil {
				fault = err
			}
		}
	}
	if fault != nil {
		d.lose(fmt.Errorf("%s: compile: %w", d.info.Name, fault))
		return d.Err()
	}
	for len(finished) > 0 {
		if i := <-finished; done != nil {
			done(descs[i].Label)
		}
	}
	C.pl_pop_scopes(d.raw, d.cerr)
	if err := d.failed("compile"); err != nil {
		return err
	}
	return ctx.Err()
}

// compile makes one pipeline, with error scopes of its own or without.
func compile(d *device, desc gpu.PipelineDesc, l *layout, scoped C.int, e *C.pl_error) C.WGPUComputePipeline {
	source := desc.Source
	if !subgroupsDirective {
		source = strings.Replace(source, "enable subgroups;", "", 1)
	}
	label, code, entry := C.CString(desc.Label), C.CString(source), C.CString(desc.Kernel)
	defer C.free(unsafe.Pointer(label))
	defer C.free(unsafe.Pointer(code))
	defer C.free(unsafe.Pointer(entry))
	return C.pl_create_pipeline(d.raw, label, code, entry, l.pipeline, scoped, e)
}
