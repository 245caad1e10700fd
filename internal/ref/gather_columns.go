package ref

// GatherColumnsArgs are the arguments of GatherColumns.
type GatherColumnsArgs struct {
	K       int
	XStride int       // elements of a row of X
	Order   []uint32  // [K]
	X       []float32 // [M, XStride]
	Out     []float32 // [M, K]
}

// GatherColumns puts the elements of the rows lo..hi-1 in another order: out[m,j] = x[m,Order[j]].
func GatherColumns(a *GatherColumnsArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		x, out := a.X[m*a.XStride:][:a.XStride], a.Out[m*a.K:][:a.K]
		for j, from := range a.Order[:a.K] {
			out[j] = x[from]
		}
	}
}
