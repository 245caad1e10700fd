//go:build js && wasm

package webgpujs

import "github.com/pagelight/pagelight/internal/gpu"

// Fetch implements gpu.Device.
func (d *Device) Fetch(src gpu.Buffer, size int64) (gpu.Fetch, error) {
	return gpu.ReadLater(d, src), nil
}
