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
		dev, err = cpu.Open(cpu.Options{Yield: webgpujs.Turn})
		return dev, nil, err
	case "gpu":
		dev, err = openWebGPU(ctx)
		return dev, nil, err
	}
	dev, err = openWebGPU(ctx)
	if errors.Is(err, gpu.ErrNoAdapter) {
		var no *webgpujs.AdapterError
		errors.As(err, &no)
		dev, err = cpu.Open(cpu.Options{Yield: webgpujs.Turn})
		return dev, []string{fmt.Sprintf("runs on the processor, without a GPU: %s", no.Message)}, err
	}
	if err != nil || dev.Info().Kind == gpu.KindHardware {
		return dev, nil, err
	}
	if n := numWeights(src.Config()); n < softwareFrom {
		dev.Close()
		dev, err = cpu.Open(cpu.Options{Yield: webgpujs.Turn})
		return dev, []string{fmt.Sprintf("no GPU was found; runs on the processor with Pagelight's own kernels, by rule: the model has %d weights, "+
			"and a software adapter pays from %d", n, int64(softwareFrom))}, err
	}
	return dev, []string{fmt.Sprintf("no GPU was found; runs on the processor with the software adapter, by rule: the model has %d weights "+
		"or more", int64(softwareFrom))}, nil
}

// softwareFrom is the number of weights from which a software adapter is chosen. It computes with vectors and on several
// threads where a worker has one thread and no vectors, but each kernel takes it about 20 us to start. Measured on two cores
// with SwiftShader: 1.4 M weights 1.4 times the speed, 1.0 M weights 0.8 times, 15.7 M weights (the built-in model) 2 to 3 times.
const softwareFrom = 1 << 20

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
