package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/weights"
)

// faster keeps the software adapter dev or replaces it by the processor, whichever computes a token's MLP sooner. A small
// model is bound by the cost of a dispatch, a large one by arithmetic, and both differ from machine to machine, so it is
// measured.
func faster(ctx context.Context, dev gpu.Device, src weights.Source, log *slog.Logger) (gpu.Device, error) {
	processor, err := cpu.Open(cpu.Options{})
	if err != nil {
		return dev, nil // then there is no choice
	}
	soft, softErr := probe(ctx, dev, src)
	own, ownErr := probe(ctx, processor, src)
	if err := ctx.Err(); err != nil {
		dev.Close()
		processor.Close()
		return nil, err
	}
	if softErr != nil || ownErr == nil && own < soft {
		log.Warn("running on the processor: no hardware adapter, and the software adapter is slower for this model",
			measured(own, soft, softErr)...)
		dev.Close()
		return processor, nil
	}
	log.Warn("running on the software adapter: no hardware adapter, and the processor alone is slower for this model",
		measured(own, soft, ownErr)...)
	processor.Close()
	return dev, nil
}

// measured is what the log says of the two.
func measured(processor, software time.Duration, err error) []any {
	args := []any{"processor", processor, "software_adapter", software}
	if err != nil {
		args = append(args, "err", err)
	}
	return args
}

// probe is the time that a device takes for the MLP's two matrices of one layer, for one token.
func probe(ctx context.Context, dev gpu.Device, src weights.Source) (best time.Duration, err error) {
	cfg := src.Config()
	set := kernels.New(dev)
	defer set.Release()
	var buffers []gpu.Buffer
	defer func() {
		for _, b := range buffers {
			b.Release()
		}
	}()
	buffer := func(size int64, usage gpu.Usage) gpu.Buffer {
		b, e := dev.NewBuffer("probe", size, usage|gpu.UsageCopyDst)
		err = errors.Join(err, e)
		buffers = append(buffers, b)
		return b
	}
	matrix := func(name string, rows int) kernels.Weight {
		info, e := src.Info(name)
		if e != nil {
			err = errors.Join(err, e)
			return kernels.Weight{}
		}
		p := kernels.Part{Rows: rows, Format: info.Format, Data: buffer(int64(rows*info.Format.RowBytes(info.K)+15)&^15, gpu.UsageStorage)}
		if info.Format.Group != 0 {
			p.Scales = buffer(int64(rows*info.Format.ScaleBytes(info.K)), gpu.UsageStorage)
		}
		return kernels.Weight{Rows: rows, K: info.K, Parts: []kernels.Part{p}}
	}
	up := matrix("model.layers.0.mlp.up_proj.weight", cfg.IntermediateSize)
	down := matrix("model.layers.0.mlp.down_proj.weight", cfg.HiddenSize)
	x, y := buffer(int64(4*cfg.HiddenSize), gpu.UsageStorage), buffer(int64(4*cfg.IntermediateSize), gpu.UsageStorage)
	step := buffer(kernels.StepBytes, gpu.UsageUniform)
	if err != nil {
		return 0, fmt.Errorf("probe: %w", err)
	}
	if err := dev.WriteBuffer(step, 0, gpu.Bytes([]uint32{1, 0, 0, 0})); err != nil {
		return 0, err
	}
	at := gpu.Binding{Buffer: step}
	first, err := set.Linear(kernels.LinearArgs{Rows: 1, X: x, W: up, Y: y, Step: at})
	if err != nil {
		return 0, err
	}
	second, err := set.Linear(kernels.LinearArgs{Rows: 1, X: y, W: down, Y: x, Step: at})
	if err != nil {
		return 0, err
	}
	if err := set.Compile(ctx, nil); err != nil {
		return 0, err
	}
	program, err := dev.NewProgram("probe", append(first.Record(1), second.Record(1)...))
	if err != nil {
		return 0, err
	}
	defer program.Release()
	for range 4 {
		start := time.Now()
		for range 8 {
			if err := dev.Submit(program); err != nil {
				return 0, err
			}
		}
		if err := dev.Wait(ctx); err != nil {
			return 0, err
		}
		if took := time.Since(start) / 8; best == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
