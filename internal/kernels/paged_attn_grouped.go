package kernels

import "github.com/pagelight/pagelight/wgsl"

// attnGrouped reads keys and values once for the heads that share them, for at most most rows. It splits contexts like attnDecode, but
// writes results where they are whole.
func (s *Set) attnGrouped(a *AttentionArgs, most int) (func(rows int) []*dispatch, error) {
	heads, groups := a.headsTogether(4)
	describe := func(whole bool) (*pipeline, error) {
		return s.pipeline("paged_attn_grouped", nil, wgsl.Consts{
			"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "HEADS": uint32(heads), "WHOLE": bit(whole),
		})
	}
	parts := func(rows int) int { return s.tuning.decodeParts(rows, a.Heads, a.MaxBlocks) }
	grid := func(rows, parts int) [3]uint32 { return [3]uint32{uint32(groups), uint32(parts), uint32(rows)} }
	split := most // rows for which contexts are split
	for split >= 1 && parts(split) == 1 {
		split--
	}
	var forSplit func(int) []*dispatch
	if split >= 1 {
		p, err := describe(false)
		if err != nil {
			return nil, err
		}
		if forSplit, err = s.attnSplit(a, split, p, parts, grid); err != nil {
			return nil, err
		}
	}
	var whole []*dispatch
	if split < most {
		p, err := describe(true)
		if err != nil {
			return nil, err
		}
		group, err := s.bind(p, a.splitParams(1, 0, most), a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, a.Out)
		if err != nil {
			return nil, err
		}
		whole = append(whole, &dispatch{p, group, func(rows int) [3]uint32 { return grid(rows, 1) }})
	}
	return func(rows int) []*dispatch {
		if rows <= split {
			return forSplit(rows)
		}
		return whole
	}, nil
}
