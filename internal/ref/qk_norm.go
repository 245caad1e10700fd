package ref

// QKNormArgs are the arguments of QKNorm.
type QKNormArgs struct {
	Heads, KVHeads int // H, G
	HeadDim        int // D
	RowStride      int // elements of a row of QKV
	Eps            float32
	QWeight        []float32 // [D], of every query head
	KWeight        []float32 // [D], of every key head
	QKV            []float32 // [M, RowStride], normalised in place: query heads lie first, then key heads
}

// QKNorm is RMSNorm of each query head and each key head of the rows lo..hi-1.
func QKNorm(a *QKNormArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		for h := range a.Heads + a.KVHeads {
			x := a.QKV[m*a.RowStride+h*a.HeadDim:][:a.HeadDim]
			weight := a.QWeight
			if h >= a.Heads {
				weight = a.KWeight
			}
			RMSNorm(&RMSNormArgs{Dim: a.HeadDim, Eps: a.Eps, X: x, Weight: weight, Y: x}, 0, 1)
		}
	}
}
