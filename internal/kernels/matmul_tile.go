package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// tileShape is a shape of the workgroups of matmul_tile: wg invocations, tx by ty by as many slices as there are, which have tm tokens
// and tileCols rows of the weight each; a line has vecs vectors.
type tileShape struct{ wg, tx, ty, tm, vecs int }

const tileCols = 8 // rows of the weight per invocation

func (t tileShape) m() int { return t.ty * t.tm }
func (t tileShape) n() int { return t.tx * tileCols }

// octets is how many inputs over 8 are in workgroup memory at a time.
func (t tileShape) octets() int { return t.vecs / 2 }

// tileShapes are those that pay somewhere: few tokens, some, and many.
var tileShapes = []tileShape{
	{256, 8, 8, 4, 8}, {128, 8, 8, 4, 8}, {256, 8, 8, 8, 8}, {128, 8, 8, 8, 8}, {128, 8, 16, 8, 4}, {256, 16, 8, 8, 4}, {256, 16, 16, 8, 4},
}

// name says what tells shapes apart.
func (t tileShape) name() string {
	name := fmt.Sprintf("tile %dx%d", t.m(), t.n())
	if t.wg != 256 {
		name += fmt.Sprintf("/%d", t.wg)
	}
	return name
}

// Bounds of matmul_tile with K split over workgroups.
const (
	// tileWorkgroups are wanted at the least; a GPU of 132 processors has two for each then.
	tileWorkgroups = 264
	tileMostGroups = 8 * tileWorkgroups // more say nothing
	tileMostParts  = 16
	tileLeastK     = 128      // inputs of a part
	tileWhole      = 8192     // outputs for which K is never cut: there are enough workgroups
	tilePartsBytes = 16 << 20 // of partial sums
)

// tilePartsMost is the room for partial sums that a layer reserves, whichever variants are chosen.
func tilePartsMost(rows, n, k int) int64 {
	parts := 1
	for 2*parts <= tileMostParts && k/(2*parts) >= tileLeastK {
		parts *= 2
	}
	if parts == 1 || n >= tileWhole || rows <= FusedRows {
		return 0
	}
	return min(tilePartsBytes, 4*int64(parts)*int64(rows)*int64(n))
}

// parts lists the numbers of parts that K may be cut into for rows rows, the one that suits most devices first.
func (t tileShape) parts(rows, n, k int) []int {
	groups := ceil(n, t.n()) * ceil(rows, t.m())
	list := []int{1}
	best := 0
	for parts := 2; parts <= tileMostParts && n < tileWhole && rows > FusedRows; parts *= 2 {
		if groups*parts > tileMostGroups || k/parts < tileLeastK || 4*parts*rows*n > tilePartsBytes {
			break
		}
		if groups*list[best] < tileWorkgroups {
			best = len(list)
		}
		list = append(list, parts)
	}
	list[0], list[best] = list[best], list[0]
	return list
}

// matmulTile takes tiles, with K cut into parts.
func (s *Set) matmulTile(t tileShape, parts int) variant {
	name := t.name()
	if parts > 1 {
		name += fmt.Sprintf(" k%d", parts)
	}
	return variant{
		kernel: "matmul_tile", name: name, parts: parts, gates: true, octets: t.octets(),
		consts: func(quant.Format, int) wgsl.Consts {
			return wgsl.Consts{
				"WG": uint32(t.wg), "TX": uint32(t.tx), "TY": uint32(t.ty), "TM": uint32(t.tm), "VECS": uint32(t.vecs),
			}
		},
		grid: func(n int) func(int) [3]uint32 {
			return func(rows int) [3]uint32 {
				return [3]uint32{uint32(ceil(n, t.n())), uint32(ceil(rows, t.m())), uint32(parts)}
			}
		},
	}
}

// sumPartsParams are the Params of sum_parts.
type sumPartsParams struct{ N, Parts, YStride, YOffset, Flags, Pad0, Pad1, Pad2 uint32 }

// sumParts ends a linear layer whose K was cut; its group waits for the scratch buffer.
func (s *Set) sumParts(a *LinearArgs, parts int) (*dispatch, func(scratch gpu.Buffer) error, error) {
	p, err := s.pipeline("sum_parts", nil, wgsl.Consts{"GATED": bit(a.Gated)})
	if err != nil {
		return nil, nil, err
	}
	d := &dispatch{pipeline: p, grid: s.elementwise(a.outputs(), elementWG)}
	params := sumPartsParams{N: uint32(a.W.Rows), Parts: uint32(parts), YStride: uint32(a.YStride), YOffset: uint32(a.YOffset), Flags: a.flags()}
	return d, func(scratch gpu.Buffer) (err error) {
		d.group, err = s.bind(p, params, a.Step, scratch, a.Bias, a.Y)
		return err
	}, nil
}
