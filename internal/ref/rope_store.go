package ref

// RopeStoreArgs are the arguments of RopeStore.
type RopeStoreArgs struct {
	Tokens    []Token // [M]
	Heads     int     // H
	RowStride int     // elements of a row of QKV
	HalfSplit bool    // see Rope
	Table     []float32
	QKV       []float32 // [M, RowStride]: H queries, which are rotated in place, G keys and G values
	K, V      Cache     // of G heads of D elements

	// With Parts above 0 the queries, keys and values of row m are Bias + sum over s of P[s, m] instead of what QKV holds.
	M, Parts int
	P        []float32 // [Parts, M, (H+2*G)*D]
	Bias     []float32 // nil, or [(H+2*G)*D]
}

// RopeStore rotates queries and keys of the rows lo..hi-1 as Rope does, and stores keys and values as KVStore does. What a row of
// QKV holds after its queries stays as it is.
func RopeStore(a *RopeStoreArgs, lo, hi int) {
	d := a.K.HeadDim
	q, kv := a.Heads*d, a.K.KVHeads*d
	for m := lo; m < hi; m++ {
		row := append([]float32(nil), a.QKV[m*a.RowStride:(m+1)*a.RowStride]...)
		a.addParts(m, row[:q+2*kv])
		Rope(&RopeArgs{
			Tokens: a.Tokens[m : m+1], Heads: a.Heads + a.K.KVHeads, HeadDim: d, RowStride: a.RowStride, Table: a.Table, QKV: row,
			HalfSplit: a.HalfSplit,
		}, 0, 1)
		KVStore(&KVStoreArgs{Tokens: a.Tokens[m : m+1], RowStride: a.RowStride, KOffset: q, VOffset: q + kv, QKV: row, K: a.K, V: a.V}, 0, 1)
		copy(a.QKV[m*a.RowStride:][:q], row)
	}
}

// addParts replaces row m by the sum of its parts, if there are any.
func (a *RopeStoreArgs) addParts(m int, row []float32) {
	for i := range row {
		if a.Parts == 0 {
			return
		}
		sum := 0.0
		for s := range a.Parts {
			sum += float64(a.P[(s*a.M+m)*len(row)+i])
		}
		if a.Bias != nil {
			sum += float64(a.Bias[i])
		}
		row[i] = float32(sum)
	}
}
