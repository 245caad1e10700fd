//go:build js && wasm

package webgpujs

import (
	"strings"

	"github.com/pagelight/pagelight/internal/gpu"
)

// adapterFacts is what the browser says about an adapter.
type adapterFacts struct {
	vendor, architecture, device, description, features string
	software                                            bool
	subgroupMin, subgroupMax                            int // 0: not told
}

func newInfo(f adapterFacts) gpu.Info {
	info := gpu.Info{
		Kind: gpu.KindHardware, Vendor: f.vendor, Backend: "WebGPU", Driver: "webgpujs", SubgroupMin: f.subgroupMin, SubgroupMax: f.subgroupMax,
	}
	for _, name := range []string{f.description, f.device, strings.TrimSpace(f.vendor + " " + f.architecture)} {
		if name != "" && info.Name == "" {
			info.Name = name
		}
	}
	if info.Name == "" {
		info.Name = "unnamed adapter" // Firefox and Safari may say nothing at all
	}
	if f.features != "" {
		info.Features = strings.Split(f.features, ",")
	}
	if f.software {
		info.Kind, info.BarrierFree = gpu.KindSoftware, true
	}
	return info
}
