package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

type attnDecodeParams struct {
	Heads, KVHeads, RowStride, MaxBlocks uint32
	Scale                                float32
	Parts, Pad0, Pad1                    uint32
}

// decodePart is the number of tokens in a partition of the context.
const decodePart = 64

// decodeParts is the number of partitions for rows rows: enough workgroups for the device, no more than the context has, and
// few distinct numbers, for each needs bind groups of its own.
func (s *Set) decodeParts(rows, heads, maxBlocks int) int {
	most := ceil(maxBlocks*BlockSize, decodePart)
	want := min(ceil(s.tuning.Workgroups, rows*heads), most)
	parts := 1
	for parts < want {
		parts *= 4
	}
	return min(parts, most)
}

// attnDecode splits the context over workgroups and combines what they found, for at most rows rows.
func (s *Set) attnDecode(a *AttentionArgs, rows int) (func(rows int) []*dispatch, error) {
	consts := wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV), "PART": decodePart}
	decode, err := s.pipeline("paged_attn_decode", nil, consts)
	if err != nil {
		return nil, err
	}
	reduce, err := s.pipeline("paged_attn_reduce", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim)})
	if err != nil {
		return nil, err
	}
	size := int64(0)
	recorded := map[int][]*dispatch{} // by partitions
	for m := 1; m <= rows; m++ {
		parts := s.decodeParts(m, a.Heads, a.MaxBlocks)
		size = max(size, 4*int64(m)*int64(a.Heads)*int64(parts)*int64(a.HeadDim+2))
		if recorded[parts] == nil {
			recorded[parts] = []*dispatch{
				{pipeline: decode, grid: func(rows int) [3]uint32 {
					return [3]uint32{uint32(a.Heads), uint32(parts), uint32(rows)}
				}},
				{pipeline: reduce, grid: s.elementwise(a.Heads*a.HeadDim, elementWG)},
			}
		}
	}
	s.later(size, func(scratch gpu.Buffer) (err error) {
		for parts, list := range recorded {
			params := attnDecodeParams{
				Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride),
				MaxBlocks: uint32(a.MaxBlocks), Scale: a.Scale, Parts: uint32(parts),
			}
			list[0].group, err = s.bind(decode, params, a.Step, a.Tokens, a.BlockTables, a.QKV, a.KCache, a.VCache, scratch)
			if err != nil {
				return err
			}
			list[1].group, err = s.bind(reduce, reduceParams{Heads: uint32(a.Heads), Parts: uint32(parts)}, a.Step, scratch, a.Out)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return func(rows int) []*dispatch { return recorded[s.decodeParts(rows, a.Heads, a.MaxBlocks)] }, nil
}
