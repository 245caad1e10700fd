package kernels

import (
	"cmp"
	"fmt"
	"slices"

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
	{256, 8, 8, 4, 8},
	{128, 8, 8, 4, 8},
	{256, 8, 8, 8, 8},
	{128, 8, 8, 8, 8},
	{128, 8, 16, 8, 4},
	{128, 16, 8, 8, 4},
	{256, 16, 8, 8, 4},
	{256, 16, 16, 8, 4},
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
	tileProcessors = 132                 // of the GPU whose times cost describes
	tileMostGroups = 16 * tileProcessors // more say nothing
	tileLeastK     = 128                 // inputs of a part
	tileWhole      = 8192                // outputs for which K is never cut: there are enough workgroups
	tilePartsBytes = 16 << 20            // of partial sums
)

// tileParts are the numbers of parts that K may be cut into.
var tileParts = []int{1, 2, 3, 4, 6, 8, 12, 16}

// tilePartsMost is the room for partial sums that a layer reserves, whichever variants are chosen.
func tilePartsMost(rows, n, k int) int64 {
	if n >= tileWhole || rows <= FusedRows {
		return 0
	}
	parts := tileParts[0]
	for _, p := range tileParts[1:] {
		if k/p >= tileLeastK {
			parts = p
		}
	}
	if parts == 1 {
		return 0
	}
	return min(tilePartsBytes, 4*int64(parts)*int64(rows)*int64(n))
}

// tileOption is a shape with K cut into parts.
type tileOption struct {
	shape tileShape
	parts int
}

// tileOptions lists what matmul_tile can compute rows rows with, the one first that cost prefers.
func tileOptions(rows, n, k int) (list []tileOption) {
	for _, t := range tileShapes {
		if t.m() > 32 && 2*rows <= t.m() {
			continue
		}
		groups := ceil(n, t.n()) * ceil(rows, t.m())
		for _, parts := range tileParts {
			if parts > 1 && (n >= tileWhole || rows <= FusedRows || groups*parts > tileMostGroups || k/parts < tileLeastK ||
				4*parts*rows*n > tilePartsBytes) {
				break
			}
			list = append(list, tileOption{t, parts})
		}
	}
	slices.SortStableFunc(list, func(a, b tileOption) int { return cmp.Compare(a.cost(rows, n, k), b.cost(rows, n, k)) })
	return list
}

// cost is about what the tiles take on a GPU of tileProcessors, in multiplications of one processor. Processors have whole workgroups,
// and are slower with few of them; large tiles of 128 invocations read the least workgroup memory for a multiplication; each part begins
// with waiting for memory, and is written and read again. The
// weights were set by hand to times of an H200; it orders shapes, and is no prediction (docs/adr/0034-many-rows.md says how far off it is). What
// is faster on a device is found by measuring (Tuner).
func (o tileOption) cost(rows, n, k int) float64 {
	t := o.shape
	area := float64(t.m() * t.n())
	if t.wg == 128 {
		switch { // the more results an invocation has, and the more neighbours share what it reads
		case area < 64*64:
			area *= 1.35
		case area < 64*128:
			area *= 1.2
		}
	} else {
		area *= 1.42
	}
	stretch := 8 * t.octets()
	inputs := ceil(ceil(k, o.parts), stretch) * stretch
	turns := float64(ceil(ceil(n, t.n())*ceil(rows, t.m())*o.parts, tileProcessors))
	cost := (turns + 0.6) * float64(inputs+100) * area
	if o.parts > 1 {
		cost += 0.5e6 + 0.44*float64(o.parts*rows*n)
	}
	return cost
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
