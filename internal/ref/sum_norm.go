package ref

// SumNormArgs are the arguments of SumNorm.
type SumNormArgs struct {
	M, Dim, Parts int
	P             []float32 // [Parts, M, Dim]
	Bias          []float32 // nil, or [Dim]
	Weight        []float32 // [Dim]
	Eps           float32
	X             []float32 // [M, Dim], added to
	Y             []float32 // [M, Dim]
}

// SumNorm computes the rows lo..hi-1 of
//
//	x[m] += bias + sum over s of p[s, m]
//	y[m] = RMSNorm of x[m]
func SumNorm(a *SumNormArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		x := a.X[m*a.Dim:][:a.Dim]
		for i := range x {
			sum := float64(x[i])
			if a.Bias != nil {
				sum += float64(a.Bias[i])
			}
			for s := range a.Parts {
				sum += float64(a.P[(s*a.M+m)*a.Dim+i])
			}
			x[i] = float32(sum)
		}
	}
	RMSNorm(&RMSNormArgs{Dim: a.Dim, Eps: a.Eps, X: a.X, Weight: a.Weight, Y: a.Y}, lo, hi)
}
