package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// RopeStoreArgs are the arguments of RopeStore.
type RopeStoreArgs struct {
	Rows      int // most rows, M
	Heads     int // H
	KVHeads   int // G
	HeadDim   int // D
	RowStride int // elements of a row of QKV, an even number
	HalfSplit bool
	KV        quant.KVType // one that StoresFused knows
	Tokens    gpu.Buffer   // [M] vec4<u32>: id, position, slot, sequence
	Table     gpu.Buffer   // [positions, D/2] vec2<f32>: cosine and sine
	QKV       gpu.Buffer   // [M, RowStride] f32: H queries, G keys, G values; the queries are rotated in place
	KCache    gpu.Buffer   // [blocks, G, BlockSize, D] by KV, written
	VCache    gpu.Buffer   // [blocks, G, BlockSize, D] by KV, written
	Step      gpu.Binding  // holds the rows that a step really has
}

type ropeStoreParams struct{ Heads, KVHeads, RowStride, Parts, Flags, Pad0, Pad1, Pad2 uint32 }

// width is the elements of a row that have a meaning.
func (a *RopeStoreArgs) width() int { return (a.Heads + 2*a.KVHeads) * a.HeadDim }

func (a *RopeStoreArgs) check(c *checker) {
	c.positive("Rows", a.Rows)
	c.positive("Heads", a.Heads)
	c.positive("KVHeads", a.KVHeads)
	c.headDim(a.HeadDim)
	c.want(a.RowStride >= a.width() && a.RowStride%2 == 0, "RowStride is %d, not an even number that is at least %d", a.RowStride, a.width())
	c.want(StoresFused(a.KV), "no cache of %v", a.KV)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("Table", a.Table, a.HeadDim)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	c.cache(a.KCache, a.VCache, a.KVHeads, a.HeadDim, a.KV)
}

// RopeStore is Rope and KVStore in one kernel.
func (s *Set) RopeStore(a RopeStoreArgs) (Op, error) {
	c := checker{op: "rope_store"}
	a.check(&c)
	if c.err != nil {
		return nil, c.err
	}
	d, bind, err := s.ropeStore(&a, nil, 0)
	if err == nil {
		err = bind(nil)
	}
	if err != nil {
		return nil, err
	}
	return &op{name: "rope_store", rows: a.Rows, choose: always(d), traffic: a.traffic}, nil
}

// ropeStore rotates and stores what a linear layer leaves: in QKV, or, if its K was cut, as parts in the scratch buffer, for which its
// group waits then, to which bias is still to be added.
func (s *Set) ropeStore(a *RopeStoreArgs, bias gpu.Buffer, parts int) (*dispatch, func(scratch gpu.Buffer) error, error) {
	p, err := s.pipeline("rope_store", nil, wgsl.Consts{
		"HEAD_DIM": uint32(a.HeadDim), "HALF_SPLIT": bit(a.HalfSplit), "KV_TYPE": uint32(a.KV),
	})
	if err != nil {
		return nil, nil, err
	}
	params := ropeStoreParams{Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), Parts: uint32(parts)}
	if bias != nil {
		params.Flags = flagBias
	}
	d := &dispatch{pipeline: p, grid: s.elementwise(a.width()/4, elementWG)}
	return d, func(scratch gpu.Buffer) (err error) {
		d.group, err = s.bind(p, params, a.Step, a.Tokens, a.Table, scratch, bias, a.QKV, a.KCache, a.VCache)
		return err
	}, nil
}

func (a *RopeStoreArgs) traffic(rows int) int64 {
	return int64(rows) * (4*int64(a.width()+a.Heads*a.HeadDim+a.HeadDim) + 2*a.KV.BlockBytes(a.KVHeads, a.HeadDim)/BlockSize + 16)
}
