package ref

import "math"

// PagedAttnArgs are the arguments of PagedAttn and of PagedAttnDecode.
type PagedAttnArgs struct {
	Tokens      []Token   // [M]
	BlockTables []uint32  // [S, MaxBlocks], the blocks of each sequence in order
	MaxBlocks   int       // B
	Heads       int       // H, a multiple of K.KVHeads
	RowStride   int       // elements of a row of QKV
	Scale       float32   // of the scores: D^-0.5
	QKV         []float32 // [M, RowStride], the queries are the first H*D elements of a row
	K, V        Cache
	Out         []float32 // [M, H, D]
}

// PagedAttn computes causal attention for the tokens lo..hi-1, all heads: each token sees the positions 0 to its own of
// its sequence, whose keys and values must be in the cache.
func PagedAttn(a *PagedAttnArgs, lo, hi int) {
	d := a.K.HeadDim
	for m := lo; m < hi; m++ {
		for h := range a.Heads {
			sums, _, total := a.attend(m, h, a.positions(m, 0, 1, int(a.Tokens[m].Position)+1))
			out := a.Out[(m*a.Heads+h)*d:][:d]
			for i, v := range sums {
				out[i] = float32(v / total)
			}
		}
	}
}

// PagedAttnDecodeArgs are the arguments of PagedAttnDecode.
type PagedAttnDecodeArgs struct {
	PagedAttnArgs           // without Out
	Parts         int       // partitions of the context
	Part          int       // tokens of a partition
	Partial       []float32 // [M, H, Parts, D+4]: D sums not yet divided, the largest score, the sum of exponentials, two unused
}

// PagedAttnDecode computes, for the tokens lo..hi-1 and all heads, the share of each partition of the context.
// Partition p sees the tokens [p*Part, (p+1)*Part), and the same again every Parts*Part tokens, so that any context fits:
//
//	position   0 ....... Part ...... 2*Part .... 3*Part .... (Parts = 2)
//	partition  0         1           0           1
//
// One that sees nothing has the sums 0, the score -FLT_MAX and the exponential sum 0.
func PagedAttnDecode(a *PagedAttnDecodeArgs, lo, hi int) {
	d := a.K.HeadDim
	for m := lo; m < hi; m++ {
		for h := range a.Heads {
			for p := range a.Parts {
				sums, largest, total := a.attend(m, h, a.positions(m, p, a.Parts, a.Part))
				partial := a.Partial[((m*a.Heads+h)*a.Parts+p)*(d+4):][:d+4]
				for i, v := range sums {
					partial[i] = float32(v)
				}
				partial[d], partial[d+1] = float32(largest), float32(total)
			}
		}
	}
}

// positions lists what partition p of parts sees of token m's context.
func (a *PagedAttnArgs) positions(m, p, parts, part int) []int {
	var list []int
	for t := range int(a.Tokens[m].Position) + 1 {
		if t/part%parts == p {
			list = append(list, t)
		}
	}
	return list
}

// attend is the attention of token m and head h over the listed positions: the values weighted by exp(score - largest),
// not yet divided by the sum of these weights.
func (a *PagedAttnArgs) attend(m, h int, positions []int) (sums []float64, largest, total float64) {
	d := a.K.HeadDim
	kvHead := h / (a.Heads / a.K.KVHeads)
	q := a.QKV[m*a.RowStride+h*d:][:d]
	x := make([]float32, d)

	scores := make([]float64, len(positions))
	largest = -math.MaxFloat32
	for n, t := range positions {
		a.K.Load(a.slot(m, t), kvHead, x)
		for i := range d {
			scores[n] += float64(q[i]) * float64(x[i])
		}
		scores[n] *= float64(a.Scale)
		largest = max(largest, scores[n])
	}

	sums = make([]float64, d)
	for n, t := range positions {
		weight := math.Exp(scores[n] - largest)
		total += weight
		a.V.Load(a.slot(m, t), kvHead, x)
		for i := range d {
			sums[i] += weight * float64(x[i])
		}
	}
	return sums, largest, total
}

// slot is where position t of token m's sequence lies in the cache.
func (a *PagedAttnArgs) slot(m, t int) int {
	table := a.BlockTables[int(a.Tokens[m].Seq)*a.MaxBlocks:][:a.MaxBlocks]
	return int(table[t/BlockSize])*BlockSize + t%BlockSize
}

// PagedAttnReduceArgs are the arguments of PagedAttnReduce.
type PagedAttnReduceArgs struct {
	Heads   int // H
	Parts   int
	HeadDim int       // D
	Partial []float32 // [M, H, Parts, D+4], see PagedAttnDecodeArgs
	Out     []float32 // [M, H, D]
}

// PagedAttnReduce combines the partitions of the tokens lo..hi-1. Partitions whose exponential sum is 0 saw nothing and
// are left out, whatever their score is.
func PagedAttnReduce(a *PagedAttnReduceArgs, lo, hi int) {
	d := a.HeadDim
	for mh := lo * a.Heads; mh < hi*a.Heads; mh++ {
		part := func(p int) (sums []float32, largest, total float64) {
			x := a.Partial[(mh*a.Parts+p)*(d+4):][:d+4]
			return x[:d], float64(x[d]), float64(x[d+1])
		}
		best := math.Inf(-1)
		for p := range a.Parts {
			if _, largest, total := part(p); total != 0 {
				best = max(best, largest)
			}
		}
		total := 0.0
		for p := range a.Parts {
			if _, largest, t := part(p); t != 0 {
				total += t * math.Exp(largest-best)
			}
		}
		out := a.Out[mh*d:][:d]
		for i := range out {
			sum := 0.0
			for p := range a.Parts {
				if sums, largest, t := part(p); t != 0 {
					sum += float64(sums[i]) * math.Exp(largest-best)
				}
			}
			out[i] = float32(sum / total)
		}
	}
}
