package kernels

import (
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// matmulTile is the number of tokens, and of rows of the weight, per workgroup of matmul.
const matmulTile = 64

func noConsts(quant.Format, int) wgsl.Consts { return nil }

func (s *Set) matmul() variant {
	return variant{
		kernel: "matmul", name: "matmul", parts: 1, consts: noConsts,
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return [3]uint32{uint32(ceil(n, matmulTile)), uint32(ceil(rows, matmulTile)), 1}
			}
		},
	}
}
