package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// ropeStoreCase rotates and stores for each head dimension; one token stores nothing, and no other slot may change, nor the keys and
// values that the rows hold.
func ropeStoreCase(b *bench, kv quant.KVType, dims []int, halfSplit bool) error {
	for i, d := range dims {
		heads, kvHeads, rows := 3+i%2, []int{1, 2, 3}[i%3], 1+3*i
		bucket, stride := rows+i%2, (heads+2*kvHeads)*d+2*(i%2)
		const positions, blocks = 33, 3
		table := make([]float32, 0, positions*d)
		for range positions * d / 2 {
			sin, cos := math.Sincos(b.Float64() * 7)
			table = append(table, float32(cos), float32(sin))
		}
		tokens := make([]ref.Token, rows)
		for m, slot := range b.Perm(blocks*kernels.BlockSize - 1)[:rows] {
			tokens[m] = ref.Token{Position: uint32(b.IntN(positions)), Slot: uint32(slot) + 1}
		}
		if rows > 1 {
			tokens[1].Slot = kernels.NoSlot
		}
		before := b.rowsOf(rows, bucket, stride)
		want := append([]float32(nil), before...)
		k, v := b.emptyCache(blocks, kvHeads, d, kv), b.emptyCache(blocks, kvHeads, d, kv)
		ref.RopeStore(&ref.RopeStoreArgs{
			Tokens: tokens, Heads: heads, RowStride: stride, HalfSplit: halfSplit, Table: table, QKV: want, K: k, V: v,
		}, 0, rows)
		kind, tol := floats, rounded
		if kv == quant.KVF16 {
			kind, tol = halves, half
		}
		empty := poisoned(len(k.Words))
		op, err := b.set.RopeStore(kernels.RopeStoreArgs{
			Rows: bucket, Heads: heads, KVHeads: kvHeads, HeadDim: d, RowStride: stride, HalfSplit: halfSplit, KV: kv,
			Tokens: b.tokens(tokens, bucket), Table: b.inputFloats(table), QKV: b.outputFloats("rope_store qkv", rounded, before, want),
			KCache: b.output("rope_store k", kind, tol, empty, k.Words), VCache: b.output("rope_store v", kind, tol, empty, v.Words),
			Step: b.step(rows),
		})
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}
