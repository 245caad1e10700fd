package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// RMSNormArgs are the arguments of RMSNorm.
type RMSNormArgs struct {
	Rows   int // most rows, M
	Dim    int
	Eps    float32     // added to the mean square
	X      gpu.Buffer  // [M, Dim] f32
	Weight gpu.Buffer  // [Dim] f32
	Y      gpu.Buffer  // [M, Dim] f32, written
	Step   gpu.Binding // holds the rows that a step really has
}

type rmsNormParams struct {
	Dim        uint32
	Eps        float32
	Pad0, Pad1 uint32
}

// maxLoop is the number of rounds, of all its loops together, after which Mesa 22 ends the loops of an invocation without a word.
const maxLoop = 65535

// maxNorm is the largest row of rms_norm_serial, which takes a row by fours and then one by one.
const maxNorm = maxLoop / 5 * 4

// RMSNorm normalises rows by their root mean square.
func (s *Set) RMSNorm(a RMSNormArgs) (Op, error) {
	c := checker{op: "rms_norm"}
	c.positive("Rows", a.Rows)
	c.positive("Dim", a.Dim)
	c.want(a.Dim <= maxNorm, "Dim is %d, more than %d", a.Dim, maxNorm)
	c.buffer("X", a.X, a.Rows*a.Dim)
	c.buffer("Weight", a.Weight, a.Dim)
	c.buffer("Y", a.Y, a.Rows*a.Dim)
	if c.err != nil {
		return nil, c.err
	}
	name, grid := "rms_norm", func(rows int) [3]uint32 { return gpu.Grid(rows, 1, s.limits.MaxWorkgroupsPerDim) }
	if s.tuning.BarrierFree {
		name, grid = "rms_norm_serial", s.elementwise(1, 8)
	}
	p, err := s.pipeline(name, nil, nil)
	if err != nil {
		return nil, err
	}
	group, err := s.bind(p, rmsNormParams{Dim: uint32(a.Dim), Eps: a.Eps}, a.Step, a.X, a.Weight, a.Y)
	if err != nil {
		return nil, err
	}
	return &op{
		name: name, rows: a.Rows, choose: always(&dispatch{p, group, grid}),
		traffic: func(rows int) int64 { return int64(a.Dim) * (8*int64(rows) + 4) },
	}, nil
}
