package kernels

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// Shape of the workgroups of matmul_lanes.
const (
	lanesWG     = 128
	lanesTokens = 8   // tokens per workgroup
	lanesGroups = 256 // workgroups that are enough
)

// laneShape is a shape of matmul_lanes: so many lanes share so many rows of the weight.
type laneShape struct{ lanes, rows int }

// groups is the workgroups for rows tokens and n outputs.
func (l laneShape) groups(rows, n int) int {
	return ceil(ceil(n, l.rows), lanesWG/l.lanes) * ceil(rows, lanesTokens)
}

// matmulLanes takes lanes of a shape.
func (s *Set) matmulLanes(l laneShape) variant {
	name := fmt.Sprintf("lanes %d", l.lanes)
	if l.rows != 4 {
		name += fmt.Sprintf("x%d", l.rows)
	}
	return variant{
		kernel: "matmul_lanes", name: name, parts: 1, gates: true, norms: true,
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

// laneShapes lists the shapes for rows tokens, n outputs and k inputs, the best first: of those that give every processor of a large GPU
// two workgroups the one with the fewest, which reads and decodes least, else the one with the most. On an H200 this was the fastest for 8, 16
// and 32 tokens and 2,560, 6,144 and 103,424 outputs of 1,024 inputs. Shapes with lanes that find no inputs come last.
func laneShapes(rows, n, k int) []laneShape {
	list := []laneShape{{32, 4}, {32, 8}, {64, 4}, {64, 8}, {128, 4}}
	idle := func(l laneShape) int { return int(bit(l.lanes > 32 && 8*l.lanes > k)) }
	slices.SortStableFunc(list, func(a, b laneShape) int {
		x, y := a.groups(rows, n), b.groups(rows, n)
		if c := cmp.Compare(idle(a), idle(b)); c != 0 {
			return c
		}
		if x >= lanesGroups && y >= lanesGroups {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(y, x)
	})
	return list
}
