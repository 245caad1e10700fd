package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// GatherColumnsArgs are the arguments of GatherColumns.
type GatherColumnsArgs struct {
	Rows    int         // most rows, M
	K       int         // elements of a row of Out
	XStride int         // elements of a row of X; 0 means K
	Order   gpu.Buffer  // [K] u32: the element of a row of X that becomes element j of Out
	X       gpu.Buffer  // [M, XStride] f32
	Out     gpu.Buffer  // [M, K] f32, written
	Step    gpu.Binding // holds the rows that a step really has
}

type gatherColumnsParams struct{ K, XStride, Pad0, Pad1 uint32 }

// GatherColumns puts the elements of each row in another order.
func (s *Set) GatherColumns(a GatherColumnsArgs) (Op, error) {
	if a.XStride == 0 {
		a.XStride = a.K
	}
	c := checker{op: "gather_columns"}
	c.positive("Rows", a.Rows)
	c.positive("K", a.K)
	c.want(a.XStride >= 1, "XStride is %d", a.XStride)
	c.buffer("Order", a.Order, a.K)
	c.buffer("X", a.X, a.Rows*a.XStride)
	c.buffer("Out", a.Out, a.Rows*a.K)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("gather_columns", nil, nil)
	if err != nil {
		return nil, err
	}
	params := gatherColumnsParams{K: uint32(a.K), XStride: uint32(a.XStride)}
	group, err := s.bind(p, params, a.Step, a.Order, a.X, a.Out)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "gather_columns", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(a.K, elementWG)}),
		traffic: func(rows int) int64 { return 4 * int64(a.K) * (2*int64(rows) + 1) },
	}, nil
}
