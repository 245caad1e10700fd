package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// MeasureDevice measures what bounds every model on a device: how fast it copies, and what a dispatch costs. Nothing else may use
// the device meanwhile. What cannot be measured is 0, and Note says why.
func MeasureDevice(ctx context.Context, dev gpu.Device) Device {
	var d Device
	var err1, err2 error
	d.CopyGBps, err1 = copySpeed(ctx, dev)
	d.DispatchUS, d.SubmitUS, err2 = dispatchCost(ctx, dev)
	if err := errors.Join(err1, err2); err != nil {
		d.Note = err.Error()
	}
	return d
}

// slope is the time of each of many runs of a program within one submission beyond the first few, the least of five attempts: what
// a submission costs by itself is not in it.
func slope(ctx context.Context, dev gpu.Device, p gpu.Program, few, many int) (time.Duration, error) {
	run := func(n int) (time.Duration, error) {
		list := make([]gpu.Program, n)
		for i := range list {
			list[i] = p
		}
		start := time.Now()
		if err := dev.Submit(list...); err != nil {
			return 0, err
		}
		err := dev.Wait(ctx)
		return time.Since(start), err
	}
	var least [2]time.Duration
	for i := range 6 { // the first attempt wakes the device
		for j, n := range []int{few, many} {
			took, err := run(n)
			if err != nil {
				return 0, err
			}
			if i < 2 || took < least[j] {
				least[j] = took
			}
		}
	}
	if least[1] <= least[0] {
		return 0, fmt.Errorf("%d runs took no longer than %d", many, few)
	}
	return (least[1] - least[0]) / time.Duration(many-few), nil
}

// copySpeed copies between buffers that no cache holds, on a GPU; bytes read and written both count.
func copySpeed(ctx context.Context, dev gpu.Device) (float64, error) {
	size, many := int64(16<<20), 6
	if dev.Info().Kind == gpu.KindHardware {
		size, many = 256<<20, 34
	}
	size = min(size, dev.Limits().MaxBufferSize)
	var b [2]gpu.Buffer
	for i := range b {
		var err error
		if b[i], err = dev.NewBuffer("bandwidth", size, gpu.UsageCopySrc|gpu.UsageCopyDst); err != nil {
			return 0, fmt.Errorf("copy speed: %w", err)
		}
		defer b[i].Release()
	}
	p, err := dev.NewProgram("bandwidth", []gpu.Command{{CopySrc: b[0], CopyDst: b[1], CopySize: size}})
	if err != nil {
		return 0, fmt.Errorf("copy speed: %w", err)
	}
	defer p.Release()
	each, err := slope(ctx, dev, p, 2, many)
	if err != nil {
		return 0, fmt.Errorf("copy speed: %w", err)
	}
	return 2 * float64(size) / each.Seconds() / 1e9, nil
}

// dispatchCost runs chains of small kernels each of which needs what the one before it wrote.
func dispatchCost(ctx context.Context, dev gpu.Device) (chained, alone float64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cost of a dispatch: %w", err)
		}
	}()
	const links, width = 50, 64
	set := kernels.New(dev)
	defer set.Release()
	var made []gpu.Buffer
	defer func() {
		for _, b := range made {
			b.Release()
		}
	}()
	buffer := func(size int64, usage gpu.Usage) gpu.Buffer {
		b, e := dev.NewBuffer("dispatch cost", size, usage)
		err = errors.Join(err, e)
		if e == nil {
			made = append(made, b)
		}
		return b
	}
	const usage = gpu.UsageStorage | gpu.UsageCopySrc | gpu.UsageCopyDst
	x, y := buffer(8*width, usage), buffer(8*width, usage)
	step, back := buffer(256, gpu.UsageUniform|gpu.UsageCopyDst), buffer(4, gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		return 0, 0, err
	}
	if err = dev.WriteBuffer(step, 0, gpu.Bytes([]uint32{1, 0, 0, 0})); err != nil {
		return 0, 0, err
	}
	var ops [2]kernels.Op
	for i, b := range [][2]gpu.Buffer{{x, y}, {y, x}} {
		ops[i], err = set.SiLUMul(kernels.SiLUMulArgs{Rows: 1, Dim: width, GateUp: b[0], Out: b[1], Step: gpu.Binding{Buffer: step}})
		if err != nil {
			return 0, 0, err
		}
	}
	if err = set.Compile(ctx, nil); err != nil {
		return 0, 0, err
	}
	var chain []gpu.Command
	for i := range links {
		chain = append(chain, ops[i%2].Record(1)...)
	}
	long, err := dev.NewProgram("chain", chain)
	if err != nil {
		return 0, 0, err
	}
	defer long.Release()
	each, err := slope(ctx, dev, long, 4, 24)
	if err != nil {
		return 0, 0, err
	}
	short, err := dev.NewProgram("dispatch and read", append(ops[0].Record(1), gpu.Command{CopySrc: y, CopyDst: back, CopySize: 4}))
	if err != nil {
		return 0, 0, err
	}
	defer short.Release()
	var samples []float64
	for range 31 {
		start := time.Now()
		if err = dev.Submit(short); err == nil {
			err = dev.Read(ctx, back, 0, make([]byte, 4))
		}
		if err != nil {
			return 0, 0, err
		}
		samples = append(samples, time.Since(start).Seconds())
	}
	return 1e6 * each.Seconds() / links, 1e6 * spread(samples).Median, nil
}
