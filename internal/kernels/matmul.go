package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// Results per workgroup of matmul and matmul_serial.
const (
	matmulTile         = 64 // tokens, and rows of the weight
	matmulSerialTokens = 4
	matmulSerialRows   = 4 * serialWG // rows of the weight
)

func noConsts(quant.Format, int) wgsl.Consts { return nil }

func (s *Set) matmul(maxRows int) variant {
	return variant{
		name: "matmul", maxRows: maxRows, consts: noConsts,
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return [3]uint32{uint32(ceil(n, matmulTile)), uint32(ceil(rows, matmulTile)), 1}
			}
		},
	}
}

func (s *Set) matmulSerial(maxRows int) variant {
	return variant{
		name: "matmul_serial", maxRows: maxRows, consts: noConsts,
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return gpu.Grid(ceil(n, matmulSerialRows), ceil(rows, matmulSerialTokens), s.limits.MaxWorkgroupsPerDim)
			}
		},
	}
}
