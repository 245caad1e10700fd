package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

const (
	serialWG     = 8 // invocations per workgroup of matmul_serial, matmul_uniform and paged_attn_serial
	serialTokens = 4 // tokens per invocation of matmul_serial where there are several
)

// serialConsts specialises matmul_serial and matmul_uniform for tokens tokens per invocation.
func serialConsts(tokens int, f quant.Format, k int) wgsl.Consts {
	return wgsl.Consts{"TOKENS": uint32(tokens), "FOURS": uint32(serialFours(tokens)), "WIDE": wide(f, k)}
}

// serialFours is the number of rows of an invocation, in fours: more share each load of x, fewer leave more workgroups for
// the threads.
func serialFours(tokens int) int {
	if tokens == 1 {
		return 2
	}
	return 4
}

// serialGrid is the grid for rows tokens and n rows of the weight.
func (s *Set) serialGrid(tokens, rows, n int) [3]uint32 {
	return gpu.Grid(ceil(n, 4*serialFours(tokens)*serialWG), ceil(rows, tokens), s.limits.MaxWorkgroupsPerDim)
}

// matmulSerial takes tokens tokens per invocation.
func (s *Set) matmulSerial(tokens int) variant {
	return variant{
		kernel: "matmul_serial", name: fmt.Sprintf("serial %d", tokens), parts: 1,
		consts: func(f quant.Format, k int) wgsl.Consts { return serialConsts(tokens, f, k) },
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 { return s.serialGrid(tokens, rows, n) }
		},
	}
}
