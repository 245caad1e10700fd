package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// The most experts, and the most that a token is sent to, of the moe kernels.
const (
	MaxExperts = 512
	MaxSlots   = 16
)

// RouteArgs are the arguments of Route.
type RouteArgs struct {
	Rows    int         // most rows, M
	Experts int         // E, at most MaxExperts
	TopK    int         // experts that a token is sent to, at most MaxSlots
	NormMin float32     // least sum to divide by
	Logits  gpu.Buffer  // [M, E] f32
	Bias    gpu.Buffer  // [E] f32, for the choice alone
	Chosen  gpu.Buffer  // [M, TopK] u32, written: the experts, the best first
	Shares  gpu.Buffer  // [M, TopK] f32, written: how much each counts; they add up to 1
	Step    gpu.Binding // holds the rows that a step really has
}

type routeParams struct {
	Experts, Slots uint32
	NormMin        float32
	Pad0           uint32
}

// Route chooses the experts of each row.
func (s *Set) Route(a RouteArgs) (Op, error) {
	c := checker{op: "moe_route"}
	c.positive("Rows", a.Rows)
	c.experts(a.Experts, a.TopK)
	c.buffer("Logits", a.Logits, a.Rows*a.Experts)
	c.buffer("Bias", a.Bias, a.Experts)
	c.buffer("Chosen", a.Chosen, a.Rows*a.TopK)
	c.buffer("Shares", a.Shares, a.Rows*a.TopK)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("moe_route", nil, nil)
	if err != nil {
		return nil, err
	}
	params := routeParams{Experts: uint32(a.Experts), Slots: uint32(a.TopK), NormMin: a.NormMin}
	group, err := s.bind(p, params, a.Step, a.Logits, a.Bias, a.Chosen, a.Shares)
	if err != nil {
		return nil, err
	}
	grid := func(rows int) [3]uint32 { return gpu.Grid(rows, 1, s.limits.MaxWorkgroupsPerDim) }
	return &op{
		name: "moe_route", rows: a.Rows, choose: always(&dispatch{p, group, grid}),
		traffic: func(rows int) int64 { return 4 * int64(rows) * int64(a.Experts+2*a.TopK) },
	}, nil
}

// experts demands numbers that the moe kernels take.
func (c *checker) experts(experts, topK int) {
	c.want(experts >= 1 && experts <= MaxExperts, "%d experts, want 1 to %d", experts, MaxExperts)
	c.want(topK >= 1 && topK <= min(experts, MaxSlots), "TopK is %d, want 1 to %d", topK, min(experts, MaxSlots))
}
