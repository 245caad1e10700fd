package ref

// GatherRowsArgs are the arguments of GatherRows.
type GatherRowsArgs struct {
	Dim     int
	XStride int       // elements from one row of X to the next
	Rows    []uint32  // [M], which row of X
	X       []float32 // [any, XStride]
	Out     []float32 // [M, Dim]
}

// GatherRows copies the first Dim elements of the rows of X that Rows[lo..hi-1] name.
func GatherRows(a *GatherRowsArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		copy(a.Out[m*a.Dim:(m+1)*a.Dim], a.X[int(a.Rows[m])*a.XStride:][:a.Dim])
	}
}
