//go:build js && wasm

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/webgpujs"
	"github.com/pagelight/pagelight/internal/weights"
)

// chooseDevice opens the device that was asked for: "gpu" is any adapter, "cpu" Pagelight's own kernels, "auto" a hardware
// adapter, else whichever of software adapter and own kernels is faster for the model. notes say why it is not a GPU.
func chooseDevice(ctx context.Context, want string, src weights.Source) (dev gpu.Device, notes []string, err error) {
	switch want {
	case "cpu":
		dev, err = cpu.Open(cpu.Options{})
		return dev, nil, err
	case "gpu":
		dev, err = openWebGPU(ctx)
		return dev, nil, err
	}
	dev, err = openWebGPU(ctx)
	if errors.Is(err, gpu.ErrNoAdapter) {
		var no *webgpujs.AdapterError
		errors.As(err, &no)
		dev, err = cpu.Open(cpu.Options{})
		return dev, []string{fmt.Sprintf("runs on the processor, without a GPU: %s", no.Message)}, err
	}
	if err != nil || dev.Info().Kind == gpu.KindHardware {
		return dev, nil, err
	}
	if params := numWeights(src.Config()); params < softwareFrom {
		name := dev.Info().Name
		dev.Close()
		dev, err = cpu.Open(cpu.Options{})
		return dev, []string{fmt.Sprintf("runs on the processor with Pagelight's own kernels: for a model of %d weights they are faster than the software adapter %s", params, name)}, err
	}
	return dev, []string{"no GPU was found; the adapter is a program that runs on the processor"}, nil
}

// softwareFrom is the number of weights from which a software adapter, which uses several threads but takes long to start
// each kernel, is faster than Pagelight's own kernels on the one thread of a worker.
const softwareFrom = 3 << 20

// openWebGPU keeps a nil *webgpujs.Device out of the interface.
func openWebGPU(ctx context.Context) (gpu.Device, error) {
	dev, err := webgpujs.Open(ctx)
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// numWeights counts the weights that every token is multiplied with.
func numWeights(c *weights.Config) int64 {
	n := int64(0)
	for _, t := range weights.Tensors(c) {
		n += int64(t.Rows) * int64(t.K)
	}
	return n
}
