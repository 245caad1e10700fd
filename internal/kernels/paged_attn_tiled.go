package kernels

import "github.com/pagelight/pagelight/wgsl"

// tiledRows is the number of query rows per workgroup of paged_attn_tiled: tokens times heads.
const tiledRows = 64

// headsTogether is how many of the query heads that share a KV head a workgroup takes: a power of two, least at the least and 8 at
// the most; and how many workgroups that makes for all heads.
func (a *AttentionArgs) headsTogether(least int) (heads, groups int) {
	per := a.Heads / a.KVHeads
	heads = least
	for heads < min(per, 8) {
		heads *= 2
	}
	return heads, a.KVHeads * ceil(per, heads)
}

// attnTiled tiles queries, those of heads that share a KV head together.
func (s *Set) attnTiled(a *AttentionArgs, _ int) (func(rows int) []*dispatch, error) {
	heads, groups := a.headsTogether(1)
	p, err := s.pipeline("paged_attn_tiled", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "HEADS": uint32(heads)})
	if err != nil {
		return nil, err
	}
	group, err := s.bind(p, a.params(), a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, a.Out)
	if err != nil {
		return nil, err
	}
	return always(&dispatch{p, group, func(rows int) [3]uint32 {
		return [3]uint32{uint32(ceil(rows, tiledRows/heads)), uint32(groups), 1}
	}}), nil
}
