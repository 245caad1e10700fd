package ref

// MatmulArgs are the arguments of Matmul, which is the oracle of both matvec and matmul.
type MatmulArgs struct {
	M       int       // rows of X and Y
	X       []float32 // [M, XStride], the first W.K of each row are used
	XStride int
	W       Matrix    // [N, K]
	Bias    []float32 // nil, or indexed like a row of Y
	Y       []float32 // [M, YStride]
	YStride int
	YOffset int  // column of Y that belongs to row 0 of W
	Add     bool // add to Y instead of replacing it
}

// Matmul multiplies every row of X by the rows lo..hi-1 of W:
//
//	y[m, YOffset+j] (+)= dot(x[m], w[j]) + bias[YOffset+j]
func Matmul(a *MatmulArgs, lo, hi int) {
	w := make([]float32, a.W.K)
	for j := lo; j < hi; j++ {
		a.W.Row(j, w)
		for m := range a.M {
			x := a.X[m*a.XStride : m*a.XStride+a.W.K]
			sum := 0.0
			for i := range w {
				sum += float64(x[i]) * float64(w[i])
			}
			a.store(m, j, sum)
		}
	}
}

// store finishes one result.
func (a *MatmulArgs) store(m, j int, sum float64) {
	sum += a.bias(j)
	y := &a.Y[m*a.YStride+a.YOffset+j]
	if a.Add {
		sum += float64(*y)
	}
	*y = float32(sum)
}

// bias is that of output j, or 0.
func (a *MatmulArgs) bias(j int) float64 {
	if a.Bias == nil {
		return 0
	}
	return float64(a.Bias[a.YOffset+j])
}
