package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// CombineExpertsArgs are the arguments of CombineExperts.
type CombineExpertsArgs struct {
	Rows   int // most rows, M
	TopK   int
	Dim    int
	Shares gpu.Buffer  // [M, TopK] f32, by Route
	Parts  gpu.Buffer  // [M, TopK, Dim] f32
	Y      gpu.Buffer  // [M, Dim] f32, added to
	Step   gpu.Binding // holds the rows that a step really has
}

type combineParams struct{ Dim, Slots, Pad0, Pad1 uint32 }

// CombineExperts adds what the experts of each row found, by their shares.
func (s *Set) CombineExperts(a CombineExpertsArgs) (Op, error) {
	c := checker{op: "moe_combine"}
	c.positive("Rows", a.Rows)
	c.positive("Dim", a.Dim)
	c.want(a.TopK >= 1 && a.TopK <= MaxSlots, "TopK is %d, want 1 to %d", a.TopK, MaxSlots)
	c.buffer("Shares", a.Shares, a.Rows*a.TopK)
	c.buffer("Parts", a.Parts, a.Rows*a.TopK*a.Dim)
	c.buffer("Y", a.Y, a.Rows*a.Dim)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("moe_combine", nil, nil)
	if err != nil {
		return nil, err
	}
	group, err := s.bind(p, combineParams{Dim: uint32(a.Dim), Slots: uint32(a.TopK)}, a.Step, a.Shares, a.Parts, a.Y)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "moe_combine", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(a.Dim, elementWG)}),
		traffic: func(rows int) int64 { return 4 * int64(rows) * int64(a.Dim) * int64(a.TopK+2) },
	}, nil
}
