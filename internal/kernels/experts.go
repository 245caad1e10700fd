package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// ExpertLinearArgs are the arguments of ExpertLinear.
type ExpertLinearArgs struct {
	Rows    int // most rows, M
	Experts int // E
	TopK    int // experts that a row is sent to
	// X is [M, XStride] f32: the inputs of slot s of a row begin at s*XSlot. With XSlot 0 all read the same.
	X              gpu.Buffer
	XStride, XSlot int    // multiples of 4; XStride 0 means W.K
	W              Weight // [E*N, K]: the matrices of the experts one below the other. Its parts begin with an expert each.
	// Y is [M, YStride] f32: the outputs of slot s of a row are written from column YOffset + s*N on.
	Y                gpu.Buffer
	YStride, YOffset int
	Chosen           gpu.Buffer  // [M, TopK] u32, by Route
	Groups           gpu.Buffer  // by GroupExperts
	Step             gpu.Binding // holds the rows that a step really has
}

// expertParams are the Params of moe_matvec, moe_matmul and moe_serial.
type expertParams struct {
	K, N, Slots, Tiles, XStride, XSlot, YStride, YOffset, Expert0, Experts, Pad0, Pad1 uint32
}

// ExpertLinear multiplies each row by the matrices of the experts that were chosen for it:
//
//	y[m, YOffset + s*N + j] = dot(x[m, s*XSlot ..], w[chosen[m,s], j])
//
// It runs moe_matvec for few rows and moe_matmul for many, or moe_serial for both where that suits the device. With
// Tuning.Deterministic, and with Tuning.BarrierFree always, a row's sums have the same order for every number of rows.
func (s *Set) ExpertLinear(a ExpertLinearArgs) (Op, error) {
	if a.XStride == 0 {
		a.XStride = a.W.K
	}
	n := a.W.Rows / max(1, a.Experts)
	if err := a.check(n, s.limits.MaxWorkgroupsPerDim); err != nil {
		return nil, err
	}
	tile := s.tuning.tilePairs()
	params := func(p Part) expertParams {
		return expertParams{
			K: uint32(a.W.K), N: uint32(n), Slots: uint32(a.TopK), Tiles: uint32(groupTiles(a.Rows, a.Experts, a.TopK, tile)),
			XStride: uint32(a.XStride), XSlot: uint32(a.XSlot), YStride: uint32(a.YStride), YOffset: uint32(a.YOffset),
			Expert0: uint32(p.Row0 / n), Experts: uint32(p.Rows / n),
		}
	}
	record := func(v expertVariant, where gpu.Buffer) (list []*dispatch, err error) {
		for _, part := range a.W.Parts {
			p, err := s.pipeline(v.name, &part.Format, v.consts(part.Format, a.W.K))
			if err != nil {
				return nil, err
			}
			group, err := s.bind(p, params(part), a.Step, a.X, where, part.Data, part.Scales, a.Y)
			if err != nil {
				return nil, err
			}
			list = append(list, &dispatch{p, group, func(rows int) [3]uint32 { return v.grid(n, rows) }})
		}
		return list, nil
	}
	var few, many []*dispatch
	var err error
	if !s.tuning.grouped(1, a.Experts, a.TopK) {
		few, err = record(s.expertFew(a.TopK), a.Chosen)
	}
	if err == nil && s.tuning.grouped(a.Rows, a.Experts, a.TopK) {
		many, err = record(s.expertMany(a.Experts, a.TopK), a.Groups)
	}
	if err != nil {
		return nil, err
	}
	return &op{
		name: "experts", rows: a.Rows, traffic: func(rows int) int64 { return a.traffic(rows, n) },
		choose: func(rows int) []*dispatch {
			if s.tuning.grouped(rows, a.Experts, a.TopK) {
				return many
			}
			return few
		},
	}, nil
}

// expertVariant is one kernel that can compute a linear layer of experts.
type expertVariant struct {
	name   string
	consts func(f quant.Format, k int) wgsl.Consts
	grid   func(n, rows int) [3]uint32
}

// expertFew takes each pair by itself.
func (s *Set) expertFew(topK int) expertVariant {
	if s.tuning.BarrierFree {
		return s.moeSerial(1, func(rows int) int { return rows * topK })
	}
	return s.moeMatvec(topK)
}

// expertMany takes the pairs by tiles.
func (s *Set) expertMany(experts, topK int) expertVariant {
	tiles := func(rows int) int { return groupTiles(rows, experts, topK, s.tuning.tilePairs()) }
	if s.tuning.BarrierFree {
		return s.moeSerial(serialPairs, tiles)
	}
	return s.moeMatmul(tiles)
}

func (a *ExpertLinearArgs) check(n, maxGrid int) error {
	c := checker{op: "experts"}
	c.positive("Rows", a.Rows)
	c.experts(a.Experts, a.TopK)
	c.weight(&a.W)
	c.want(a.W.Rows == n*a.Experts, "the weight has %d rows, no multiple of %d experts", a.W.Rows, a.Experts)
	if c.err != nil {
		return c.err
	}
	for i, p := range a.W.Parts {
		c.want(p.Rows%n == 0, "part %d has %d rows, which do not end with an expert of %d", i, p.Rows, n)
	}
	c.want(a.W.K <= 8*maxLoop, "K is %d, more than %d", a.W.K, 8*maxLoop)
	c.want(a.XSlot >= 0 && a.XSlot%4 == 0 && a.XStride%4 == 0 && a.XStride >= (a.TopK-1)*a.XSlot+a.W.K,
		"XStride is %d and XSlot %d for %d slots of %d", a.XStride, a.XSlot, a.TopK, a.W.K)
	c.want(a.YOffset >= 0 && a.YOffset+a.TopK*n <= a.YStride,
		"columns %d to %d do not fit into YStride %d", a.YOffset, a.YOffset+a.TopK*n, a.YStride)
	c.want(a.Rows*a.TopK <= maxGrid, "%d rows with %d experts each, this device takes %d at most", a.Rows, a.TopK, maxGrid/a.TopK)
	c.buffer("X", a.X, a.Rows*a.XStride)
	c.buffer("Y", a.Y, a.Rows*a.YStride)
	c.buffer("Chosen", a.Chosen, a.Rows*a.TopK)
	c.buffer("Groups", a.Groups, GroupWords(a.Rows, a.Experts, a.TopK))
	return c.err
}

// traffic counts the weights of as many experts as the pairs can have.
func (a *ExpertLinearArgs) traffic(rows, n int) int64 {
	pairs := rows * a.TopK
	bytes := int64(0)
	for _, p := range a.W.Parts {
		bytes += int64(p.Rows) * int64(p.Format.RowBytes(a.W.K)+p.Format.ScaleBytes(a.W.K))
	}
	return bytes*int64(min(pairs, a.Experts))/int64(a.Experts) + 4*int64(rows)*int64(a.XStride) + 4*int64(pairs)*int64(n)
}
