package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/wgsl"
)

// groupedShape is a shape of workgroups of paged_attn_grouped. Its partitions have wg/2 positions.
type groupedShape struct {
	heads int // query heads of one: 4 or 8
	wg    int // invocations: 128, or 256 for 4 heads
}

func (g groupedShape) String() string { return fmt.Sprintf("grouped %dx%d", g.heads, g.wg) }

// groupedShapes are all of them: those that make few rows fast first.
var groupedShapes = []groupedShape{{4, 256}, {4, 128}, {8, 128}}

// groupedNames lists the shapes that suit a, the default for rows rows first: few rows want many workgroups, many rows want to read
// keys and values once.
func (a *AttentionArgs) groupedNames(rows int) (list []string) {
	const wide, narrow = 32, 64 // rows up to which the first two shapes are the fastest
	first := 2
	switch {
	case rows <= wide:
		first = 0
	case rows <= narrow || a.Heads/a.KVHeads <= 4:
		first = 1
	}
	for i := range groupedShapes {
		if g := groupedShapes[(first+i)%len(groupedShapes)]; g.heads == 4 || a.Heads/a.KVHeads > 4 {
			list = append(list, g.String())
		}
	}
	return list
}

// splitsAt is the largest number of rows whose contexts paged_attn_grouped splits where they are long: more make enough workgroups.
const splitsAt = 16

// groupedParts is the number of partitions of long contexts: enough workgroups for the device, no more than the context has. With
// Tuning.Deterministic it is constant.
func (t Tuning) groupedParts(rows, heads, maxBlocks int) int {
	if t.Deterministic {
		return fixedParts
	}
	const together, most = 8, 16 // heads of a workgroup, partitions
	want := min(t.Workgroups/2/(rows*ceil(heads, together)), ceil(maxBlocks*BlockSize, decodePart), most)
	parts := 1
	for 2*parts <= want {
		parts *= 2
	}
	return parts
}

// groupedCut is the largest number of rows, rows at most, whose long contexts are split: all with Tuning.Deterministic.
func (t Tuning) groupedCut(rows, heads, maxBlocks int) int {
	if t.Deterministic {
		return rows
	}
	rows = min(rows, splitsAt)
	for rows >= 1 && t.groupedParts(rows, heads, maxBlocks) == 1 {
		rows--
	}
	return rows
}

// Splits says whether RecordLong makes steps of rows rows faster whose longest context has positions positions.
func (s *Set) Splits(rows, positions int) bool {
	return !s.tuning.BarrierFree && !s.tuning.Deterministic && rows <= splitsAt && positions >= LongContext
}

// attnGrouped reads keys and values once for heads that share them, for at most most rows. Results are written where they are whole,
// but for long contexts of few rows, which are split like those of attnDecode. With Tuning.Deterministic all are.
func (s *Set) attnGrouped(a *AttentionArgs, most int, g groupedShape) (attnDispatches, error) {
	cut := s.tuning.groupedCut(most, a.Heads, a.MaxBlocks)
	if s.tuning.Deterministic {
		split, err := s.attnGroupedSplit(a, cut, g)
		return attnDispatches{split, split}, err
	}
	whole, err := s.attnWhole(a, most, g)
	if err != nil || cut == 0 {
		return attnDispatches{whole, whole}, err
	}
	// Partitions make enough workgroups, so these may have many heads.
	if g = (groupedShape{4, 128}); a.Heads/a.KVHeads > 4 {
		g.heads = 8
	}
	split, err := s.attnGroupedSplit(a, cut, g)
	return attnDispatches{whole, func(rows int) []*dispatch {
		if rows <= cut {
			return split(rows)
		}
		return whole(rows)
	}}, err
}

// attnGroupedSplit splits the contexts of at most most rows.
func (s *Set) attnGroupedSplit(a *AttentionArgs, most int, g groupedShape) (func(rows int) []*dispatch, error) {
	p, err := s.groupedPipeline(a, g, false)
	if err != nil {
		return nil, err
	}
	parts := func(rows int) int { return s.tuning.groupedParts(rows, a.Heads, a.MaxBlocks) }
	return s.attnSplit(a, most, p, parts, a.groupedGrid(g))
}

// attnWhole writes results, for at most most rows.
func (s *Set) attnWhole(a *AttentionArgs, most int, g groupedShape) (func(rows int) []*dispatch, error) {
	p, err := s.groupedPipeline(a, g, true)
	if err != nil {
		return nil, err
	}
	group, err := s.bind(p, a.splitParams(1, 0, most), a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, a.Out)
	if err != nil {
		return nil, err
	}
	grid := a.groupedGrid(g)
	return always(&dispatch{p, group, func(rows int) [3]uint32 { return grid(rows, 1) }}), nil
}

func (s *Set) groupedPipeline(a *AttentionArgs, g groupedShape, whole bool) (*pipeline, error) {
	return s.pipeline("paged_attn_grouped", nil, wgsl.Consts{
		"WG": uint32(g.wg), "HEADS": uint32(g.heads), "HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "WHOLE": bit(whole),
	})
}

func (a *AttentionArgs) groupedGrid(g groupedShape) func(rows, parts int) [3]uint32 {
	groups := a.KVHeads * ceil(a.Heads/a.KVHeads, g.heads)
	return func(rows, parts int) [3]uint32 { return [3]uint32{uint32(groups), uint32(parts), uint32(rows)} }
}
