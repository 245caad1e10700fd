package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// Shape of the workgroups of matvec.
const (
	matvecWG    = 128
	matvecLanes = 32 // invocations per row
)

// matvec takes rowsM tokens per workgroup.
func (s *Set) matvec(rowsM int) variant {
	return variant{
		kernel: "matvec", name: fmt.Sprintf("matvec %d", rowsM), parts: 1,
		consts: func(f quant.Format, k int) wgsl.Consts {
			return wgsl.Consts{"ROWS_M": uint32(rowsM), "WIDE": wide(f, k)}
		},
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return gpu.Grid(ceil(n, matvecWG/matvecLanes), ceil(rows, rowsM), s.limits.MaxWorkgroupsPerDim)
			}
		},
	}
}
