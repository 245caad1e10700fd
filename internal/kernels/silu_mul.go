package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// SiLUMulArgs are the arguments of SiLUMul.
type SiLUMulArgs struct {
	Rows   int         // most rows, M
	Dim    int         // elements of a row of Out
	GateUp gpu.Buffer  // [M, 2*Dim] f32, gate first
	Out    gpu.Buffer  // [M, Dim] f32, written
	Step   gpu.Binding // holds the rows that a step really has
}

type siluMulParams struct{ Dim, Pad0, Pad1, Pad2 uint32 }

// SiLUMul computes silu(gate) * up.
func (s *Set) SiLUMul(a SiLUMulArgs) (Op, error) {
	d, err := s.siluMul(&a)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "silu_mul", rows: a.Rows, choose: always(d),
		traffic: func(rows int) int64 { return 12 * int64(rows) * int64(a.Dim) },
	}, nil
}

// siluMul makes the dispatch.
func (s *Set) siluMul(a *SiLUMulArgs) (*dispatch, error) {
	c := checker{op: "silu_mul"}
	c.positive("Rows", a.Rows)
	c.positive("Dim", a.Dim)
	c.buffer("GateUp", a.GateUp, 2*a.Rows*a.Dim)
	c.buffer("Out", a.Out, a.Rows*a.Dim)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("silu_mul", nil, nil)
	if err != nil {
		return nil, err
	}
	group, err := s.bind(p, siluMulParams{Dim: uint32(a.Dim)}, a.Step, a.GateUp, a.Out)
	return &dispatch{p, group, s.elementwise(a.Dim, elementWG)}, err
}
