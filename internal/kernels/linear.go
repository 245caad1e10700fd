package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
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
	Add      bool        // add to Y instead of replacing it
	Step     gpu.Binding // holds the rows that a step really has
}

// linearParams are the Params of matvec, matmul and matmul_serial.
type linearParams struct {
	K, N, XStride, YStride, YOffset, Flags, Pad0, Pad1 uint32
}

// The bits of linearParams.Flags.
const (
	flagAdd  = 1
	flagBias = 2
)

// variant is one kernel that can compute a linear layer.
type variant struct {
	name    string
	maxRows int // the largest bucket that it serves
	consts  func(format quant.Format, k int) wgsl.Consts
	grid    func(n int) func(rows int) [3]uint32
}

// upTo is the variant for buckets of up to rows rows.
func (v variant) upTo(rows int) variant {
	v.maxRows = rows
	return v
}

// Linear multiplies rows by a weight matrix:
//
//	y[m, YOffset+j] (+)= dot(x[m], w[j]) + bias[YOffset+j]
//
// It runs matvec for few rows and matmul for many, or the serial variants of both where these suit the device.
//
// A row's sums have the same order for every number of rows and every place in them with Tuning.Deterministic, and with
// Tuning.BarrierFree always.
func (s *Set) Linear(a LinearArgs) (Op, error) {
	if a.XStride == 0 {
		a.XStride = a.W.K
	}
	if a.YStride == 0 {
		a.YStride = a.W.Rows
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	choose, err := s.linearChoice(&a)
	if err != nil {
		return nil, err
	}
	return &op{name: "linear", rows: a.Rows, traffic: a.traffic, choose: choose}, nil
}

// linearChoice gives the dispatches of a bucket.
func (s *Set) linearChoice(a *LinearArgs) (func(rows int) []*dispatch, error) {
	if s.tuning.UniformX && a.UniformX && a.XStride == a.W.K && uniformRows(a.W.K) > 0 {
		return s.matmulUniform(a)
	}
	variants := s.linearVariants(a.Rows)
	recorded := make([][]*dispatch, len(variants))
	for i, v := range variants {
		for _, part := range a.W.Parts {
			p, err := s.pipeline(v.name, &part.Format, v.consts(part.Format, a.W.K))
			if err != nil {
				return nil, err
			}
			group, err := s.bind(p, a.params(part), a.Step, a.X, part.Data, part.Scales, a.Bias, a.Y)
			if err != nil {
				return nil, err
			}
			recorded[i] = append(recorded[i], &dispatch{p, group, v.grid(part.Rows)})
		}
	}
	return func(rows int) []*dispatch {
		for i, v := range variants {
			if rows <= v.maxRows {
				return recorded[i]
			}
		}
		panic("BUG: no kernel for the rows of a linear layer")
	}, nil
}

// linearVariants lists the kernels that buckets of up to rows rows need, for the smallest buckets first.
func (s *Set) linearVariants(rows int) (list []variant) {
	few := min(s.tuning.MatmulRows-1, rows)
	switch {
	case s.tuning.BarrierFree:
		if few >= 1 {
			list = append(list, s.matmulSerial(1).upTo(few))
		}
		if rows > few {
			list = append(list, s.matmulSerial(serialTokens).upTo(rows))
		}
	case s.tuning.Deterministic:
		list = append(list, s.matvec(4).upTo(rows)) // one pipeline for all rows
	default:
		if few >= 1 {
			list = append(list, s.matvec(1).upTo(1))
		}
		if few > 1 {
			list = append(list, s.matvec(4).upTo(few))
		}
		if rows > few {
			list = append(list, s.matmul().upTo(rows))
		}
	}
	return list
}

func (a *LinearArgs) check() error {
	c := checker{op: "linear"}
	c.positive("Rows", a.Rows)
	c.weight(&a.W)
	c.want(a.W.K <= 8*maxLoop, "K is %d, more than %d", a.W.K, 8*maxLoop)
	c.want(a.XStride >= a.W.K && a.XStride%4 == 0, "XStride is %d, not a multiple of 4 that is at least K %d", a.XStride, a.W.K)
	c.want(a.YOffset >= 0 && a.YOffset+a.W.Rows <= a.YStride,
		"columns %d to %d do not fit into YStride %d", a.YOffset, a.YOffset+a.W.Rows, a.YStride)
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

func (a *LinearArgs) params(part Part) linearParams {
	p := linearParams{
		K: uint32(a.W.K), N: uint32(part.Rows), XStride: uint32(a.XStride), YStride: uint32(a.YStride),
		YOffset: uint32(a.YOffset + part.Row0),
	}
	if a.Add {
		p.Flags |= flagAdd
	}
	if a.Bias != nil {
		p.Flags |= flagBias
	}
	return p
}

func (a *LinearArgs) traffic(rows int) int64 {
	n := 4 * int64(rows) * int64(a.W.K+a.W.Rows)
	if a.Add {
		n += 4 * int64(rows) * int64(a.W.Rows)
	}
	for _, p := range a.W.Parts {
		n += int64(p.Rows) * int64(p.Format.RowBytes(a.W.K)+p.Format.ScaleBytes(a.W.K))
	}
	return n
}
