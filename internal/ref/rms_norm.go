package ref

import "math"

// RMSNormArgs are the arguments of RMSNorm.
type RMSNormArgs struct {
	Dim    int
	Eps    float32
	X      []float32 // [M, Dim]
	Weight []float32 // [Dim]
	Y      []float32 // [M, Dim]
}

// RMSNorm scales each row lo..hi-1 to a root mean square of 1 and multiplies it by the weight:
//
//	y = x / sqrt(mean(x^2) + eps) * weight
func RMSNorm(a *RMSNormArgs, lo, hi int) {
	weight := a.Weight[:a.Dim]
	for m := lo; m < hi; m++ {
		x, y := a.X[m*a.Dim:(m+1)*a.Dim], a.Y[m*a.Dim:(m+1)*a.Dim]
		sum := 0.0
		for _, v := range x {
			sum += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(sum/float64(a.Dim)+float64(a.Eps))
		for i, v := range x {
			y[i] = float32(float64(v) * scale * float64(weight[i]))
		}
	}
}
