package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// MeasureDevice measures what bounds every model on a device: how fast it copies, and what a dispatch costs. Nothing else may use
// the device meanwhile. What cannot be measured is 0, and Note says why.
func MeasureDevice(ctx context.Context, dev gpu.Device) Device {
	var d Device
	var err1, err2 error
	d.CopyGBps, err1 = streamSpeed(ctx, dev)
	d.DispatchUS, d.SubmitUS, err2 = dispatchCost(ctx, dev)
	if err := errors.Join(err1, err2); err != nil {
		d.Note = err.Error()
	}
	return d
}

// slope is the time of each of many runs of a program beyond the first few, each a submission of its own, so that the device is at work
// while the next one is encoded: the least of five attempts. What waiting costs is not in it.
func slope(ctx context.Context, dev gpu.Device, p gpu.Program, few, many int) (time.Duration, error) {
	run := func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := dev.Submit(p); err != nil {
				return 0, err
			}
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

// stream is the kernel that reads.
//
//go:embed stream.wgsl
var stream string

// streamSpeed is the bytes a second, read and written, of what moves more of them: copies between buffers, or a kernel that reads. The
// buffers are larger than any cache of a GPU.
func streamSpeed(ctx context.Context, dev gpu.Device) (best float64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("speed of memory: %w", err)
		}
	}()
	size, many := int64(16<<20), 4
	if dev.Info().Kind == gpu.KindHardware {
		size, many = 256<<20, 10
	}
	limits := dev.Limits()
	size = min(size, limits.MaxBufferSize, limits.MaxStorageBinding) &^ (1<<20 - 1)
	r := rig{dev: dev}
	defer r.release()
	const usage = gpu.UsageStorage | gpu.UsageCopySrc | gpu.UsageCopyDst
	from, to := r.buffer(size, usage), r.buffer(size, usage)
	if r.err != nil {
		return 0, r.err
	}
	copied, err := r.speed(ctx, many, 2*size, gpu.Command{CopySrc: from, CopyDst: to, CopySize: size})
	if err != nil || dev.Info().Kind == gpu.KindCPU { // its kernels are Go
		return copied, err
	}
	layout := []gpu.BindingKind{gpu.BindRead, gpu.BindReadWrite}
	made, err := dev.NewPipelines(ctx, []gpu.PipelineDesc{{Label: "stream", Kernel: "stream", Source: stream, Layout: layout}}, nil)
	if err != nil {
		return 0, err
	}
	defer made[0].Release()
	group, err := dev.NewBindGroup("stream", layout, []gpu.Binding{{Buffer: from}, {Buffer: to, Size: 256}})
	if err != nil {
		return 0, err
	}
	defer group.Release()
	const perGroup = 256 * 16 * 16 // bytes: invocations, elements of each, size of an element
	read, err := r.speed(ctx, many, size, gpu.Command{Pipeline: made[0], BindGroup: group, Grid: gpu.Grid(int(size/perGroup), 1, limits.MaxWorkgroupsPerDim)})
	return max(copied, read), err
}

// speed is the bytes a second of a command that moves so many, in 10^9. A submission has several, so that making it takes less time
// than they do.
func (r *rig) speed(ctx context.Context, many int, bytes int64, c gpu.Command) (float64, error) {
	const together = 4
	p, err := r.dev.NewProgram("bandwidth", slices.Repeat([]gpu.Command{c}, together))
	if err != nil {
		return 0, err
	}
	defer p.Release()
	each, err := slope(ctx, r.dev, p, 2, many)
	if err != nil {
		return 0, err
	}
	return float64(together*bytes) / each.Seconds() / 1e9, nil
}

// rig makes buffers; the first error stays.
type rig struct {
	dev  gpu.Device
	made []gpu.Buffer
	err  error
}

func (r *rig) buffer(size int64, usage gpu.Usage) gpu.Buffer {
	b, err := r.dev.NewBuffer("measuring the device", size, usage)
	if err != nil {
		r.err = errors.Join(r.err, err)
		return nil
	}
	r.made = append(r.made, b)
	return b
}

func (r *rig) release() {
	for _, b := range r.made {
		b.Release()
	}
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
	r := rig{dev: dev}
	defer r.release()
	const usage = gpu.UsageStorage | gpu.UsageCopySrc | gpu.UsageCopyDst
	x, y := r.buffer(8*width, usage), r.buffer(8*width, usage)
	step, back := r.buffer(256, gpu.UsageUniform|gpu.UsageCopyDst), r.buffer(4, gpu.UsageMapRead|gpu.UsageCopyDst)
	if r.err != nil {
		return 0, 0, r.err
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
