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

// lanesShape is how many invocations share how many rows of the weight.
type lanesShape struct{ lanes, rows int }

// lanesShapes are those that pay somewhere.
var lanesShapes = []lanesShape{{32, 8}, {64, 8}, {32, 4}, {64, 4}, {128, 4}}

func (s *Set) matmulLanes(l lanesShape) variant {
	return variant{
		kernel: "matmul_lanes", name: fmt.Sprintf("lanes %dx%d", l.lanes, l.rows), parts: 1, gates: true,
		consts: func(quant.Format, int) wgsl.Consts {
			return wgsl.Consts{"LANES": uint32(l.lanes), "ROWS": uint32(l.rows)}
		},
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return gpu.Grid(ceil(ceil(n, l.rows), lanesWG/l.lanes), ceil(rows, lanesTokens), s.limits.MaxWorkgroupsPerDim)
			}
		},
	}
}

// matmulLanesAll lists the shapes for rows tokens, n outputs and k inputs, the best on an H200 first: the less there is to do, the more
// lanes it takes to occupy the device.
func (s *Set) matmulLanesAll(rows, n, k int) []variant {
	best := lanesShape{32, 8}
	switch {
	case n >= tileWhole:
	case k >= 2048 && rows <= 8:
		best = lanesShape{128, 4}
	case k >= 2048 && rows <= 16:
		best = lanesShape{64, 4}
	case k >= 2048 || rows <= 16:
		best = lanesShape{64, 8}
	}
	list := []variant{s.matmulLanes(best)}
	for _, l := range lanesShapes {
		if l != best {
			list = append(list, s.matmulLanes(l))
		}
	}
	return list
}
