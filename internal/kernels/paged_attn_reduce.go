package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// splitParams are the Params of paged_attn_decode and paged_attn_serial, which compute partitions of contexts.
type splitParams struct {
	Heads, KVHeads, RowStride, MaxBlocks uint32
	Scale                                float32
	Parts, Row0, Rows                    uint32
}

// reduceParams are the Params of paged_attn_reduce.
type reduceParams struct{ Heads, Parts, Row0, Rows uint32 }

func (a *AttentionArgs) splitParams(parts, row0, rows int) splitParams {
	return splitParams{
		Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), MaxBlocks: uint32(a.MaxBlocks),
		Scale: a.Scale, Parts: uint32(parts), Row0: uint32(row0), Rows: uint32(rows),
	}
}

// Bounds of what lies between a kernel that computes partitions and paged_attn_reduce.
const (
	splitRows  = 64       // rows of one pair of dispatches
	splitBytes = 32 << 20 // of partitions
)

// splitRow is the size of what parts partitions of a row leave for paged_attn_reduce: [heads, parts, headDim + 4] f32.
func splitRow(heads, headDim, parts int) int { return 4 * heads * parts * (headDim + 4) }

// splitStep is how many rows are computed at a time.
func splitStep(heads, headDim, parts int) int {
	return max(1, min(splitRows, splitBytes/splitRow(heads, headDim, parts)))
}

// splitScratch is the size of what partitions leave for at most rows rows, parts(m) of a row in a step of m rows.
func splitScratch(rows, heads, headDim int, parts func(rows int) int) (size int64) {
	for m := 1; m <= rows; m++ {
		n := parts(m)
		size = max(size, int64(min(m, splitStep(heads, headDim, n)))*int64(splitRow(heads, headDim, n)))
	}
	return size
}

// attnSplit runs first, a kernel that computes partitions, and paged_attn_reduce, over some rows at a time. parts is the number of
// partitions for rows rows, which is 1 or more and never grows with rows; grid is that of first.
func (s *Set) attnSplit(a *AttentionArgs, most int, first *pipeline, parts func(rows int) int, grid func(rows, parts int) [3]uint32) (func(rows int) []*dispatch, error) {
	reduce, err := s.pipeline("paged_attn_reduce", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim)})
	if err != nil {
		return nil, err
	}
	atOnce := func(parts int) int { return splitStep(a.Heads, a.HeadDim, parts) }
	recorded := map[int][]*dispatch{} // by partitions: two for each stretch of rows
	for rows := 1; rows <= most; rows++ {
		n := parts(rows)
		step := atOnce(n)
		for list := recorded[n]; len(list) < 2*ceil(rows, step); list = recorded[n] {
			row0 := len(list) / 2 * step
			here := func(rows int) int { return min(step, rows-row0) }
			all := s.elementwise(a.Heads*a.HeadDim, elementWG)
			recorded[n] = append(list,
				&dispatch{pipeline: first, grid: func(rows int) [3]uint32 { return grid(here(rows), n) }},
				&dispatch{pipeline: reduce, grid: func(rows int) [3]uint32 { return all(here(rows)) }})
		}
	}
	s.later(splitScratch(most, a.Heads, a.HeadDim, parts), func(scratch gpu.Buffer) (err error) {
		for n, list := range recorded {
			for i := 0; i < len(list); i += 2 {
				p := a.splitParams(n, i/2*atOnce(n), atOnce(n))
				list[i].group, err = s.bind(first, p, a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, scratch)
				if err != nil {
					return err
				}
				reduced := reduceParams{Heads: p.Heads, Parts: p.Parts, Row0: p.Row0, Rows: p.Rows}
				if list[i+1].group, err = s.bind(reduce, reduced, a.Step, scratch, a.Out); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return func(rows int) []*dispatch {
		n := parts(rows)
		return recorded[n][:2*ceil(rows, atOnce(n))]
	}, nil
}
