package ref

// HeadArgmaxArgs are the arguments of HeadArgmax and HeadLogits.
type HeadArgmaxArgs struct {
	Rows    []uint32  // [M] the row of X that becomes row m of Logits
	X       []float32 // [any, W.K]
	Norm    []float32 // [W.K]
	Eps     float32
	W       Matrix    // [N, K], the rows from id Offset on
	Offset  int       // id of row 0 of W
	Vocab   int       // elements of a row of Logits
	Limit   int       // only ids below this one take part
	Block   int       // rows of W of a part
	Parts   int       // elements of a row of Partial
	Part0   int       // that of the first block
	Logits  []float32 // [M, Vocab]
	Partial []Best    // [M, Parts]
}

// HeadLogits computes the logits lo..hi-1 of N.
func HeadLogits(a *HeadArgmaxArgs, lo, hi int) {
	k := a.W.K
	for m, row := range a.Rows {
		x := a.X[int(row)*k:][:k]
		NormLinear(&NormLinearArgs{M: 1, X: x, Norm: a.Norm, Eps: a.Eps, W: a.W, Y: a.Logits[m*a.Vocab:], YStride: a.Vocab, YOffset: a.Offset}, lo, hi)
	}
}

// HeadArgmax finds the best id of each block of the rows lo..hi-1, whose logits are there. A block whose ids are all past Limit has none.
func HeadArgmax(a *HeadArgmaxArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		for i := range (a.W.Rows + a.Block - 1) / a.Block {
			first, end := a.Offset+i*a.Block, a.Offset+min((i+1)*a.Block, a.W.Rows)
			b := best(a.Logits[m*a.Vocab:][min(first, a.Limit):min(end, a.Limit)], 0, 1)
			if b.ID < emptyID {
				b.ID += uint32(first)
			}
			a.Partial[m*a.Parts+a.Part0+i] = b
		}
	}
}
