package kernels

import "github.com/pagelight/pagelight/wgsl"

// groupedShape is a shape of workgroups of paged_attn_grouped. Its partitions have wg/2 positions.
type groupedShape struct {
	name  string
	heads int  // query heads of one: 4 or 8
	wg    int  // invocations: 128, or 256 for 4 heads
	ahead bool // loads are early
}

// groupedShapes are all of them: what is the fastest for few rows first.
var groupedShapes = []groupedShape{
	{"grouped 4x256", 4, 256, true}, {"grouped 4x128", 4, 128, true}, {"grouped 4x128 late", 4, 128, false}, {"grouped 8x128", 8, 128, false},
}

// groupedFastest is the number of rows up to which each shape but the last is the fastest, on an H200.
var groupedFastest = []int{32, 64, 256}

// manyHeads is the shape that suits a best where there are workgroups enough.
func (a *AttentionArgs) manyHeads() groupedShape {
	if a.Heads/a.KVHeads > 4 {
		return groupedShapes[3]
	}
	return groupedShapes[2]
}

// groupedNames lists the shapes that suit a, the default for rows rows first: few rows want many workgroups, many rows want to read
// keys and values once.
func (a *AttentionArgs) groupedNames(rows int) (list []string) {
	first := a.manyHeads().name
	for i, most := range groupedFastest {
		if rows <= most {
			first = groupedShapes[i].name
			break
		}
	}
	list = append(list, first)
	for _, g := range groupedShapes {
		if g.name != first && (g.heads == 4 || a.Heads/a.KVHeads > 4) {
			list = append(list, g.name)
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
	split, err := s.attnGroupedSplit(a, cut, a.manyHeads()) // partitions make enough workgroups
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
		"AHEAD": bit(g.ahead),
	})
}

func (a *AttentionArgs) groupedGrid(g groupedShape) func(rows, parts int) [3]uint32 {
	groups := a.KVHeads * ceil(a.Heads/a.KVHeads, g.heads)
	return func(rows, parts int) [3]uint32 { return [3]uint32{uint32(groups), uint32(parts), uint32(rows)} }
}
