package quant

import (
	"errors"
	"fmt"
	"math"
)

// Scaled is the metric of the same inputs, each divided by its factor: what the weights see when their columns are multiplied by the
// factors.
func (m *Metric) Scaled(factors []float32) *Metric {
	s := &Metric{k: m.k, diagonal: make([]float64, m.k)}
	for i, v := range m.diagonal {
		s.diagonal[i] = v / (float64(factors[i]) * float64(factors[i]))
	}
	if m.u == nil {
		return s
	}
	s.d, s.u = make([]float64, m.k), make([]float64, len(m.u))
	parallel(m.k, func(i int) {
		f := float64(factors[i])
		s.d[i] = m.d[i] / (f * f)
		for j := i + 1; j < m.k; j++ {
			s.u[i*m.k+j] = m.u[i*m.k+j] * float64(factors[j]) / f
		}
	})
	return s
}

// Matrix is some rows of f32 weights and the format that they are to be stored in.
type Matrix struct {
	W      []float32 // [rows, K]
	Format Format
}

// awqSteps is the number of exponents that Channels tries, from 1/awqSteps to 1.
const awqSteps = 20

// awqGain is the part of the loss that factors have to save.
const awqGain = 0.01

// awqRows is how many rows of a matrix Channels looks at while it tries exponents.
const awqRows = 48

// Channels searches the factors [K] by which to multiply the columns of matrices that share their inputs, before they are
// quantized; the inputs are to be divided by them. Columns that large inputs multiply are then stored more exactly. As in AWQ (Lin et
// al., arXiv 2306.00978) the factors are the mean magnitudes [K] of the inputs to a power that is searched for the least error of
// the outputs. No factors at all, nil, are among the candidates, so the loss is never more than theirs: before is the loss
// without factors and after that of the result, both with scales searched and without error feedback. Factors that gain less
// than a hundredth are not taken: so little is within what other calibration text would say.
func Channels(matrices []Matrix, magnitude []float64, m *Metric) (factors []float32, before, after float64, err error) {
	for _, x := range matrices {
		if len(x.W)%m.k != 0 || len(x.W) == 0 || !Searched(x.Format) {
			return nil, 0, 0, fmt.Errorf("quant: %d weights as %v are no matrix to scale the %d columns of", len(x.W), x.Format, m.k)
		}
	}
	if len(magnitude) != m.k {
		return nil, 0, 0, fmt.Errorf("quant: %d magnitudes for %d columns", len(magnitude), m.k)
	}
	few := make([]Matrix, len(matrices))
	for i, x := range matrices {
		few[i] = x
		rows := len(x.W) / m.k
		if step := (rows + awqRows - 1) / awqRows; step > 1 {
			few[i].W = nil
			for r := 0; r < rows; r += step {
				few[i].W = append(few[i].W, x.W[r*m.k:(r+1)*m.k]...)
			}
		}
	}
	least, err := m.scaledLoss(few, nil)
	if err != nil {
		return nil, 0, 0, err
	}
	for step := 1; step <= awqSteps; step++ {
		f := channelFactors(magnitude, float64(step)/awqSteps)
		loss, err := m.scaledLoss(few, f)
		if errors.Is(err, ErrRange) {
			continue // factors that the format cannot follow
		}
		if err != nil {
			return nil, 0, 0, err
		}
		if loss < least {
			factors, least = f, loss
		}
	}
	if before, err = m.scaledLoss(matrices, nil); err != nil || factors == nil {
		return nil, before, before, err
	}
	after, err = m.scaledLoss(matrices, factors)
	if errors.Is(err, ErrRange) || err == nil && after > before*(1-awqGain) {
		return nil, before, before, nil
	}
	return factors, before, after, err
}

// channelFactors are the magnitudes to a power, around 1.
func channelFactors(magnitude []float64, power float64) []float32 {
	mean := 0.0
	for _, v := range magnitude {
		mean += v / float64(len(magnitude))
	}
	lo, hi := math.Inf(1), 0.0
	raw := make([]float64, len(magnitude))
	for i, v := range magnitude {
		raw[i] = math.Pow(max(v, 1e-4*mean, 1e-30), power)
		lo, hi = min(lo, raw[i]), max(hi, raw[i])
	}
	middle := math.Sqrt(lo * hi)
	factors := make([]float32, len(raw))
	for i, v := range raw {
		factors[i] = float32(v / middle)
	}
	return factors
}

// scaledLoss is what the matrices lose when they are quantized with their columns multiplied.
func (m *Metric) scaledLoss(matrices []Matrix, factors []float32) (float64, error) {
	k, seen := m.k, &Metric{k: m.k, diagonal: m.diagonal}
	if factors != nil {
		seen = seen.Scaled(factors)
	}
	sum := 0.0
	for _, x := range matrices {
		rows := len(x.W) / k
		w := x.W
		if factors != nil {
			w = make([]float32, len(x.W))
			for i, v := range x.W {
				w[i] = v * factors[i%k]
			}
		}
		f := x.Format
		data, scales := make([]uint32, rows*f.RowWords(k)), make([]uint32, rows*f.ScaleWords(k))
		if err := (Search{Metric: seen}).Quantize(f, w, k, data, scales); err != nil {
			return 0, err
		}
		losses := make([]float64, rows)
		parallel(rows, func(r int) {
			stored, e := make([]float32, k), make([]float64, k)
			Decode(f, data[r*f.RowWords(k):], scales[r*f.ScaleWords(k):], k, stored)
			for i, v := range stored {
				e[i] = float64(x.W[r*k+i])
				if factors == nil {
					e[i] -= float64(v)
				} else {
					e[i] -= float64(v) / float64(factors[i])
				}
			}
			losses[r] = m.Loss(e)
		})
		for _, l := range losses {
			sum += l
		}
	}
	return sum, nil
}
