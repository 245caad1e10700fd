package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// KVStoreArgs are the arguments of KVStore.
type KVStoreArgs struct {
	Rows      int         // most rows, M
	KVHeads   int         // G
	HeadDim   int         // D
	RowStride int         // elements of a row of QKV, an even number
	KOffset   int         // first element of the keys in a row, an even number
	VOffset   int         // first element of the values in a row, an even number
	F16       bool        // the cache holds f16 pairs instead of f32
	Tokens    gpu.Buffer  // [M] vec4<u32>: id, position, slot, sequence
	QKV       gpu.Buffer  // [M, RowStride] f32
	KCache    gpu.Buffer  // [blocks, G, BlockSize, D], written
	VCache    gpu.Buffer  // [blocks, G, BlockSize, D], written
	Step      gpu.Binding // holds the rows that a step really has
}

type kvStoreParams struct{ KVHeads, RowStride, KOffset, VOffset uint32 }

// CacheBytes is the size of one block of keys, or of values, of one layer.
func CacheBytes(kvHeads, headDim int, f16 bool) int64 {
	if f16 {
		return 2 * BlockSize * int64(kvHeads) * int64(headDim)
	}
	return 4 * BlockSize * int64(kvHeads) * int64(headDim)
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// KVStore puts the keys and values of a step's tokens into their slots.
func (s *Set) KVStore(a KVStoreArgs) (Op, error) {
	c := checker{op: "kv_store"}
	c.positive("Rows", a.Rows)
	c.positive("KVHeads", a.KVHeads)
	c.headDim(a.HeadDim)
	size := a.KVHeads * a.HeadDim
	for _, offset := range []int{a.KOffset, a.VOffset} {
		c.want(offset >= 0 && offset%2 == 0 && offset+size <= a.RowStride,
			"elements %d to %d do not fit into RowStride %d from an even offset", offset, offset+size, a.RowStride)
	}
	c.want(a.RowStride%2 == 0, "RowStride is %d, not even", a.RowStride)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	c.cache(a.KCache, a.VCache, a.KVHeads, a.HeadDim, a.F16)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("kv_store", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_F16": bit(a.F16)})
	if err != nil {
		return nil, err
	}
	params := kvStoreParams{
		KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), KOffset: uint32(a.KOffset), VOffset: uint32(a.VOffset),
	}
	group, err := s.bind(p, params, a.Step, a.Tokens, a.QKV, a.KCache, a.VCache)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "kv_store", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(size/2, elementWG)}),
		traffic: func(rows int) int64 {
			return int64(rows) * (8*int64(size) + 2*CacheBytes(a.KVHeads, a.HeadDim, a.F16)/BlockSize + 16)
		},
	}, nil
}

// cache demands two buffers of whole blocks.
func (c *checker) cache(k, v gpu.Buffer, kvHeads, headDim int, f16 bool) {
	c.want(k != nil && v != nil, "KCache or VCache is missing")
	if c.err != nil {
		return
	}
	block := CacheBytes(kvHeads, headDim, f16)
	c.want(k.Size() >= block && v.Size() >= block, "KCache has %d bytes and VCache %d, a block has %d", k.Size(), v.Size(), block)
}
