package ref

// EmbedArgs are the arguments of Embed.
type EmbedArgs struct {
	Tokens []Token // [M]
	Table  Matrix  // rows Row0 .. Row0+Table.Rows-1 of the embedding table; Table.K is the hidden size
	Row0   int
	X      []float32 // [M, Table.K]
}

// Embed copies the table's row of each token lo..hi-1 into X. Tokens whose id is not in this part of the table leave
// their row of X as it is.
func Embed(a *EmbedArgs, lo, hi int) {
	dim := a.Table.K
	for m := lo; m < hi; m++ {
		row := int(a.Tokens[m].ID) - a.Row0
		if row >= 0 && row < a.Table.Rows {
			a.Table.Row(row, a.X[m*dim:(m+1)*dim])
		}
	}
}
