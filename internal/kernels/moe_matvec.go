package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// moeMatvec is matvec for one row of an expert's inputs.
func (s *Set) moeMatvec(topK int) expertVariant {
	return expertVariant{
		name:   "moe_matvec",
		consts: func(f quant.Format, k int) wgsl.Consts { return wgsl.Consts{"WIDE": wide(f, k)} },
		grid: func(n, rows int) [3]uint32 {
			return gpu.Grid(ceil(n, matvecWG/matvecLanes), rows*topK, s.limits.MaxWorkgroupsPerDim)
		},
	}
}
