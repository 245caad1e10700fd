package kernels

import (
	"math"

	"github.com/pagelight/pagelight/wgsl"
)

// prefillQueries is the number of tokens per workgroup.
const prefillQueries = 16

func invSqrt(d int) float32 { return float32(1 / math.Sqrt(float64(d))) }

// attnPrefill tiles queries.
func (s *Set) attnPrefill(a *AttentionArgs) (func(rows int) []*dispatch, error) {
	tile := uint32(16)
	if a.HeadDim > 128 {
		tile = 8 // keeps workgroup memory under 16 KiB
	}
	consts := wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "TILE": tile}
	p, err := s.pipeline("paged_attn_prefill", nil, consts)
	if err != nil {
		return nil, err
	}
	group, err := s.bind(p, a.params(), a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, a.Out)
	if err != nil {
		return nil, err
	}
	return always(&dispatch{p, group, func(rows int) [3]uint32 {
		return [3]uint32{uint32(ceil(rows, prefillQueries)), uint32(a.Heads), 1}
	}}), nil
}
