//go:build cgo && !js

package wgpunative

import "github.com/pagelight/pagelight/internal/gpu"

// Fetch implements gpu.Device.
func (d *device) Fetch(src gpu.Buffer, size int64) (gpu.Fetch, error) {
	return gpu.ReadLater(d, src), nil
}
