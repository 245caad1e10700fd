package ref

// RopeArgs are the arguments of Rope.
type RopeArgs struct {
	Tokens    []Token   // [M]
	Heads     int       // heads to rotate: query heads and the key heads that follow them
	HeadDim   int       // D
	RowStride int       // elements of a row of QKV
	Table     []float32 // [positions, D/2, 2]: cosine and sine of position * theta^(-2i/D)
	QKV       []float32 // [M, RowStride], rotated in place
	HalfSplit bool      // see Rope
}

// Rope turns each pair of each head of the rows lo..hi-1 by its position's angle. Pairs are neighbours (2i, 2i+1), as GLM and
// ERNIE have them, or with HalfSplit half a head apart (i, i+D/2), as GPT-NeoX and Llama have them.
func Rope(a *RopeArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		table := a.Table[int(a.Tokens[m].Position)*a.HeadDim:][:a.HeadDim]
		for h := range a.Heads {
			x := a.QKV[m*a.RowStride+h*a.HeadDim:][:a.HeadDim]
			for i := range a.HeadDim / 2 {
				i0, i1 := 2*i, 2*i+1
				if a.HalfSplit {
					i0, i1 = i, i+a.HeadDim/2
				}
				cos, sin := float64(table[2*i]), float64(table[2*i+1])
				x0, x1 := float64(x[i0]), float64(x[i1])
				x[i0] = float32(x0*cos - x1*sin)
				x[i1] = float32(x1*cos + x0*sin)
			}
		}
	}
}
