package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// matmulTile is the number of tokens, and of rows of the weight, per workgroup of matmul.
const matmulTile = 64

// The shape of matmul_serial.
const (
	serialWG     = 8 // invocations per workgroup
	serialTokens = 4 // tokens per invocation where there are several
)

func noConsts(quant.Format, int) wgsl.Consts { return nil }

func (s *Set) matmul() variant {
	return variant{
		name: "matmul", consts: noConsts,
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return [3]uint32{uint32(ceil(n, matmulTile)), uint32(ceil(rows, matmulTile)), 1}
			}
		},
	}
}

// matmulSerial takes tokens tokens per invocation, 1 or serialTokens. apart is half of a pair that shares the rows: a token
// alone in its four is left to the half with tokens 1.
func (s *Set) matmulSerial(tokens int, apart bool) variant {
	fours := uint32(2) // more rows share each load of x, fewer leave more workgroups for the threads
	if tokens > 1 {
		fours = 4
	}
	v := variant{
		name: "matmul_serial",
		consts: func(f quant.Format, k int) wgsl.Consts {
			return wgsl.Consts{"TOKENS": uint32(tokens), "FOURS": fours, "WIDE": wide(f, k)}
		},
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				if apart && tokens == 1 {
					rows = 1
				}
				return gpu.Grid(ceil(n, 4*int(fours)*serialWG), ceil(rows, tokens), s.limits.MaxWorkgroupsPerDim)
			}
		},
	}
	if apart {
		v.flags = flagApart
	}
	return v
}
