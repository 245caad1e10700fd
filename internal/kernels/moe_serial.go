package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// moeSerialRows is the rows of w of an invocation of moe_serial.
const moeSerialRows = 8

// moeSerial takes tile pairs per invocation.
func (s *Set) moeSerial(tile int, tiles func(rows int) int) expertVariant {
	return expertVariant{
		name:   "moe_serial",
		consts: func(f quant.Format, k int) wgsl.Consts { return wgsl.Consts{"TILE": uint32(tile), "WIDE": wide(f, k)} },
		grid: func(n, rows int) [3]uint32 {
			return gpu.Grid(ceil(n, moeSerialRows*serialWG), tiles(rows), s.limits.MaxWorkgroupsPerDim)
		},
	}
}
