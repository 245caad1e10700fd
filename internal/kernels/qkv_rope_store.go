package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
)

// QKVRopeStoreArgs are the arguments of QKVRopeStore.
type QKVRopeStoreArgs struct {
	Rows      int // most rows, M, at most FusedRows
	Heads     int // H
	KVHeads   int // G
	HeadDim   int // D
	RowStride int // elements of a row of QKV
	HalfSplit bool
	KV        quant.KVType
	Eps       float32     // added to the mean square
	Tokens    gpu.Buffer  // [FusedRows] vec4<u32>: id, position, slot, sequence; made with gpu.UsageUniform
	X         gpu.Buffer  // [M, W.K] f32
	Norm      gpu.Buffer  // [W.K] f32, the weight of the RMS norm
	W         Weight      // [(H+2G)*D, K], in one part
	Table     gpu.Buffer  // [positions, D/2] vec2<f32>: cosine and sine
	QKV       gpu.Buffer  // [M, RowStride] f32; the queries are written, and nothing else
	KCache    gpu.Buffer  // [blocks, G, BlockSize, D] by KV, written
	VCache    gpu.Buffer  // [blocks, G, BlockSize, D] by KV, written
	Step      gpu.Binding // holds the rows that a step really has
}

type qkvParams struct {
	K, Heads, KVHeads, RowStride uint32
	Eps                          float32
	Pad0, Pad1, Pad2             uint32
}

// FusedRows is the largest number of rows of QKVRopeStore.
const FusedRows = 4

// StoresFused says whether QKVRopeStore can store such a cache: bytes need the whole vector before the first of them is known.
func StoresFused(kv quant.KVType) bool { return kv != quant.KVI8 }

// QKVRopeStore is RMSNorm, Linear without bias, Rope and KVStore in one kernel.
func (s *Set) QKVRopeStore(a QKVRopeStoreArgs) (Op, error) {
	c := checker{op: "qkv_rope_store"}
	c.positive("Rows", a.Rows)
	c.want(a.Rows <= FusedRows, "Rows is %d, more than %d", a.Rows, FusedRows)
	c.positive("Heads", a.Heads)
	c.positive("KVHeads", a.KVHeads)
	c.headDim(a.HeadDim)
	c.weight(&a.W)
	if c.err != nil {
		return nil, c.err
	}
	_, whole := s.CanFuse(&a.W)
	c.want(whole, "weights of %d parts and %d columns in %v cannot be read", len(a.W.Parts), a.W.K, a.W.Parts[0].Format)
	c.want(a.W.Rows == (a.Heads+2*a.KVHeads)*a.HeadDim, "W has %d rows, the heads %d", a.W.Rows, (a.Heads+2*a.KVHeads)*a.HeadDim)
	c.want(a.RowStride >= a.Heads*a.HeadDim, "RowStride is %d, less than %d", a.RowStride, a.Heads*a.HeadDim)
	c.want(StoresFused(a.KV), "no cache of %v", a.KV)
	c.buffer("Tokens", a.Tokens, 4*FusedRows)
	c.buffer("X", a.X, a.Rows*a.W.K)
	c.buffer("Norm", a.Norm, a.W.K)
	c.buffer("Table", a.Table, a.HeadDim)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	c.cache(a.KCache, a.VCache, a.KVHeads, a.HeadDim, a.KV)
	if c.err != nil {
		return nil, c.err
	}
	part := a.W.Parts[0]
	params := qkvParams{
		K: uint32(a.W.K), Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), Eps: a.Eps,
	}
	ranges := []gpu.Binding{{Buffer: a.Tokens, Size: 16 * FusedRows}}
	for _, b := range []gpu.Buffer{a.X, a.Norm, part.Data, part.Scales, a.Table, a.QKV, a.KCache, a.VCache} {
		ranges = append(ranges, gpu.Binding{Buffer: b})
	}
	defer s.tried(trial{
		in: []gpu.Buffer{a.X}, out: []gpu.Buffer{a.QKV}, cache: []gpu.Buffer{a.KCache, a.VCache}, kv: a.KV,
		again: func() (Op, error) { return s.QKVRopeStore(a) },
	})()
	v := s.chooseFour(fmt.Sprintf("qkv_rope_store %v", part.Format), a.W.Rows, a.W.K, false)
	consts := v.consts(a.W.K)
	consts["HEADS"], consts["HEAD_DIM"] = uint32(a.Heads+2*a.KVHeads), uint32(a.HeadDim)
	consts["HALF_SPLIT"], consts["KV_TYPE"] = bit(a.HalfSplit), uint32(a.KV)
	p, err := s.pipeline("qkv_rope_store", &part.Format, consts)
	if err != nil {
		return nil, err
	}
	group, err := s.bindRanges(p, params, a.Step, ranges...)
	if err != nil {
		return nil, err
	}
	grid := s.fourGrid(a.W.Rows, v)
	return &op{name: "qkv_rope_store", rows: a.Rows, choose: always(&dispatch{p, group, grid}), traffic: func(rows int) int64 {
		kv := 2 * a.KV.BlockBytes(a.KVHeads, a.HeadDim) / BlockSize
		return int64(rows) * (4*int64(a.W.K+a.Heads*a.HeadDim) + kv + a.W.bytes())
	}}, nil
}
