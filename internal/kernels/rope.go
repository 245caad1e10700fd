package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// RopeArgs are the arguments of Rope.
type RopeArgs struct {
	Rows      int         // most rows, M
	Heads     int         // heads to rotate, which lie first in a row: query heads and the key heads that follow them
	HeadDim   int         // D
	RowStride int         // elements of a row of QKV
	HalfSplit bool        // pairs are half a head apart, not neighbours
	Tokens    gpu.Buffer  // [M] vec4<u32>: id, position, slot, sequence
	Table     gpu.Buffer  // [positions, D/2] vec2<f32>: cosine and sine
	QKV       gpu.Buffer  // [M, RowStride] f32, rotated in place
	Step      gpu.Binding // holds the rows that a step really has
}

type ropeParams struct{ Heads, RowStride, Pad0, Pad1 uint32 }

// Rope rotates pairs by the angle of their token's position.
func (s *Set) Rope(a RopeArgs) (Op, error) {
	c := checker{op: "rope"}
	c.positive("Rows", a.Rows)
	c.positive("Heads", a.Heads)
	c.headDim(a.HeadDim)
	c.want(a.RowStride >= a.Heads*a.HeadDim, "RowStride is %d, less than %d", a.RowStride, a.Heads*a.HeadDim)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("Table", a.Table, a.HeadDim)
	c.buffer("QKV", a.QKV, a.Rows*a.RowStride)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("rope", nil, wgsl.Consts{"HEAD_DIM": uint32(a.HeadDim), "HALF_SPLIT": bit(a.HalfSplit)})
	if err != nil {
		return nil, err
	}
	params := ropeParams{Heads: uint32(a.Heads), RowStride: uint32(a.RowStride)}
	group, err := s.bind(p, params, a.Step, a.Tokens, a.Table, a.QKV)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "rope", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(a.Heads*a.HeadDim/2, elementWG)}),
		traffic: func(rows int) int64 { return int64(rows) * int64(8*a.Heads*a.HeadDim+4*a.HeadDim+16) },
	}, nil
}
