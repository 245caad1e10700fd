package conformance

import (
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// rmsNormCase runs dims around the size of a workgroup, and rows of zeros, which only eps keeps finite.
func rmsNormCase(b *bench, dims []int) error {
	for i, dim := range dims {
		rows := []int{1, 3, 9}[i%3]
		bucket := rows + i%2*4
		x := b.rowsOf(rows, bucket, dim)
		if rows > 1 {
			clear(x[:dim])
		}
		weight := b.uniform(dim)
		want := poisonedFloats(bucket * dim)
		ref.RMSNorm(&ref.RMSNormArgs{Dim: dim, Eps: 1e-5, X: x, Weight: weight, Y: want}, 0, rows)
		op, err := b.set.RMSNorm(kernels.RMSNormArgs{
			Rows: bucket, Dim: dim, Eps: 1e-5, X: b.inputFloats(x), Weight: b.inputFloats(weight),
			Y: b.outputFloats("rms_norm y", functional, poisonedFloats(bucket*dim), want), Step: b.step(rows),
		})
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}
