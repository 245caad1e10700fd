package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// ropeCase rotates some of the heads of a row; the others, and surplus rows, must stay.
func ropeCase(b *bench, dims []int, halfSplit bool) error {
	for i, d := range dims {
		heads, surplus, rows := 1+2*i, 2*i, []int{1, 5, 3}[i%3]
		bucket, stride := rows+i%2, (heads+surplus)*d+3*(i%2)
		const positions = 33
		table := make([]float32, 0, positions*d)
		for pos := range positions {
			for j := range d / 2 {
				sin, cos := math.Sincos(float64(pos) * math.Pow(500000, -2*float64(j)/float64(d)))
				table = append(table, float32(cos), float32(sin))
			}
		}
		tokens := make([]ref.Token, rows)
		for m := range tokens {
			tokens[m].Position = uint32(b.IntN(positions))
		}
		tokens[0].Position = positions - 1
		before := b.rowsOf(rows, bucket, stride)
		want := append([]float32(nil), before...)
		ref.Rope(&ref.RopeArgs{Tokens: tokens, Heads: heads, HeadDim: d, RowStride: stride, HalfSplit: halfSplit, Table: table, QKV: want}, 0, rows)
		op, err := b.set.Rope(kernels.RopeArgs{
			Rows: bucket, Heads: heads, HeadDim: d, RowStride: stride, HalfSplit: halfSplit, Tokens: b.tokens(tokens, bucket),
			Table: b.inputFloats(table), QKV: b.outputFloats("rope qkv", rounded, before, want), Step: b.step(rows),
		})
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}
