package ref

// RopeArgs are the arguments of Rope.
type RopeArgs struct {
	Tokens    []Token   // [M]
	Heads     int       // heads to rotate: query heads and the key heads that follow them
	HeadDim   int       // D
	RowStride int       // elements of a row of QKV
	Table     []float32 // [positions, D/2, 2]: cosine and sine of position * theta^(-2i/D)
	QKV       []float32 // [M, RowStride], rotated in place
}

// Rope turns each pair of neighbours (2i, 2i+1) of each head of the rows lo..hi-1 by its position's angle. The pairs are
// interleaved, as GLM and ERNIE have them, not split into halves.
func Rope(a *RopeArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		table := a.Table[int(a.Tokens[m].Position)*a.HeadDim:][:a.HeadDim]
		for h := range a.Heads {
			x := a.QKV[m*a.RowStride+h*a.HeadDim:][:a.HeadDim]
			for i := 0; i < a.HeadDim; i += 2 {
				cos, sin := float64(table[i]), float64(table[i+1])
				even, odd := float64(x[i]), float64(x[i+1])
				x[i] = float32(even*cos - odd*sin)
				x[i+1] = float32(odd*cos + even*sin)
			}
		}
	}
}
