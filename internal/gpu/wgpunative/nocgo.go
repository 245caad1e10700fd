//go:build !cgo && !js

// Package wgpunative is the native driver of the device seam. This build has no cgo, so it has no adapters.
package wgpunative

import (
	"context"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

// Options chooses a device.
type Options struct {
	Prefer        gpu.Kind
	Adapter       string
	DefaultLimits bool
	Label         string
}

// Adapters lists what Open can open: nothing.
func Adapters() ([]gpu.Info, error) { return nil, nil }

// Open fails with an error that wraps gpu.ErrNoAdapter.
func Open(context.Context, Options) (gpu.Device, error) {
	return nil, fmt.Errorf("%w: built without cgo, which WebGPU needs", gpu.ErrNoAdapter)
}
