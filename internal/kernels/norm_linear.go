package kernels

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
)

// NormLinearArgs are the arguments of NormLinear.
type NormLinearArgs struct {
	Rows  int        // most rows, M, at most FusedRows; each reads the weights again
	X     gpu.Buffer // [M, W.K] f32
	Norm  gpu.Buffer // [W.K] f32, the weight of the RMS norm; nil leaves X as it is
	Eps   float32    // added to the mean square
	W     Weight     // [N, K]
	Bias  gpu.Buffer // nil, or [N] f32
	Gated bool       // Y gets silu of the upper half of the rows times the lower half; W has one part then
	Y     gpu.Buffer // [M, N] f32, or with Gated [M, N/2]; written
	Add   bool       // add to Y instead of replacing it; not with Gated
	// Shares are what PagedAttnLinear left, to be added to X or, with Add, to Y: [M, XShares, W.K] or [M, YShares, N] f32. One of the
	// numbers is 0.
	Shares           gpu.Buffer
	XShares, YShares int
	Step             gpu.Binding
}

type normLinearParams struct {
	K, N, YStride, YOffset, Flags uint32
	Eps                           float32
	Pad0, Pad1                    uint32
}

// CanFuse says whether NormLinear and QKVRopeStore can read w, and whether its rows can belong to different outputs.
func (s *Set) CanFuse(w *Weight) (parts, whole bool) {
	for _, p := range w.Parts {
		if wide(p.Format, w.K) == 0 {
			return false, false
		}
	}
	return true, len(w.Parts) == 1
}

// NormLinear is RMSNorm, Linear and SiLUMul in one kernel, as far as the arguments ask for them:
//
//	z[m, j] = dot(norm(x[m]), w[j]) + bias[j]
//	y[m, j] (+)= z[m, j], or with Gated silu(z[m, j]) * z[m, N/2+j]
func (s *Set) NormLinear(a NormLinearArgs) (Op, error) {
	if err := a.check(s); err != nil {
		return nil, err
	}
	in := []gpu.Buffer{a.X}
	if a.Shares != nil {
		in = append(in, a.Shares)
	}
	defer s.tried(trial{in: in, out: []gpu.Buffer{a.Y}, again: func() (Op, error) { return s.NormLinear(a) }})()
	params := normLinearParams{K: uint32(a.W.K), YStride: uint32(a.outputs()), Eps: a.Eps}
	if a.Add {
		params.Flags |= flagAdd
	}
	if a.Bias != nil {
		params.Flags |= flagBias
	}
	var list []*dispatch
	for _, part := range a.W.Parts {
		key := fmt.Sprintf("norm_linear %v gated %d", part.Format, bit(a.Gated))
		if a.Shares != nil {
			key += fmt.Sprintf(" shares %d+%d", a.XShares, a.YShares)
		}
		v := s.chooseFour(key, part.Rows, a.W.K, false)
		consts := v.consts(a.W.K)
		consts["N"], consts["NORM"], consts["GATED"] = uint32(part.Rows), bit(a.Norm != nil), bit(a.Gated)
		consts["X_SHARES"], consts["Y_SHARES"] = uint32(a.XShares), uint32(a.YShares)
		p, err := s.pipeline("norm_linear", &part.Format, consts)
		if err != nil {
			return nil, err
		}
		params.N, params.YOffset = uint32(part.Rows), uint32(part.Row0)
		group, err := s.bind(p, params, a.Step, a.X, a.Norm, part.Data, part.Scales, a.Bias, a.Shares, a.Y)
		if err != nil {
			return nil, err
		}
		list = append(list, &dispatch{p, group, s.fourGrid(part.Rows, v)})
	}
	return &op{name: "norm_linear", rows: a.Rows, choose: always(list...), traffic: func(rows int) int64 {
		return int64(rows) * (4*int64(a.W.K*(1+a.XShares)+a.outputs()*(1+a.YShares)) + a.W.bytes())
	}}, nil
}

// fourGrid is the grid of n rows in a shape.
func (s *Set) fourGrid(n int, v fourVariant) func(rows int) [3]uint32 {
	return func(rows int) [3]uint32 {
		return gpu.Grid(ceil(ceil(n, 4), v.fours*v.wg/v.lanes), rows, s.limits.MaxWorkgroupsPerDim)
	}
}

// outputs is the width of a row of Y.
func (a *NormLinearArgs) outputs() int {
	if a.Gated {
		return a.W.Rows / 2
	}
	return a.W.Rows
}

func (a *NormLinearArgs) check(s *Set) error {
	c := checker{op: "norm_linear"}
	c.positive("Rows", a.Rows)
	c.want(a.Rows <= FusedRows, "Rows is %d, more than %d", a.Rows, FusedRows)
	c.weight(&a.W)
	if c.err != nil {
		return c.err
	}
	parts, whole := s.CanFuse(&a.W)
	c.want(parts, "weights of %d columns in %v are not read 32 at a time", a.W.K, a.W.Parts[0].Format)
	c.want(whole || !a.Gated, "Gated weights have %d parts", len(a.W.Parts))
	c.want(!a.Gated || a.W.Rows%2 == 0, "Gated weights have %d rows, an odd number", a.W.Rows)
	c.want(!a.Gated || !a.Add, "Add goes with no Gated")
	c.buffer("X", a.X, a.Rows*a.W.K)
	c.buffer("Y", a.Y, a.Rows*a.outputs())
	c.want(a.XShares == 0 || a.YShares == 0, "both of XShares and YShares")
	c.want(min(a.XShares, a.YShares) >= 0 && max(a.XShares, a.YShares) <= MaxShares, "XShares is %d, YShares %d, at most %d", a.XShares, a.YShares, MaxShares)
	c.want(a.YShares == 0 || a.Add, "YShares without Add")
	if a.XShares+a.YShares > 0 {
		c.buffer("Shares", a.Shares, a.Rows*(a.XShares*a.W.K+a.YShares*a.outputs()))
	}
	if a.Norm != nil {
		c.buffer("Norm", a.Norm, a.W.K)
	}
	if a.Bias != nil {
		c.buffer("Bias", a.Bias, a.W.Rows)
	}
	return c.err
}

// bytes is the size of the weights with their scales.
func (w *Weight) bytes() (n int64) {
	for _, p := range w.Parts {
		n += int64(p.Rows) * int64(p.Format.RowBytes(w.K)+p.Format.ScaleBytes(w.K))
	}
	return n
}
