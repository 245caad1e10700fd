package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// sumNormParams are the Params of sum_norm.
type sumNormParams struct {
	Dim, Parts, Flags uint32
	Eps               float32
}

// sumNorm ends a linear layer with LinearArgs.Norm: it adds the parts that K was cut into, if it was, and norms. Its group waits for the
// scratch buffer.
func (s *Set) sumNorm(a *LinearArgs, parts int) (*dispatch, func(scratch gpu.Buffer) error, error) {
	p, err := s.pipeline("sum_norm", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	d := &dispatch{pipeline: p, grid: func(rows int) [3]uint32 { return gpu.Grid(rows, 1, s.limits.MaxWorkgroupsPerDim) }}
	params, bias := sumNormParams{Dim: uint32(a.W.Rows), Parts: uint32(parts), Eps: a.Eps}, a.Bias
	if parts == 0 {
		bias = nil // the kernel before has added it
	}
	if bias != nil {
		params.Flags = flagBias
	}
	return d, func(scratch gpu.Buffer) (err error) {
		d.group, err = s.bind(p, params, a.Step, scratch, bias, a.Norm, a.Y, a.Normed)
		return err
	}, nil
}
