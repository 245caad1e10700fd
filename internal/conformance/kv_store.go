package conformance

import (
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// kvStoreCase stores tokens into scattered slots, at both ends of blocks; one token stores nothing, and no other slot may
// change.
func kvStoreCase(b *bench, f16 bool, dims []int) error {
	for i, d := range dims {
		kvHeads, rows := []int{1, 2, 3}[i%3], 7
		bucket, stride := rows+i%2*2, (3*kvHeads+1)*d+2*(i%2)
		blocks := 4
		slots := b.Perm(blocks*kernels.BlockSize - 2)
		tokens := make([]ref.Token, rows)
		for m := range tokens {
			tokens[m].Slot = uint32(slots[m]) + 1 // slot 0 is what surplus rows have
		}
		tokens[0].Slot = uint32(blocks*kernels.BlockSize - 1)
		tokens[3].Slot = kernels.NoSlot
		qkv := b.rowsOf(rows, bucket, stride)
		kOffset, vOffset := d, (1+2*kvHeads)*d
		k, v := b.emptyCache(blocks, kvHeads, d, f16), b.emptyCache(blocks, kvHeads, d, f16)
		ref.KVStore(&ref.KVStoreArgs{
			Tokens: tokens, RowStride: stride, KOffset: kOffset, VOffset: vOffset, QKV: qkv, K: k, V: v,
		}, 0, rows)
		kind, tol := floats, exact
		if f16 {
			kind, tol = halves, half
		}
		empty := poisoned(len(k.Words))
		op, err := b.set.KVStore(kernels.KVStoreArgs{
			Rows: bucket, KVHeads: kvHeads, HeadDim: d, RowStride: stride, KOffset: kOffset, VOffset: vOffset, F16: f16,
			Tokens: b.tokens(tokens, bucket), QKV: b.inputFloats(qkv), KCache: b.output("kv_store k", kind, tol, empty, k.Words),
			VCache: b.output("kv_store v", kind, tol, empty, v.Words), Step: b.step(rows),
		})
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}

// emptyCache is a cache full of NaN.
func (b *bench) emptyCache(blocks, kvHeads, d int, f16 bool) ref.Cache {
	return ref.Cache{
		Words: poisoned(blocks * int(kernels.CacheBytes(kvHeads, d, f16)) / 4), F16: f16, KVHeads: kvHeads, HeadDim: d,
	}
}
