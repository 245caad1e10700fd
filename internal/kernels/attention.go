package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
)

// AttentionArgs are the arguments of Attention.
type AttentionArgs struct {
	Rows        int     // most rows, M
	Heads       int     // H
	KVHeads     int     // G, which divides H
	HeadDim     int     // D
	RowStride   int     // elements of a row of QKV, a multiple of 4
	MaxBlocks   int     // entries of a row of BlockTables
	Scale       float32 // of the scores; 0 means D^-0.5
	KV          quant.KVType
	Tokens      gpu.Buffer  // [M] vec4<u32>: id, position, slot, sequence
	BlockTables gpu.Buffer  // [sequences, MaxBlocks] u32
	QKV         gpu.Buffer  // [M, RowStride] f32; the queries are the first H*D elements of a row
	KCache      gpu.Buffer  // [blocks, G, BlockSize, D], by KV
	VCache      gpu.Buffer  // [blocks, G, BlockSize, D], by KV
	Out         gpu.Buffer  // [M, H*D] f32, written
	Step        gpu.Binding // holds the rows that a step really has
}

// attnParams are the Params of paged_attn_prefill.
type attnParams struct {
	Heads, KVHeads, RowStride, MaxBlocks uint32
	Scale                                float32
	Pad0, Pad1, Pad2                     uint32
}

// MaxPositions is the longest context that the attention kernels are made for, twice what conformance tries.
const MaxPositions = 1 << 18

// Attention computes causal attention of each row over the positions 0 to its own of its sequence, which must be in the
// cache already. It runs decode and reduce for few rows and prefill for many; rows may belong to any sequences in both. With
// Tuning.Deterministic decode and reduce serve all rows, and cut a context where its positions say.
func (s *Set) Attention(a AttentionArgs) (Op, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	if a.Scale == 0 {
		a.Scale = invSqrt(a.HeadDim)
	}
	few := s.tuning.decodeMost(a.Rows)
	var forFew, forMany func(rows int) []*dispatch
	var err error
	if few >= 1 {
		forFew, err = s.attnDecode(&a, few)
	}
	switch {
	case err != nil:
	case s.tuning.BarrierFree:
		forMany, err = s.attnSerial(&a)
	case a.Rows > few:
		forMany, err = s.attnPrefill(&a)
	}
	if err != nil {
		return nil, err
	}
	return &op{
		name: "attention", rows: a.Rows,
		choose: func(rows int) []*dispatch {
			if rows <= few {
				return forFew(rows)
			}
			return forMany(rows)
		},
		traffic: func(rows int) int64 { return int64(rows) * int64(8*a.Heads*a.HeadDim+16) },
	}, nil
}

func (a *AttentionArgs) check() error {
	c := checker{op: "attention"}
	c.positive("Rows", a.Rows)
	c.positive("Heads", a.Heads)
	c.positive("KVHeads", a.KVHeads)
	c.positive("MaxBlocks", a.MaxBlocks)
	c.headDim(a.HeadDim)
	if c.err != nil {
		return c.err
	}
	c.want(a.Heads%a.KVHeads == 0, "%d heads cannot share %d KV heads", a.Heads, a.KVHeads)
	c.want(a.RowStride >= a.Heads*a.HeadDim && a.RowStride%4 == 0,
		"RowStride is %d, not a multiple of 4 that is at least %d", a.RowStride, a.Heads*a.HeadDim)
	c.want(a.MaxBlocks*BlockSize <= MaxPositions, "contexts of %d blocks are longer than %d positions", a.MaxBlocks, MaxPositions)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("BlockTables", a.BlockTables, a.MaxBlocks)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	c.buffer("Out", a.Out, a.Rows*a.Heads*a.HeadDim)
	c.cache(a.KCache, a.VCache, a.KVHeads, a.HeadDim, a.KV)
	return c.err
}

func (a *AttentionArgs) params() attnParams {
	return attnParams{
		Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), MaxBlocks: uint32(a.MaxBlocks),
		Scale: a.Scale,
	}
}
