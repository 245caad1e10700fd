package ref

import (
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// Scratch is working memory of one goroutine. It grows to what is needed and is then used again, so that a step
// allocates nothing.
type Scratch struct {
	weights [][4]float64 // decoded weights of four rows, side by side
	sums    [][4]float64 // of four rows, for each m
	q, k, v []float64    // of paged attention
	acc     []float64
	max     []float64
	total   []float64
}

// grow returns s with n elements, whose values are arbitrary.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return *s
}

// Widen converts the rows lo..hi-1 of X for MatmulFast: x is [M, K] without gaps.
func (a *MatmulArgs) Widen(x []float64, lo, hi int) {
	k := a.W.K
	for m := lo; m < hi; m++ {
		dst := x[m*k : (m+1)*k]
		for i, v := range a.X[m*a.XStride:][:k] {
			dst[i] = float64(v)
		}
	}
}

// tileK is how much of a row is decoded at a time, so that decoded weights stay in the first-level cache: 8 KiB for four
// rows. It is a multiple of what every format's rows are multiples of.
const tileK = 256

// MatmulFast computes what Matmul does, with the same order of every sum, from x as Widen made it. It decodes four rows
// of W at a time, once for all M, which also gives the processor independent sums to work on.
func MatmulFast(a *MatmulArgs, x []float64, s *Scratch, lo, hi int) {
	k := a.W.K
	sums := grow(&s.sums, a.M)
	for j := lo; j < hi; j += 4 {
		clear(sums)
		for from := 0; from < k; from += tileK {
			n := min(tileK, k-from)
			w := grow(&s.weights, n)
			decodeQuad(&a.W, j, hi-1, from, w)
			m := 0
			for ; m+2 <= a.M; m += 2 {
				x0, x1 := x[m*k+from:][:n], x[(m+1)*k+from:][:n]
				dotQuad2(w, x0, x1, &sums[m], &sums[m+1])
			}
			if m < a.M {
				dotQuad(w, x[m*k+from:][:n], &sums[m])
			}
		}
		for r := range min(4, hi-j) {
			for m := range a.M {
				a.store(m, j+r, sums[m][r])
			}
		}
	}
}

// dotQuad adds to sum the products of x with four rows of weights.
func dotQuad(w [][4]float64, x []float64, sum *[4]float64) {
	w = w[:len(x)]
	s0, s1, s2, s3 := sum[0], sum[1], sum[2], sum[3]
	for i, x := range x {
		w := &w[i]
		s0 += w[0] * x
		s1 += w[1] * x
		s2 += w[2] * x
		s3 += w[3] * x
	}
	sum[0], sum[1], sum[2], sum[3] = s0, s1, s2, s3
}

// dotQuad2 is dotQuad for two rows of x at once: each weight is loaded once for both.
func dotQuad2(w [][4]float64, x, y []float64, sumX, sumY *[4]float64) {
	w, y = w[:len(x)], y[:len(x)]
	s0, s1, s2, s3 := sumX[0], sumX[1], sumX[2], sumX[3]
	t0, t1, t2, t3 := sumY[0], sumY[1], sumY[2], sumY[3]
	for i, x := range x {
		y, w := y[i], &w[i]
		w0, w1, w2, w3 := w[0], w[1], w[2], w[3]
		s0 += w0 * x
		t0 += w0 * y
		s1 += w1 * x
		t1 += w1 * y
		s2 += w2 * x
		t2 += w2 * y
		s3 += w3 * x
		t3 += w3 * y
	}
	sumX[0], sumX[1], sumX[2], sumX[3] = s0, s1, s2, s3
	sumY[0], sumY[1], sumY[2], sumY[3] = t0, t1, t2, t3
}

// decodeQuad decodes the elements from, from+1, ... of the rows j to j+3 into dst, side by side. Rows after last are read
// as last: the caller drops their results.
func decodeQuad(w *Matrix, j, last, from int, dst [][4]float64) {
	switch w.Format.Kind {
	case quant.F32, quant.F16, quant.BF16, quant.Q8, quant.Q4:
	default:
		decodeAny(w, j, last, from, dst)
		return
	}
	var data, scales [4][]uint32
	words := w.Format.RowWords(len(dst))
	for r := range 4 {
		d, s := w.row(min(j+r, last))
		data[r] = d[w.Format.RowWords(from):][:words]
		scales[r] = s[w.Format.ScaleWords(from):]
	}
	a, b, c, d := data[0], data[1][:words], data[2][:words], data[3][:words]
	switch w.Format.Kind {
	case quant.F32:
		for i := range a {
			dst[i] = [4]float64{widen(a[i]), widen(b[i]), widen(c[i]), widen(d[i])}
		}
	case quant.F16:
		for i := range a {
			a, b, c, d := a[i], b[i], c[i], d[i]
			out := dst[2*i : 2*i+2]
			out[0] = [4]float64{widenF16(a), widenF16(b), widenF16(c), widenF16(d)}
			out[1] = [4]float64{widenF16(a >> 16), widenF16(b >> 16), widenF16(c >> 16), widenF16(d >> 16)}
		}
	case quant.BF16:
		for i := range a {
			a, b, c, d := a[i], b[i], c[i], d[i]
			out := dst[2*i : 2*i+2]
			out[0] = [4]float64{widen(a << 16), widen(b << 16), widen(c << 16), widen(d << 16)}
			const high = 0xFFFF0000
			out[1] = [4]float64{widen(a & high), widen(b & high), widen(c & high), widen(d & high)}
		}
	case quant.Q8:
		for r := range 4 {
			decodeQ8(data[r], scales[r], w.Format.Group, dst, r)
		}
	case quant.Q4:
		for r := range 4 {
			decodeQ4(data[r], scales[r], w.Format.Group, dst, r)
		}
	}
}

// decodeAny is decodeQuad for the kinds that have no faster way.
func decodeAny(w *Matrix, j, last, from int, dst [][4]float64) {
	var row [tileK]float32
	for r := range 4 {
		data, scales := w.row(min(j+r, last))
		quant.DecodeFrom(w.Format, data, scales, from, row[:len(dst)])
		for i, v := range row[:len(dst)] {
			dst[i][r] = float64(v)
		}
	}
}

// decodeQ8 decodes one row into column r of dst.
func decodeQ8(data, scales []uint32, group int, dst [][4]float64, r int) {
	r &= 3
	for g := 0; g*group < len(dst); g++ {
		scale, zero := quant.UnpackScale(scales[g])
		for i, word := range data[g*group/4 : (g+1)*group/4] {
			out := dst[g*group+4*i:][:4]
			out[0][r] = float64((float32(int32(word&255)) - zero) * scale)
			out[1][r] = float64((float32(int32(word>>8&255)) - zero) * scale)
			out[2][r] = float64((float32(int32(word>>16&255)) - zero) * scale)
			out[3][r] = float64((float32(int32(word>>24)) - zero) * scale)
		}
	}
}

// decodeQ4 decodes one row into column r of dst, by a table of what the 16 codes of a group stand for.
func decodeQ4(data, scales []uint32, group int, dst [][4]float64, r int) {
	r &= 3
	var table [16]float64
	for g := 0; g*group < len(dst); g++ {
		scale, zero := quant.UnpackScale(scales[g])
		for code := range table {
			table[code] = float64((codes[code] - zero) * scale)
		}
		for i, word := range data[g*group/8 : (g+1)*group/8] {
			out := dst[g*group+8*i:][:8]
			out[0][r] = table[word&15]
			out[1][r] = table[word>>4&15]
			out[2][r] = table[word>>8&15]
			out[3][r] = table[word>>12&15]
			out[4][r] = table[word>>16&15]
			out[5][r] = table[word>>20&15]
			out[6][r] = table[word>>24&15]
			out[7][r] = table[word>>28]
		}
	}
}

// codes are the 4-bit codes as numbers.
var codes = [16]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// widen converts the bits of an f32.
func widen(bits uint32) float64 { return float64(math.Float32frombits(bits)) }

// widenF16 converts the low half of a word.
func widenF16(word uint32) float64 { return float64(quant.F16ToF32(uint16(word))) }
