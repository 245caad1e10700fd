package ref

// PagedAttnLinearArgs are the arguments of PagedAttnLinear.
type PagedAttnLinearArgs struct {
	PagedAttnArgs           // without Out
	M             int       // rows of Shares
	Set           int       // query heads that make a share; divides Heads
	W             Matrix    // [N, Heads*D]
	Shares        []float32 // [M, Heads/Set, N]
}

// PagedAttnLinear computes, for the outputs lo..hi-1 of N, what each set of heads adds to a linear layer of PagedAttn's results.
func PagedAttnLinear(a *PagedAttnLinearArgs, lo, hi int) {
	attn := a.PagedAttnArgs
	attn.Out = make([]float32, a.M*a.W.K)
	PagedAttn(&attn, 0, a.M)
	columns := a.Set * a.K.HeadDim
	w := make([]float32, a.W.K)
	for j := lo; j < hi; j++ {
		a.W.Row(j, w)
		for m := range a.M {
			x := attn.Out[m*a.W.K:][:a.W.K]
			for s := range a.Heads / a.Set {
				sum := 0.0
				for i := s * columns; i < (s+1)*columns; i++ {
					sum += float64(x[i]) * float64(w[i])
				}
				a.Shares[(m*(a.Heads/a.Set)+s)*a.W.Rows+j] = float32(sum)
			}
		}
	}
}
