package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// GatherRowsArgs are the arguments of GatherRows.
type GatherRowsArgs struct {
	Rows    int         // most rows picked, M
	Dim     int         // elements of a row of Out
	XStride int         // elements of a row of X; 0 means Dim
	Index   gpu.Buffer  // [M] u32: the row of X that becomes row m of Out
	X       gpu.Buffer  // [any, XStride] f32
	Out     gpu.Buffer  // [M, Dim] f32, written
	Step    gpu.Binding // holds the number of rows that a step really picks
}

type gatherRowsParams struct{ Dim, XStride, Pad0, Pad1 uint32 }

// GatherRows picks rows.
func (s *Set) GatherRows(a GatherRowsArgs) (Op, error) {
	if a.XStride == 0 {
		a.XStride = a.Dim
	}
	c := checker{op: "gather_rows"}
	c.positive("Rows", a.Rows)
	c.positive("Dim", a.Dim)
	c.want(a.XStride >= a.Dim, "XStride is %d, less than Dim %d", a.XStride, a.Dim)
	c.buffer("Index", a.Index, a.Rows)
	c.buffer("X", a.X, a.Dim)
	c.buffer("Out", a.Out, a.Rows*a.Dim)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("gather_rows", nil, nil)
	if err != nil {
		return nil, err
	}
	params := gatherRowsParams{Dim: uint32(a.Dim), XStride: uint32(a.XStride)}
	group, err := s.bind(p, params, a.Step, a.Index, a.X, a.Out)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "gather_rows", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(a.Dim, elementWG)}),
		traffic: func(rows int) int64 { return int64(rows) * int64(8*a.Dim+4) },
	}, nil
}
