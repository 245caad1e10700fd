package kernels

import (
	"fmt"
	"maps"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// LinearArgs are the arguments of Linear.
type LinearArgs struct {
	Rows    int        // most rows, M
	X       gpu.Buffer // [M, XStride] f32; the first W.K elements of a row are used
	XStride int        // a multiple of 4; 0 means W.K
	// UniformX says that X was made with gpu.UsageUniform and has InputRows(Rows, W.K) rows of W.K elements, so that software
	// adapters can read it faster.
	UniformX bool
	W        Weight     // [N, K]
	Bias     gpu.Buffer // nil, or [YStride] f32, indexed like a row of Y
	Y        gpu.Buffer // [M, YStride] f32; columns YOffset to YOffset+N-1 are written
	YStride  int        // 0 means W.Rows
	YOffset  int
	Add      bool // add to Y instead of replacing it
	// Gated makes Y [M, W.Rows/2]: silu of the first half of the outputs times the other. YOffset is 0 then, XStride W.K, YStride
	// W.Rows/2, and there is no Add. Between is [M, W.Rows] f32 for kernels that leave the gate to another.
	Gated   bool
	Between gpu.Buffer
	// Norm, if not nil, is the weight [W.Rows] of the RMS norm of Y after this layer, which Add adds to Y; Normed is [M, W.Rows] f32,
	// written, and Eps is added to the mean square. YOffset is 0 and YStride W.Rows then, a multiple of 4. Not for BarrierFree.
	Norm, Normed gpu.Buffer
	Eps          float32
	// NormLater leaves that norm to the layer that reads Normed, and nobody else may, in steps of up to NormRows rows.
	NormLater bool
	// InNorm, if not nil, is the weight [W.K] of the RMS norm that makes X of Residual, [M, W.K] f32, with Eps. In steps of up to
	// NormRows rows this layer norms Residual itself; in others it reads X. XStride is W.K then. For Sets that can NormLater.
	InNorm, Residual gpu.Buffer
	// Rope, if not nil, rotates and stores the outputs, queries, keys and values, after this layer: its QKV is Y, its Rows, Step and
	// RowStride are those of the layer, and its heads are all of W.Rows. There is no Add, Gated or YOffset then. Not for BarrierFree.
	Rope *RopeStoreArgs
	Step gpu.Binding // holds the rows that a step really has
}

// linearParams are the Params of matvec, matmul and matmul_serial.
type linearParams struct {
	K, N, XStride, YStride, YOffset, Flags, Pad0, Pad1 uint32
}

// lanesParams are the Params of matmul_lanes.
type lanesParams struct {
	K, N, XStride, YStride, YOffset, Flags uint32
	Eps                                    float32
	Pad0                                   uint32
}

// tileParams are the Params of matmul_tile.
type tileParams struct {
	K, N, XStride, YStride, YOffset, Flags, Octets, Parts uint32
}

// The bits of linearParams.Flags.
const (
	flagAdd  = 1
	flagBias = 2
)

// Linear multiplies rows by a weight matrix:
//
//	y[m, YOffset+j] (+)= dot(x[m], w[j]) + bias[YOffset+j]
//
// It has kernels for one row, for a few, for some and for many, or the serial ones where these suit the device; with Gated it also
// computes the gate of a SwiGLU layer, in the same kernel where it can.
//
// A row's sums have the same order for every number of rows and every place in them with Tuning.Deterministic, and with
// Tuning.BarrierFree always.
func (s *Set) Linear(a LinearArgs) (Op, error) {
	if a.XStride == 0 {
		a.XStride = a.W.K
	}
	if a.YStride == 0 {
		a.YStride = a.outputs()
	}
	if err := a.check(s); err != nil {
		return nil, err
	}
	in := []gpu.Buffer{a.X}
	if a.InNorm != nil {
		in = append(in, a.Residual)
	}
	t := trial{in: in, out: []gpu.Buffer{a.Y}, again: func() (Op, error) { return s.Linear(a) }}
	if a.Rope != nil {
		t.cache, t.kv = []gpu.Buffer{a.Rope.KCache, a.Rope.VCache}, a.Rope.KV
		t.columns, t.stride = a.Rope.Heads*a.Rope.HeadDim, a.YStride
	}
	defer s.tried(t)()
	choose, err := s.linearChoice(&a)
	if err != nil {
		return nil, err
	}
	return &op{name: "linear", rows: a.Rows, traffic: a.traffic, choose: choose}, nil
}

// linearChoice gives the dispatches of a bucket.
func (s *Set) linearChoice(a *LinearArgs) (func(rows int) []*dispatch, error) {
	if s.tuning.UniformX && a.UniformX && a.XStride == a.W.K && uniformRows(a.W.K) > 0 {
		return s.thenGate(a, s.matmulUniform)
	}
	s.reserve(s.tuning.linearScratch([]LinearShape{{a.Rows, a.W.Rows, a.W.K}}))
	variants := s.linearVariants(a)
	recorded := map[string][]*dispatch{}
	key := func(v variant) string { return fmt.Sprint(v.name, v.maxRows <= NormRows) }
	for _, v := range variants {
		if recorded[key(v)] != nil {
			continue
		}
		list, err := s.linearDispatches(a.upTo(v.maxRows), v)
		if err != nil {
			return nil, err
		}
		recorded[key(v)] = list
	}
	return func(rows int) []*dispatch {
		for _, v := range variants {
			if rows <= v.maxRows {
				return recorded[key(v)]
			}
		}
		panic("BUG: no kernel for the rows of a linear layer")
	}, nil
}

// linearDispatches makes the dispatches of one variant: one for each part of the weight, and perhaps one that ends the layer.
func (s *Set) linearDispatches(a *LinearArgs, v variant) ([]*dispatch, error) {
	if a.Gated && (!v.gates || v.parts == 1 && len(a.W.Parts) > 1) {
		of, err := s.thenGate(a, func(a *LinearArgs) (func(int) []*dispatch, error) {
			list, err := s.linearDispatches(a, v)
			return always(list...), err
		})
		if err != nil {
			return nil, err
		}
		return of(a.Rows), nil
	}
	to := *a
	if v.parts > 1 { // what lies between is [parts, M, W.Rows]
		to.Y, to.Bias, to.Add, to.Gated, to.YOffset, to.YStride = nil, nil, false, false, 0, a.W.Rows
	}
	var list []*dispatch
	var finish []func(scratch gpu.Buffer) error
	for _, part := range a.W.Parts {
		consts := wgsl.Consts{}
		maps.Copy(consts, v.consts(part.Format, a.W.K))
		if v.gates {
			consts["GATED"] = bit(to.Gated)
		}
		if v.norms {
			consts["NORM"] = bit(a.InNorm != nil)
		}
		p, err := s.pipeline(v.kernel, &part.Format, consts)
		if err != nil {
			return nil, err
		}
		var params any = to.params(part)
		if v.octets > 0 {
			params = to.tileParams(part, v.octets, v.parts)
		}
		if v.norms {
			params = to.lanesParams(part)
		}
		d := &dispatch{pipeline: p, grid: v.grid(part.Rows)}
		if to.Gated {
			d.grid = v.grid(part.Rows + part.Rows%2)
		}
		list = append(list, d)
		bind := func(y gpu.Buffer) (err error) {
			buffers := []gpu.Buffer{a.X, part.Data, part.Scales, to.Bias, y}
			if v.norms {
				buffers = []gpu.Buffer{a.X, part.Data, part.Scales, to.Bias, a.InNorm, y}
			}
			d.group, err = s.bind(p, params, a.Step, buffers...)
			return err
		}
		if v.parts > 1 {
			finish = append(finish, bind)
		} else if err := bind(a.Y); err != nil {
			return nil, err
		}
	}
	end := s.linearEnd(a)
	if v.parts == 1 && (a.Norm != nil || a.Rope != nil) {
		last, bind, err := end(a, 0)
		if err == nil {
			err = bind(nil)
		}
		return append(list, last), err
	}
	if v.parts > 1 {
		last, bind, err := end(a, v.parts)
		if err != nil {
			return nil, err
		}
		list, finish = append(list, last), append(finish, bind)
		s.later(0, func(scratch gpu.Buffer) error {
			for _, f := range finish {
				if err := f(scratch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return list, nil
}

// linearEnd is the kernel that ends a layer: that of the layer after it, if that goes with it, or the sum of the parts.
func (s *Set) linearEnd(a *LinearArgs) func(a *LinearArgs, parts int) (*dispatch, func(scratch gpu.Buffer) error, error) {
	switch {
	case a.Norm != nil:
		return s.sumNorm
	case a.Rope != nil:
		return func(a *LinearArgs, parts int) (*dispatch, func(scratch gpu.Buffer) error, error) {
			bias := a.Bias
			if parts == 0 {
				bias = nil // the kernel before has added it
			}
			return s.ropeStore(a.Rope, bias, parts)
		}
	}
	return s.sumParts
}

// thenGate is choice with a kernel for the gate after it, if there is one.
func (s *Set) thenGate(a *LinearArgs, choice func(*LinearArgs) (func(rows int) []*dispatch, error)) (func(rows int) []*dispatch, error) {
	if !a.Gated {
		return choice(a)
	}
	plain := *a
	plain.Gated, plain.Y, plain.YStride = false, a.Between, a.W.Rows
	of, err := choice(&plain)
	if err != nil {
		return nil, err
	}
	gate, err := s.siluMul(&SiLUMulArgs{Rows: a.Rows, Dim: a.outputs(), GateUp: a.Between, Out: a.Y, Step: a.Step})
	return func(rows int) []*dispatch {
		list := of(rows)
		return append(list[:len(list):len(list)], gate)
	}, err
}

// NormRows is the most rows of the steps in which linear layers norm what they read. With more rows, whole rows go through one kernel.
const NormRows = 32

// NormsLater says whether LinearArgs.NormLater and InNorm can be had.
func (s *Set) NormsLater() bool { return !s.tuning.BarrierFree && !s.tuning.Deterministic }

// upTo is what the layer does in steps of up to rows rows.
func (a *LinearArgs) upTo(rows int) *LinearArgs {
	to := *a
	few := rows <= NormRows
	if few && a.NormLater {
		to.Norm, to.Normed = nil, nil
	}
	switch {
	case few && a.InNorm != nil:
		to.X = a.Residual
	default:
		to.InNorm = nil
	}
	return &to
}

// outputs is how many columns of Y are written.
func (a *LinearArgs) outputs() int {
	if a.Gated {
		return a.W.Rows / 2
	}
	return a.W.Rows
}

func (a *LinearArgs) check(s *Set) error {
	barrierFree := s.tuning.BarrierFree
	c := checker{op: "linear"}
	c.positive("Rows", a.Rows)
	c.weight(&a.W)
	c.want(a.W.K <= 8*maxLoop, "K is %d, more than %d", a.W.K, 8*maxLoop)
	c.want(a.XStride >= a.W.K && a.XStride%4 == 0, "XStride is %d, not a multiple of 4 that is at least K %d", a.XStride, a.W.K)
	c.want(a.YOffset >= 0 && a.YOffset+a.outputs() <= a.YStride,
		"columns %d to %d do not fit into YStride %d", a.YOffset, a.YOffset+a.outputs(), a.YStride)
	if a.Norm != nil {
		c.want(a.Add && !a.Gated && a.YOffset == 0 && a.YStride == a.W.Rows && a.W.Rows%4 == 0 && !barrierFree,
			"Norm goes with Add and whole rows of a multiple of 4, and with barriers")
		c.buffer("Norm", a.Norm, a.W.Rows)
		c.buffer("Normed", a.Normed, a.Rows*a.W.Rows)
	}
	if a.NormLater || a.InNorm != nil {
		c.want(s.NormsLater(), "no kernels that norm for others")
	}
	if a.InNorm != nil {
		c.want(a.XStride == a.W.K, "InNorm goes with whole rows of X")
		c.buffer("InNorm", a.InNorm, a.W.K)
		c.buffer("Residual", a.Residual, a.Rows*a.W.K)
	}
	if a.Rope != nil {
		a.Rope.check(&c)
		c.want(!a.Add && !a.Gated && a.Norm == nil && a.YOffset == 0 && !barrierFree, "Rope goes with no Add, Gated, Norm or YOffset, and with barriers")
		c.want(a.Rope.width() == a.W.Rows && a.Rope.QKV == a.Y && a.Rope.RowStride == a.YStride && a.Rope.Rows == a.Rows,
			"Rope has other rows than Y, [%d, %d]", a.Rows, a.W.Rows)
	}
	if a.Gated {
		c.want(a.W.Rows%2 == 0, "Gated weights have %d rows, an odd number", a.W.Rows)
		c.want(!a.Add && a.YOffset == 0 && a.YStride == a.W.Rows/2 && a.XStride == a.W.K, "Gated goes with no Add, YOffset, YStride or XStride")
		c.buffer("Between", a.Between, a.Rows*a.W.Rows)
	}
	c.buffer("X", a.X, a.Rows*a.XStride)
	if a.UniformX {
		c.buffer("X (as a uniform)", a.X, InputRows(a.Rows, a.W.K)*a.W.K)
	}
	c.buffer("Y", a.Y, a.Rows*a.YStride)
	if a.Bias != nil {
		c.buffer("Bias", a.Bias, a.YOffset+a.W.Rows)
	}
	return c.err
}

func (a *LinearArgs) flags() (flags uint32) {
	if a.Add {
		flags |= flagAdd
	}
	if a.Bias != nil {
		flags |= flagBias
	}
	return flags
}

func (a *LinearArgs) params(part Part) linearParams {
	return linearParams{
		K: uint32(a.W.K), N: uint32(part.Rows), XStride: uint32(a.XStride), YStride: uint32(a.YStride),
		YOffset: uint32(a.YOffset + part.Row0), Flags: a.flags(),
	}
}

func (a *LinearArgs) lanesParams(part Part) lanesParams {
	p := a.params(part)
	return lanesParams{p.K, p.N, p.XStride, p.YStride, p.YOffset, p.Flags, a.Eps, 0}
}

// tileParams cuts K into parts of a multiple of so many octets.
func (a *LinearArgs) tileParams(part Part, multiple, parts int) tileParams {
	p := a.params(part)
	octets := ceil(ceil(a.W.K/8, parts), multiple) * multiple
	return tileParams{p.K, p.N, p.XStride, p.YStride, p.YOffset, p.Flags, uint32(octets), uint32(parts)}
}

func (a *LinearArgs) traffic(rows int) int64 {
	n := 4 * int64(rows) * int64(a.W.K+a.outputs())
	if a.Add {
		n += 4 * int64(rows) * int64(a.W.Rows)
	}
	if a.Rope != nil {
		n += a.Rope.traffic(rows)
	}
	for _, p := range a.W.Parts {
		n += int64(p.Rows) * int64(p.Format.RowBytes(a.W.K)+p.Format.ScaleBytes(a.W.K))
	}
	return n
}
