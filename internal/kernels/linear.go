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
	W       Weight     // [N, K]
	Bias    gpu.Buffer // nil, or [YStride] f32, indexed like a row of Y
	Y       gpu.Buffer // [M, YStride] f32; columns YOffset to YOffset+N-1 are written
	YStride int        // 0 means W.Rows
	YOffset int
	Add     bool        // add to Y instead of replacing it
	Step    gpu.Binding // holds the rows that a step really has
}

// linearParams are the Params of matvec, matmul and matmul_serial.
type linearParams struct {
	K, N, XStride, YStride, YOffset, Flags, Pad0, Pad1 uint32
}

// The bits of linearParams.Flags.
const (
	flagAdd   = 1
	flagBias  = 2
	flagApart = 4 // of matmul_serial
)

// variant is one kernel that can compute a linear layer, or some rows of it.
type variant struct {
	name   string
	flags  uint32
	consts func(format quant.Format, k int) wgsl.Consts
	grid   func(n int) func(rows int) [3]uint32
}

// choice is one way to compute a linear layer: a variant, or some that share the rows.
type choice struct {
	suits    func(rows int) bool // whether it suits a bucket
	variants []variant
	recorded []*dispatch
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
	choices := s.linearChoices(a.Rows)
	for i := range choices {
		c := &choices[i]
		for _, v := range c.variants {
			for _, part := range a.W.Parts {
				p, err := s.pipeline(v.name, &part.Format, v.consts(part.Format, a.W.K))
				if err != nil {
					return nil, err
				}
				group, err := s.bind(p, a.params(part, v.flags), a.Step, a.X, part.Data, part.Scales, a.Bias, a.Y)
				if err != nil {
					return nil, err
				}
				c.recorded = append(c.recorded, &dispatch{p, group, v.grid(part.Rows)})
			}
		}
	}
	return &op{
		name: "linear", rows: a.Rows, traffic: a.traffic,
		choose: func(rows int) []*dispatch {
			for _, c := range choices {
				if c.suits(rows) {
					return c.recorded
				}
			}
			panic("BUG: no kernel for the rows of a linear layer")
		},
	}, nil
}

// linearChoices lists the ways to compute buckets of up to rows rows. The first that suits a bucket is taken.
func (s *Set) linearChoices(rows int) []choice {
	few := min(s.tuning.MatmulRows-1, rows)
	var list []choice
	add := func(suits func(rows int) bool, variants ...variant) {
		list = append(list, choice{suits: suits, variants: variants})
	}
	upTo := func(most int) func(int) bool { return func(rows int) bool { return rows <= most } }
	switch {
	case s.tuning.BarrierFree:
		if few >= 1 {
			add(upTo(few), s.matmulSerial(1, false))
		}
		if few >= 1 && rows > serialTokens {
			add(func(rows int) bool { return rows%serialTokens == 1 }, s.matmulSerial(serialTokens, true), s.matmulSerial(1, true))
		}
		if rows > few {
			add(upTo(rows), s.matmulSerial(serialTokens, false))
		}
	case s.tuning.Deterministic:
		add(upTo(rows), s.matvec(4)) // one pipeline for all rows
	default:
		if few >= 1 {
			add(upTo(1), s.matvec(1))
		}
		if few > 1 {
			add(upTo(few), s.matvec(4))
		}
		if rows > few {
			add(upTo(rows), s.matmul())
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
	c.buffer("Y", a.Y, a.Rows*a.YStride)
	if a.Bias != nil {
		c.buffer("Bias", a.Bias, a.YOffset+a.W.Rows)
	}
	return c.err
}

func (a *LinearArgs) params(part Part, flags uint32) linearParams {
	p := linearParams{
		K: uint32(a.W.K), N: uint32(part.Rows), XStride: uint32(a.XStride), YStride: uint32(a.YStride),
		YOffset: uint32(a.YOffset + part.Row0), Flags: flags,
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
