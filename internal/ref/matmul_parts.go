package ref

import "math"

// MatmulPartsArgs are the arguments of MatmulParts.
type MatmulPartsArgs struct {
	MatmulArgs
	// Parts is how many parts the inputs are cut into, PartK of them in each but the last. With more than one there is no Gated.
	Parts, PartK int
	Gated        bool // SwiGLU: silu of the first half of the outputs times the other

	Norm []float32 // nil, or the weight [K] of the RMS norm of X before the layer, which is whole then
	Eps  float32
}

// MatmulParts computes the columns lo..hi-1 of
//
//	y[part, m, j] (+)= dot(x[m], w[j]) over the inputs of the part, + bias[j]
//
// and with Gated
//
//	y[m, j] = silu(z[m, j]) * z[m, N/2+j],   z[m, j] = dot(x[m], w[j]) + bias[j]
//
// x[m] being the RMS norm of X[m] with Norm.
func MatmulParts(a *MatmulPartsArgs, lo, hi int) {
	if a.Norm != nil {
		normed := *a
		normed.Norm, normed.X, normed.XStride = nil, make([]float32, a.M*a.W.K), a.W.K
		for m := range a.M {
			copy(normed.X[m*a.W.K:][:a.W.K], a.X[m*a.XStride:])
		}
		RMSNorm(&RMSNormArgs{Dim: a.W.K, Eps: a.Eps, X: normed.X, Weight: a.Norm, Y: normed.X}, 0, a.M)
		a = &normed
	}
	gate, up := make([]float32, a.W.K), make([]float32, a.W.K)
	dot := func(m int, w []float32, from, to int) (sum float64) {
		for i := from; i < to; i++ {
			sum += float64(a.X[m*a.XStride+i]) * float64(w[i])
		}
		return sum
	}
	for j := lo; j < hi; j++ {
		a.W.Row(j, gate)
		if a.Gated {
			other := a.W.Rows/2 + j
			a.W.Row(other, up)
			for m := range a.M {
				a.Y[m*a.YStride+a.YOffset+j] = float32(silu(dot(m, gate, 0, a.W.K)+a.bias(j)) * (dot(m, up, 0, a.W.K) + a.bias(other)))
			}
			continue
		}
		for part := range a.Parts {
			from := min(part*a.PartK, a.W.K)
			for m := range a.M {
				a.store(part*a.M+m, j, dot(m, gate, from, min(from+a.PartK, a.W.K)))
			}
		}
	}
}

// SumPartsArgs are the arguments of SumParts.
type SumPartsArgs struct {
	M, N, Parts      int
	P                []float32 // [Parts, M, N]
	Bias             []float32 // nil, or indexed like a row of Y; with Gated [N]
	Gated, Add       bool
	Y                []float32 // [M, YStride]
	YStride, YOffset int
}

// SumParts computes the rows lo..hi-1 of
//
//	y[m, YOffset+j] (+)= z[m, j],   z[m, j] = bias[YOffset+j] + sum over s of p[s, m, j]
//
// and with Gated
//
//	y[m, j] = silu(z[m, j]) * z[m, N/2+j]
func SumParts(a *SumPartsArgs, lo, hi int) {
	z := make([]float64, a.N)
	for m := lo; m < hi; m++ {
		for j := range z {
			z[j] = 0
			if a.Bias != nil {
				z[j] = float64(a.Bias[a.YOffset+j])
			}
			for s := range a.Parts {
				z[j] += float64(a.P[(s*a.M+m)*a.N+j])
			}
		}
		y := a.Y[m*a.YStride+a.YOffset:]
		switch {
		case a.Gated:
			for j := range a.N / 2 {
				y[j] = float32(silu(z[j]) * z[a.N/2+j])
			}
		default:
			for j, v := range z {
				if a.Add {
					v += float64(y[j])
				}
				y[j] = float32(v)
			}
		}
	}
}

// silu is x * sigmoid(x).
func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }
