package ref

import "math"

// SiLUMulArgs are the arguments of SiLUMul.
type SiLUMulArgs struct {
	Dim    int
	GateUp []float32 // [M, 2*Dim], the gate first
	Out    []float32 // [M, Dim]
}

// SiLUMul computes silu(gate) * up for the rows lo..hi-1, with silu(x) = x / (1 + exp(-x)).
func SiLUMul(a *SiLUMulArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		gate, up := a.GateUp[2*m*a.Dim:][:a.Dim], a.GateUp[(2*m+1)*a.Dim:][:a.Dim]
		out := a.Out[m*a.Dim:][:a.Dim]
		for i := range out {
			g := float64(gate[i])
			out[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
		}
	}
}
