package ref

import "math"

// NormLinearArgs are the arguments of NormLinear.
type NormLinearArgs struct {
	M       int       // rows of X and Y
	X       []float32 // [M, W.K]
	Norm    []float32 // nil, or [W.K]
	Eps     float32
	W       Matrix    // [N, K]
	Bias    []float32 // nil, or [N] where W is a part from row YOffset on
	Gated   bool      // Y[m, j] gets silu of row j times row N/2+j
	Add     bool      // add to Y instead of replacing it
	Y       []float32 // [M, YStride]
	YStride int
	YOffset int // column of Y that belongs to row 0 of W

	// What PagedAttnLinear left, to be added to X or to Y: [M, XShares, W.K] or [M, YShares, YStride]. One of the numbers is 0.
	Shares           []float32
	XShares, YShares int
}

// NormLinear computes the outputs lo..hi-1, of N or with Gated of N/2, of RMS norm, linear layer and gate:
//
//	z[m, j] = dot(norm(x[m]), w[j]) + bias[j]
//	y[m, j] (+)= z[m, j], or with Gated silu(z[m, j]) * z[m, N/2+j]
//
// where x and y have their shares.
func NormLinear(a *NormLinearArgs, lo, hi int) {
	k := a.W.K
	w := make([]float32, k)
	x := make([]float64, a.M*k)
	for i := range x {
		x[i] = float64(a.X[i]) + share(a.Shares, a.XShares, i/k, i%k, k)
	}
	normed(x, a.Norm, a.Eps, k)
	row := func(m, j int) float64 {
		sum := 0.0
		for i, v := range w {
			sum += x[m*k+i] * float64(v)
		}
		if a.Bias != nil {
			sum += float64(a.Bias[a.YOffset+j])
		}
		return sum
	}
	gate := make([]float64, a.M)
	for j := lo; j < hi; j++ {
		a.W.Row(j, w)
		for m := range a.M {
			gate[m] = row(m, j)
		}
		if a.Gated {
			up := a.W.Rows/2 + j
			a.W.Row(up, w)
			for m, g := range gate {
				gate[m] = g / (1 + math.Exp(-g)) * row(m, up)
			}
		}
		for m, v := range gate {
			y := &a.Y[m*a.YStride+a.YOffset+j]
			if a.Add {
				v += float64(*y)
			}
			v += share(a.Shares, a.YShares, m, a.YOffset+j, a.YStride)
			*y = float32(v)
		}
	}
}

// share is what the count shares of row m add to element i of n.
func share(shares []float32, count, m, i, n int) (sum float64) {
	for s := range count {
		sum += float64(shares[(m*count+s)*n+i])
	}
	return sum
}

// normed makes the rows of x, of k elements each, what RMSNorm with a weight makes of them; without one they stay.
func normed(x []float64, weight []float32, eps float32, k int) {
	if weight == nil {
		return
	}
	for row := x; len(row) > 0; row = row[k:] {
		sum := 0.0
		for _, v := range row[:k] {
			sum += v * v
		}
		scale := 1 / math.Sqrt(sum/float64(k)+float64(eps))
		for i := range row[:k] {
			row[i] *= scale * float64(weight[i])
		}
	}
}

// AttnLinearArgs are the arguments of AttnLinear.
type AttnLinearArgs struct {
	M       int // rows of Y
	Heads   int
	HeadDim int
	Parts   int
	Partial []float32 // [M, Heads, Parts, HeadDim+4], see PagedAttnDecodeArgs
	W       Matrix    // [N, Heads*HeadDim]
	Y       []float32 // [M, YStride]
	YStride int
	YOffset int // column of Y that belongs to row 0 of W
}

// AttnLinear adds, for the outputs lo..hi-1 of N, a linear layer of what PagedAttnReduce makes of the partitions.
func AttnLinear(a *AttnLinearArgs, lo, hi int) {
	x := make([]float32, a.M*a.W.K)
	PagedAttnReduce(&PagedAttnReduceArgs{Heads: a.Heads, Parts: a.Parts, HeadDim: a.HeadDim, Partial: a.Partial, Out: x}, 0, a.M)
	NormLinear(&NormLinearArgs{M: a.M, X: x, W: a.W, Add: true, Y: a.Y, YStride: a.YStride, YOffset: a.YOffset}, lo, hi)
}

// QKVRopeStoreArgs are the arguments of QKVRopeStore.
type QKVRopeStoreArgs struct {
	Tokens    []Token // [M]
	Heads     int     // query heads
	KVHeads   int
	HeadDim   int
	RowStride int // elements of a row of QKV
	HalfSplit bool
	X         []float32 // [M, W.K]
	Norm      []float32 // [W.K]
	Eps       float32
	W         Matrix    // [(Heads+2*KVHeads)*HeadDim, K]
	Table     []float32 // [positions, D/2, 2]
	QKV       []float32 // [M, RowStride]: the queries are written
	K, V      Cache
}

// QKVRopeStore computes the rows lo..hi-1 of tokens: RMSNorm, the linear layer of queries, keys and values, Rope of queries and
// keys, and KVStore.
func QKVRopeStore(a *QKVRopeStoreArgs, lo, hi int) {
	n, k := a.W.Rows, a.W.K
	for m := lo; m < hi; m++ {
		all := make([]float32, n)
		NormLinear(&NormLinearArgs{M: 1, X: a.X[m*k : (m+1)*k], Norm: a.Norm, Eps: a.Eps, W: a.W, Y: all, YStride: n}, 0, n)
		token := a.Tokens[m : m+1]
		Rope(&RopeArgs{
			Tokens: token, Heads: a.Heads + a.KVHeads, HeadDim: a.HeadDim, RowStride: n, Table: a.Table, QKV: all, HalfSplit: a.HalfSplit,
		}, 0, 1)
		q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
		copy(a.QKV[m*a.RowStride:][:q], all)
		KVStore(&KVStoreArgs{Tokens: token, RowStride: n, KOffset: q, VOffset: q + kv, QKV: all, K: a.K, V: a.V}, 0, 1)
	}
}
