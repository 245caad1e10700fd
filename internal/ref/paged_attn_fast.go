package ref

import (
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// AttnTile is the number of rows of a step that PagedAttnFast treats together.
const AttnTile = 8

// PagedAttnUnits is the number of units of work of PagedAttnFast for rows of a step: one per tile and kv head.
func PagedAttnUnits(a *PagedAttnArgs, rows int) int {
	return (rows + AttnTile - 1) / AttnTile * a.K.KVHeads
}

// PagedAttnFast computes what PagedAttn does, to within the rounding of float64 sums in another order. The range counts
// units of PagedAttnUnits, rows is M. Neighbouring rows of one sequence share the work of decoding keys and values, as do
// the query heads of a kv head, and the softmax is the online one: a running maximum, with the sums so far scaled down
// whenever it grows.
func PagedAttnFast(a *PagedAttnArgs, rows int, s *Scratch, lo, hi int) {
	for unit := lo; unit < hi; unit++ {
		from, head := unit/a.K.KVHeads*AttnTile, unit%a.K.KVHeads
		end := min(from+AttnTile, rows)
		for from < end {
			to := from + 1
			for to < end && a.Tokens[to].Seq == a.Tokens[from].Seq {
				to++
			}
			a.attendRun(from, to, head, s)
			from = to
		}
	}
}

// attendRun treats the rows from..to-1, which belong to one sequence, and the query heads of one kv head.
func (a *PagedAttnArgs) attendRun(from, to, head int, s *Scratch) {
	d, group := a.K.HeadDim, a.Heads/a.K.KVHeads
	n := (to - from) * group // queries
	q, acc := grow(&s.q, n*d), grow(&s.acc, n*d)
	largest, total := grow(&s.max, n), grow(&s.total, n)
	context := 0 // positions that the furthest row sees
	for i := range n {
		m, h := from+i/group, head*group+i%group
		for j, v := range a.QKV[m*a.RowStride+h*d:][:d] {
			q[i*d+j] = float64(v)
		}
		largest[i], total[i] = -math.MaxFloat32, 0
		context = max(context, int(a.Tokens[m].Position)+1)
	}
	clear(acc)

	k, v := grow(&s.k, BlockSize*d), grow(&s.v, BlockSize*d)
	for start := 0; start < context; start += BlockSize {
		tokens := min(BlockSize, context-start)
		slot := a.slot(from, start)
		a.K.widen(slot, head, tokens, k)
		a.V.widen(slot, head, tokens, v)
		for i := range n {
			seen := min(tokens, int(a.Tokens[from+i/group].Position)+1-start)
			if seen > 0 {
				attendBlock(q[i*d:(i+1)*d], k, v, seen, float64(a.Scale), &largest[i], &total[i], acc[i*d:(i+1)*d])
			}
		}
	}
	for i := range n {
		m, h := from+i/group, head*group+i%group
		out := a.Out[(m*a.Heads+h)*d:][:d]
		for j, v := range acc[i*d : (i+1)*d] {
			out[j] = float32(v / total[i])
		}
	}
}

// attendBlock adds the first n tokens of a block to one query's sums.
func attendBlock(q, k, v []float64, n int, scale float64, largest, total *float64, acc []float64) {
	d := len(q)
	var weights [BlockSize]float64
	best := *largest
	for t := range n {
		weights[t] = dot(q, k[t*d:(t+1)*d]) * scale
		best = max(best, weights[t])
	}
	if best != *largest { // also when it is a NaN
		shrink := math.Exp(*largest - best)
		*total *= shrink
		for i := range acc {
			acc[i] *= shrink
		}
		*largest = best
	}
	for t := range n {
		weights[t] = math.Exp(weights[t] - best)
		*total += weights[t]
	}
	t := 0
	for ; t+4 <= n; t += 4 {
		w0, w1, w2, w3 := weights[t], weights[t+1], weights[t+2], weights[t+3]
		v0, v1, v2, v3 := v[t*d:][:d], v[(t+1)*d:][:d], v[(t+2)*d:][:d], v[(t+3)*d:][:d]
		for i := range acc[:d] {
			acc[i] += w0*v0[i] + w1*v1[i] + w2*v2[i] + w3*v3[i]
		}
	}
	for ; t < n; t++ {
		w, v := weights[t], v[t*d:][:d]
		for i := range acc[:d] {
			acc[i] += w * v[i]
		}
	}
}

// dot is the product of two vectors, in four interleaved sums. D is a multiple of 16.
func dot(x, y []float64) float64 {
	y = y[:len(x)]
	s0, s1, s2, s3 := 0.0, 0.0, 0.0, 0.0
	for i := 0; i+4 <= len(x); i += 4 {
		x, y := x[i:i+4], y[i:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	return s0 + s1 + s2 + s3
}

// widen decodes the vectors of n tokens from a block's first slot on: [n, D].
func (c *Cache) widen(slot, head, n int, dst []float64) {
	words, d := c.head(slot, head), c.HeadDim
	dst = dst[:n*d]
	switch c.KV {
	case quant.KVI8:
		scales := words[BlockSize*d/4:]
		for t := range n {
			widenI8(words[t*d/4:(t+1)*d/4], widenF16(scales[t/2]>>(16*(t%2))), dst[t*d:(t+1)*d])
		}
	case quant.KVF16:
		for i, word := range words[:n*d/2] {
			dst := dst[2*i : 2*i+2]
			dst[0], dst[1] = widenF16(word), widenF16(word>>16)
		}
	default:
		for i, word := range words[:n*d] {
			dst[i] = widen(word)
		}
	}
}

// widenI8 decodes the bytes of one vector. The products are exact, also in f32: 7 bits by 11.
func widenI8(codes []uint32, scale float64, dst []float64) {
	for i, word := range codes {
		dst := dst[4*i : 4*i+4]
		dst[0] = float64(int8(word)) * scale
		dst[1] = float64(int8(word>>8)) * scale
		dst[2] = float64(int8(word>>16)) * scale
		dst[3] = float64(int8(word>>24)) * scale
	}
}
