package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// KVStoreArgs are the arguments of KVStore.
type KVStoreArgs struct {
	Rows      int // most rows, M
	KVHeads   int // G
	HeadDim   int // D
	RowStride int // elements of a row of QKV, an even number; a multiple of 4 for quant.KVI8
	KOffset   int // first element of the keys in a row, likewise
	VOffset   int // first element of the values in a row, likewise
	KV        quant.KVType
	Tokens    gpu.Buffer  // [M] vec4<u32>: id, position, slot, sequence
	QKV       gpu.Buffer  // [M, RowStride] f32
	KCache    gpu.Buffer  // [blocks, G, BlockSize, D] by KV, written
	VCache    gpu.Buffer  // [blocks, G, BlockSize, D] by KV, written
	Step      gpu.Binding // holds the rows that a step really has
}

type kvStoreParams struct{ KVHeads, RowStride, KOffset, VOffset uint32 }

// KVStore puts the keys and values of a step's tokens into their slots.
func (s *Set) KVStore(a KVStoreArgs) (Op, error) {
	c := checker{op: "kv_store"}
	c.positive("Rows", a.Rows)
	c.positive("KVHeads", a.KVHeads)
	c.headDim(a.HeadDim)
	size := a.KVHeads * a.HeadDim
	name, consts, each := "kv_store", wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "KV_TYPE": uint32(a.KV)}, 2
	if a.KV == quant.KVI8 {
		name, consts, each = "kv_store_i8", wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim)}, 4
	}
	for _, offset := range []int{a.KOffset, a.VOffset} {
		c.want(offset >= 0 && offset%each == 0 && offset+size <= a.RowStride,
			"elements %d to %d do not fit into RowStride %d from a multiple of %d", offset, offset+size, a.RowStride, each)
	}
	c.want(a.RowStride%each == 0, "RowStride is %d, not a multiple of %d", a.RowStride, each)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	c.cache(a.KCache, a.VCache, a.KVHeads, a.HeadDim, a.KV)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline(name, nil, consts)
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
		// kv_store takes two keys and two values each, kv_store_i8 eight of either.
		name: name, rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(size/each, elementWG)}),
		traffic: func(rows int) int64 {
			return int64(rows) * (8*int64(size) + 2*a.KV.BlockBytes(a.KVHeads, a.HeadDim)/BlockSize + 16)
		},
	}, nil
}

// cache demands two buffers of whole blocks.
func (c *checker) cache(k, v gpu.Buffer, kvHeads, headDim int, kv quant.KVType) {
	c.want(kv <= quant.KVI8, "no cache of %v", kv)
	c.want(k != nil && v != nil, "KCache or VCache is missing")
	if c.err != nil {
		return
	}
	block := kv.BlockBytes(kvHeads, headDim)
	c.want(k.Size() >= block && v.Size() >= block, "KCache has %d bytes and VCache %d, a block has %d", k.Size(), v.Size(), block)
}
