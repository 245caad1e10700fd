package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// QKNormArgs are the arguments of QKNorm.
type QKNormArgs struct {
	Rows           int         // most rows, M
	Heads, KVHeads int         // H, G: query heads lie first in a row, then key heads
	HeadDim        int         // D
	RowStride      int         // elements of a row of QKV
	Eps            float32     // added to the mean square
	QWeight        gpu.Buffer  // [D] f32
	KWeight        gpu.Buffer  // [D] f32
	QKV            gpu.Buffer  // [M, RowStride] f32, normalised in place
	Step           gpu.Binding // holds the rows that a step really has
}

type qkNormParams struct {
	Heads, KVHeads, RowStride uint32
	Eps                       float32
}

// Shape of the workgroups of qk_norm.
const (
	qkNormWG    = 64
	qkNormLanes = 32 // invocations per head
)

// QKNorm normalises each query head and each key head by its root mean square.
func (s *Set) QKNorm(a QKNormArgs) (Op, error) {
	heads := a.Heads + a.KVHeads
	c := checker{op: "qk_norm"}
	c.positive("Rows", a.Rows)
	c.positive("Heads", a.Heads)
	c.positive("KVHeads", a.KVHeads)
	c.headDim(a.HeadDim)
	c.want(a.RowStride >= heads*a.HeadDim, "RowStride is %d, less than %d", a.RowStride, heads*a.HeadDim)
	c.buffer("QWeight", a.QWeight, a.HeadDim)
	c.buffer("KWeight", a.KWeight, a.HeadDim)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	if c.err != nil {
		return nil, c.err
	}
	workgroup, lanes := qkNormWG, qkNormLanes
	if s.tuning.BarrierFree {
		workgroup, lanes = serialWG, 1
	}
	p, err := s.pipeline("qk_norm", nil, wgsl.Consts{"WG": uint32(workgroup), "LANES": uint32(lanes), "HEAD_DIM": uint32(a.HeadDim)})
	if err != nil {
		return nil, err
	}
	params := qkNormParams{Heads: uint32(a.Heads), KVHeads: uint32(a.KVHeads), RowStride: uint32(a.RowStride), Eps: a.Eps}
	group, err := s.bind(p, params, a.Step, a.QWeight, a.KWeight, a.QKV)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "qk_norm", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(heads, workgroup/lanes)}),
		traffic: func(rows int) int64 { return int64(a.HeadDim) * (8*int64(rows)*int64(heads) + 8) },
	}, nil
}
