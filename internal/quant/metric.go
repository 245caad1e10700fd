package quant

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
)

// Metric says how much an error in the weights of a linear layer matters. With e the errors of one row and H the second
// moment of the layer's inputs, the mean of x*xᵀ over calibration text, the row's output is wrong by the mean square
//
//	e H eᵀ = Σj d[j] (e[j] + Σi<j e[i] u[i][j])²        H = (1+u) diag(d) (1+u)ᵀ, u strictly upper triangular
//
// The right side is what makes error feedback work: once the weights before j are stored, the best place for weight j is
// w[j] + Σi<j e[i] u[i][j]. That is GPTQ (Frantar et al., arXiv 2210.17323) in the form of LDLQ (Chee et al., arXiv
// 2307.13304), which needs no inverse of H.
type Metric struct {
	k int
	// diagonal is that of H, [K].
	diagonal []float64
	// d is [K] and u [K, K]; both are nil where only the diagonal is known.
	d, u []float64
}

// damping is added to the diagonal of H, as a part of its mean: moments of a few thousand tokens are uncertain.
const damping = 0.01

// DiagonalMetric weighs the errors of each input by its mean square [K] alone.
func DiagonalMetric(meanSquare []float64) (*Metric, error) {
	m := &Metric{k: len(meanSquare), diagonal: make([]float64, len(meanSquare))}
	mean := 0.0
	for i, v := range meanSquare {
		if !(v >= 0) || math.IsInf(v, 1) {
			return nil, fmt.Errorf("quant: the mean square of input %d is %v", i, v)
		}
		mean += v / float64(m.k)
	}
	if mean == 0 {
		mean = 1 // no input was ever other than zero: all errors matter alike
	}
	for i, v := range meanSquare {
		m.diagonal[i] = v + damping*mean
	}
	return m, nil
}

// NewMetric takes the second moment H [K, K] of a layer's inputs. It overwrites and keeps h.
func NewMetric(h []float64) (*Metric, error) {
	k := int(math.Sqrt(float64(len(h))))
	if k*k != len(h) {
		return nil, fmt.Errorf("quant: %d numbers are no square matrix", len(h))
	}
	diagonal := make([]float64, k)
	for i := range diagonal {
		diagonal[i] = h[i*k+i]
	}
	m, err := DiagonalMetric(diagonal)
	if err != nil {
		return nil, err
	}
	for i, v := range m.diagonal {
		h[i*k+i] = v
	}
	m.u, m.d = h, make([]float64, k)
	return m, m.factor()
}

// Full says whether the metric knows how inputs depend on each other, as error feedback has to.
func (m *Metric) Full() bool { return m != nil && m.u != nil }

// factor turns u, which holds H, into the factors: from the last column to the first, each takes its part out of what is
// above and to the left of it.
func (m *Metric) factor() error {
	k, u := m.k, m.u
	for j := k - 1; j >= 0; j-- {
		d := u[j*k+j]
		if !(d > 0) {
			return errors.New("quant: the second moment of the inputs is not positive definite")
		}
		m.d[j] = d
		column := make([]float64, j)
		for i := range column {
			column[i] = u[i*k+j] / d
		}
		parallel(j, func(i int) {
			c := column[i] * d
			row := u[i*k+i : i*k+j]
			for n, v := range column[i:j] {
				row[n] -= c * v
			}
		})
		for i, v := range column {
			u[i*k+j] = v
		}
	}
	return nil
}

// Loss is e H eᵀ for the errors e [K] of one row, or the sum of diagonal*e² where only the diagonal is known.
func (m *Metric) Loss(e []float64) float64 {
	sum := 0.0
	if m.u == nil {
		for i, v := range e {
			sum += m.diagonal[i] * v * v
		}
		return sum
	}
	t := make([]float64, m.k)
	for i, v := range e {
		t[i] += v
		sum += m.d[i] * t[i] * t[i]
		if v == 0 {
			continue
		}
		for n, u := range m.u[i*m.k+i+1 : (i+1)*m.k] {
			t[i+1+n] += v * u
		}
	}
	return sum
}

// parallel calls fn for 0 to n-1 on all processors, in pieces.
func parallel(n int, fn func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n/8)
	if workers < 2 {
		for i := range n {
			fn(i)
		}
		return
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				fn(i)
			}
		})
	}
	wg.Wait()
}
