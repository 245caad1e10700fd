package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// matrix makes a random weight matrix whose products with activations of magnitude 1 have magnitude 1. Codes take all their
// values; zero points are whole numbers, as the common formats have them, or fractions, as ours may.
func (b *bench) matrix(f quant.Format, rows, k int) ref.Matrix {
	m := ref.Matrix{Format: f, Rows: rows, K: k, Data: make([]uint32, rows*f.RowWords(k))}
	size := float32(1 / math.Sqrt(float64(k)))
	if f.Group == 0 {
		w := b.uniform(rows * k)
		for i := range w {
			w[i] *= 2 * size
		}
		quant.Encode(f, m.Data, w)
		return m
	}
	for i := range m.Data {
		m.Data[i] = b.Uint32()
	}
	m.Scales = make([]uint32, rows*f.ScaleWords(k))
	for i := range m.Scales {
		zero := float32(f.MaxCode()+1) / 2
		switch b.IntN(4) {
		case 0:
			zero = float32(b.IntN(f.MaxCode() + 1))
		case 1:
			zero = b.Float32() * float32(f.MaxCode())
		}
		scale := (0.5 + b.Float32()) * 3 * size / float32(f.MaxCode())
		m.Scales[i] = quant.PackScale(quant.F32ToF16(scale), quant.F32ToF16(zero))
	}
	return m
}

// slice is rows lo..hi-1 of m.
func slice(m ref.Matrix, lo, hi int) ref.Matrix {
	n, s := m.Format.RowWords(m.K), m.Format.ScaleWords(m.K)
	part := ref.Matrix{Format: m.Format, Rows: hi - lo, K: m.K, Data: m.Data[lo*n : hi*n]}
	if s > 0 {
		part.Scales = m.Scales[lo*s : hi*s]
	}
	return part
}

// upload puts matrices on the device as the parts of one weight.
func (b *bench) upload(parts ...ref.Matrix) kernels.Weight {
	w := kernels.Weight{K: parts[0].K}
	for _, m := range parts {
		part := kernels.Part{Row0: w.Rows, Rows: m.Rows, Format: m.Format, Data: b.input(m.Data)}
		if m.Format.Group != 0 {
			part.Scales = b.input(m.Scales)
		}
		w.Parts = append(w.Parts, part)
		w.Rows += m.Rows
	}
	return w
}

// cut cuts a matrix into n parts of nearly equal size.
func cut(m ref.Matrix, n int) []ref.Matrix {
	var parts []ref.Matrix
	for i := range n {
		if lo, hi := m.Rows*i/n, m.Rows*(i+1)/n; lo < hi {
			parts = append(parts, slice(m, lo, hi))
		}
	}
	return parts
}
