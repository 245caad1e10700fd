package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// Shape of the workgroups of matmul_lanes.
const (
	lanesWG     = 128
	lanesTokens = 8 // tokens per workgroup
)

// matmulLanes has lanes invocations, 32, 64 or 128, share shared rows, 4 or 8.
func (s *Set) matmulLanes(lanes, shared int) variant {
	name := fmt.Sprintf("lanes %d", lanes)
	if shared != 4 {
		name += fmt.Sprintf("x%d", shared)
	}
	return variant{
		kernel: "matmul_lanes", name: name, parts: 1, gates: true,
		consts: func(quant.Format, int) wgsl.Consts {
			return wgsl.Consts{"LANES": uint32(lanes), "ROWS": uint32(shared)}
		},
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return gpu.Grid(ceil(ceil(n, shared), lanesWG/lanes), ceil(rows, lanesTokens), s.limits.MaxWorkgroupsPerDim)
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
