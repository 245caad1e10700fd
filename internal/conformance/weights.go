package conformance

import (
	"math"
	"runtime"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// someFormats are the formats that cases try: every group of the kinds that our own packed models have, and of the others one for
// each way in which their kernels differ. A kind's groups share all of its text but for a number.
func someFormats() []quant.Format {
	var list []quant.Format
	for _, f := range quant.Formats() {
		switch f.Kind {
		case quant.Q2:
			if f.Group != 64 {
				continue
			}
		case quant.Q3:
			if f.Group != 16 && f.Group != 32 {
				continue
			}
		case quant.F8:
			if f.Group != 8 && f.Group != 128 {
				continue
			}
		}
		list = append(list, f)
	}
	return list
}

// common says whether a format is one of those that every variant is tried on.
func common(f quant.Format) bool { return f.Kind <= quant.Q4 }

// typical says whether a format stands for others that have the same lib file, in kernels that are slow to compile. The software
// adapters of browsers take seconds for each, so there it is two: one of the scales in two levels, and one whose rows are no
// whole words.
func typical(f quant.Format) bool {
	if runtime.GOOS == "js" {
		return f.Kind == quant.Q6K || f.Kind == quant.CCQ275
	}
	switch f.Kind {
	case quant.Q2, quant.Q4M, quant.Q2K, quant.Q3K, quant.Q4K, quant.Q5K:
		return false
	}
	return f.Group > 8 && (f.Kind != quant.Q3 || f.Group == 32)
}

// tiled says whether the kernels for many rows are tried on a format. A software adapter of a browser takes seconds for each of
// their many variants, so there it is one format with all of them and one with the first.
func tiled(f quant.Format) bool {
	return runtime.GOOS != "js" || f == quant.Format{Kind: quant.Q4, Group: 32} || f.Kind == quant.Q6K
}

// fusedFormats are those that norm_linear and qkv_rope_store are tried on: one for each lib file, and fewer in browsers.
func fusedFormats() []quant.Format {
	list := []quant.Format{{Kind: quant.Q4, Group: 32}, {Kind: quant.Q6K, Group: 16}}
	if runtime.GOOS == "js" {
		return list
	}
	return append(list, quant.Format{Kind: quant.F32}, quant.Format{Kind: quant.F16}, quant.Format{Kind: quant.BF16},
		quant.Format{Kind: quant.Q8, Group: 32}, quant.Format{Kind: quant.IQ4, Group: 32}, quant.Format{Kind: quant.F8, Group: 128},
		quant.Format{Kind: quant.CCQ275, Group: 64})
}

// matrix makes a random weight matrix whose products with activations of magnitude 1 have magnitude 1. Codes take all their
// values; zero points are whole numbers, as the common formats have them, or fractions, as ours may.
func (b *bench) matrix(f quant.Format, rows, k int) ref.Matrix {
	m := ref.Matrix{Format: f, Rows: rows, K: k, Data: make([]uint32, rows*f.RowWords(k)), Scales: make([]uint32, rows*f.ScaleWords(k))}
	size := float32(1 / math.Sqrt(float64(k)))
	if !f.Grouped() {
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
	if f.Kind == quant.F8 {
		for i := range m.Data {
			m.Data[i] = withoutNaN(m.Data[i])
		}
	}
	for row := range rows {
		b.scales(f, m.Data[row*f.RowWords(k):], m.Scales[row*f.ScaleWords(k):][:f.ScaleWords(k)], size, k)
	}
	return m
}

// withoutNaN makes other floats of those of a word of F8 that are no numbers, which sources refuse.
func withoutNaN(word uint32) uint32 {
	for shift := 0; shift < 32; shift += 8 {
		if word>>shift&0x7F == 0x7F {
			word ^= 1 << shift
		}
	}
	return word
}

// scales makes the scales of a row, for weights of magnitude size. Local scales of convolutional codes lie in its data, and are
// random already.
func (b *bench) scales(f quant.Format, data, scales []uint32, size float32, k int) {
	top := float32(f.MaxCode())
	some := func(x float32) float32 { return (0.5 + b.Float32()) * x }
	half := quant.F32ToF16
	switch f.Kind {
	case quant.F8:
		for i := range scales {
			scales[i] = math.Float32bits(some(6 * size / quant.F8Max))
		}
	case quant.IQ4:
		for i := range scales {
			scales[i] = quant.PackScale(half(some(2*size/127)), 0)
		}
	case quant.Q4M, quant.Q5M:
		for i := range scales {
			scale := some(3 * size / top)
			scales[i] = quant.PackScale(half(scale), half(-scale*b.Float32()*top))
		}
	case quant.Q2K, quant.Q3K, quant.Q4K, quant.Q5K, quant.Q6K:
		for block := range k / 256 {
			f.SetBlockScale(scales, block, half(some(3*size/top/64)), half(some(size/64)))
		}
		for group := range k / f.Group {
			f.SetGroupScale(scales, group, int8(b.IntN(256)-128), int8(b.IntN(256)-128))
		}
	case quant.CCQ275:
		f.SetCCQSuper(scales, some(size/40))
	case quant.CCQ25:
		f.SetCCQSuper(scales, some(size/10000))
	case quant.CCQ2:
		f.SetCCQSuper(scales, some(size/160))
		// Multiples of 1/16, which no device rounds.
		quant.SetCCQ2Line(scales, float32(1600+b.IntN(1600))/16, float32(b.IntN(320000)-160000)/16)
		for group := range k / f.Group {
			f.SetCCQLocal(data, scales, group, uint32(b.IntN(16)))
		}
	default:
		for i := range scales {
			zero := (top + 1) / 2
			switch b.IntN(4) {
			case 0:
				zero = float32(b.IntN(f.MaxCode() + 1))
			case 1:
				zero = b.Float32() * top
			}
			scales[i] = quant.PackScale(half(some(3*size/top)), half(zero))
		}
	}
}

// slice is rows lo..hi-1 of m.
func slice(m ref.Matrix, lo, hi int) ref.Matrix {
	n, s := m.Format.RowWords(m.K), m.Format.ScaleWords(m.K)
	return ref.Matrix{Format: m.Format, Rows: hi - lo, K: m.K, Data: m.Data[lo*n : hi*n], Scales: m.Scales[lo*s : hi*s]}
}

// upload puts matrices on the device as the parts of one weight.
func (b *bench) upload(parts ...ref.Matrix) kernels.Weight {
	w := kernels.Weight{K: parts[0].K}
	for _, m := range parts {
		part := kernels.Part{Row0: w.Rows, Rows: m.Rows, Format: m.Format, Data: b.input(m.Data)}
		if len(m.Scales) > 0 {
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
