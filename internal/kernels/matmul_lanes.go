package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// Shape of the workgroups of matmul_lanes.
const (
	lanesWG     = 128
	lanesTokens = 8 // tokens per workgroup
	lanesRows   = 4 // rows of the weight that invocations share
)

// matmulLanes has lanes invocations share rows: 32, 64 or 128.
func (s *Set) matmulLanes(lanes int) variant {
	return variant{
		kernel: "matmul_lanes", name: "lanes " + map[int]string{32: "32", 64: "64", 128: "128"}[lanes], parts: 1, gates: true,
		consts: func(quant.Format, int) wgsl.Consts { return wgsl.Consts{"LANES": uint32(lanes)} },
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return gpu.Grid(ceil(ceil(n, lanesRows), lanesWG/lanes), ceil(rows, lanesTokens), s.limits.MaxWorkgroupsPerDim)
			}
		},
	}
}

// lanesOf lists the numbers of lanes for rows tokens and k inputs, the best first: the fewer tokens there are, the more it takes to
// occupy a device, as long as each lane finds a few inputs.
func lanesOf(rows, k int) []int {
	switch {
	case k >= 2048 && rows <= 8:
		return []int{128, 64, 32}
	case k >= 2048 && rows <= 16:
		return []int{64, 32, 128}
	}
	return []int{32, 64, 128}
}
