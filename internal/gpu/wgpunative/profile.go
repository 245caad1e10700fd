//go:build cgo && !js

package wgpunative

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

// profiled is how many dispatches are timed in one submit: a query set has at most 4,096 queries, two a dispatch.
const profiled = 2048

// Profile implements gpu.Profiler.
func (d *device) Profile(ctx context.Context, x gpu.Program, repeat int) ([]int64, error) {
	if err := d.lock(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	p, ok := x.(*program)
	if !ok || p == nil {
		return nil, fmt.Errorf("profile: %w: not a program of this driver", gpu.ErrInvalid)
	}
	if err := p.ready(d); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if repeat < 1 {
		return nil, fmt.Errorf("profile %q: %w: %d repetitions", p.label, gpu.ErrInvalid, repeat)
	}
	period := d.timestampPeriod()
	if !d.timestamps || period == 0 {
		return nil, fmt.Errorf("profile %q on %s: %w", p.label, d.info.Name, gpu.ErrNoTimestamps)
	}
	if err := d.flush(); err != nil {
		return nil, err
	}
	c, err := d.newClock(min(p.count, profiled))
	if err != nil {
		return nil, fmt.Errorf("profile %q: %w", p.label, err)
	}
	defer c.release()
	best := make([]int64, p.count)
	for run := range repeat + 1 {
		for first := 0; first < p.count; first += profiled {
			part := p.native()[first:min(first+profiled, p.count)]
			ticks, err := c.run(ctx, part)
			if err != nil {
				return nil, fmt.Errorf("profile %q: %w", p.label, err)
			}
			timed := 0
			for i := range part {
				if part[i].pipeline == nil {
					continue
				}
				from, to := ticks[2*timed], ticks[2*timed+1]
				timed++
				if ns := int64(float64(to-min(from, to)) * period); run == 1 || run > 1 && ns < best[first+i] {
					best[first+i] = ns
				}
			}
		}
	}
	return best, nil
}

// timestampPeriod is the nanoseconds of one unit of a timestamp, or 0 where that is not known. Libraries before wgpu 29 do not say;
// of the drivers whose unit is fixed, NVIDIA's and Mesa's software one use 1 ns.
func (d *device) timestampPeriod() float64 {
	if period := float64(C.pl_timestamp_period(d.queue)); period > 0 {
		return period
	}
	if d.info.Vendor == "nvidia" || d.info.Vendor == "mesa" {
		return 1
	}
	return 0
}

// A clock is what timing takes: queries, a buffer that they are resolved to, and one that can be read.
type clock struct {
	d        *device
	set      C.WGPUQuerySet
	resolved C.WGPUBuffer
	out      *buffer
}

func (d *device) newClock(dispatches int) (*clock, error) {
	c := &clock{d: d}
	queries := 2 * max(dispatches, 1)
	c.set = C.pl_create_query_set(d.raw, C.uint32_t(queries), d.cerr)
	err := d.failed("query set")
	if err == nil {
		c.resolved, err = d.create("timestamps", int64(8*queries), C.PL_USAGE_RESOLVE|gpu.UsageCopySrc)
	}
	if err == nil {
		c.out, err = d.newBuffer("timestamps", int64(8*queries), gpu.UsageMapRead|gpu.UsageCopyDst)
	}
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

func (c *clock) release() {
	if c.d.Err() != nil {
		return
	}
	if c.set != nil {
		C.pl_release_query_set(c.set, c.d.cerr)
	}
	if c.resolved != nil {
		C.pl_release_buffer(c.resolved, c.d.cerr)
	}
	if c.out != nil {
		c.out.released = true
		c.d.drop(c.out)
	}
	_ = c.d.failed("release timestamps") // an abort makes the device lost; nothing else can come
}

// run runs commands once and returns two timestamps for each dispatch.
func (c *clock) run(ctx context.Context, commands []C.pl_command) ([]uint64, error) {
	timed := 0
	for i := range commands {
		if commands[i].pipeline != nil {
			timed++
		}
	}
	C.pl_profile(c.d.raw, c.d.queue, &commands[0], C.size_t(len(commands)), c.set, c.resolved, c.out.raw, c.d.cerr)
	if err := c.d.failed("run"); err != nil || timed == 0 {
		return nil, err
	}
	bytes := make([]byte, 16*timed)
	if err := c.d.read(ctx, c.out, 0, bytes); err != nil {
		return nil, err
	}
	ticks := make([]uint64, 2*timed)
	for i := range ticks {
		ticks[i] = binary.LittleEndian.Uint64(bytes[8*i:])
	}
	return ticks, nil
}
