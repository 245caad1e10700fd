package conformance

import (
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// qkNormCase normalises the query and the key heads of rows; value heads, what follows them, and surplus rows must stay. A head of
// zeros is kept finite by eps alone.
func qkNormCase(b *bench, dims []int) error {
	for i, d := range dims {
		heads, kvHeads, rows := 1+3*i, 1+i, []int{1, 7, 3}[i%3]
		bucket, stride := rows+i%2, (heads+2*kvHeads)*d+i%3
		before := b.rowsOf(rows, bucket, stride)
		clear(before[:d])
		q, k := b.uniform(d), b.uniform(d)
		want := append([]float32(nil), before...)
		ref.QKNorm(&ref.QKNormArgs{
			Heads: heads, KVHeads: kvHeads, HeadDim: d, RowStride: stride, Eps: 1e-6, QWeight: q, KWeight: k, QKV: want,
		}, 0, rows)
		op, err := b.set.QKNorm(kernels.QKNormArgs{
			Rows: bucket, Heads: heads, KVHeads: kvHeads, HeadDim: d, RowStride: stride, Eps: 1e-6,
			QWeight: b.inputFloats(q), KWeight: b.inputFloats(k), QKV: b.outputFloats("qk_norm qkv", functional, before, want), Step: b.step(rows),
		})
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}
