package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// kvStoreCase stores tokens into scattered slots, at both ends of blocks; one token stores nothing, and no other slot may
// change.
func kvStoreCase(b *bench, kv quant.KVType, dims []int) error {
	for i, d := range dims {
		kvHeads, rows := []int{1, 2, 3}[i%3], 7
		bucket, stride := rows+i%2*2, (3*kvHeads+1)*d+4*(i%2)
		blocks := 4
		slots := b.Perm(blocks*kernels.BlockSize - 2)
		tokens := make([]ref.Token, rows)
		for m := range tokens {
			tokens[m].Slot = uint32(slots[m]) + 1 // slot 0 is what surplus rows have
		}
		tokens[0].Slot = uint32(blocks*kernels.BlockSize - 1)
		tokens[3].Slot = kernels.NoSlot
		tokens[1].Slot, tokens[2].Slot = tokens[0].Slot-1, tokens[0].Slot-2 // neighbours: with bytes, two share a word of scales
		for m := 4; m < rows; m++ {
			tokens[m].Slot = uint32(slots[m]%(blocks*kernels.BlockSize-4)) + 1
		}
		qkv := b.rowsOf(rows, bucket, stride)
		kOffset, vOffset := d, (1+2*kvHeads)*d
		if kv == quant.KVI8 {
			hardVectors(qkv, stride, kOffset, vOffset, d, kvHeads, rows)
		}
		k, v := b.emptyCache(blocks, kvHeads, d, kv), b.emptyCache(blocks, kvHeads, d, kv)
		ref.KVStore(&ref.KVStoreArgs{
			Tokens: tokens, RowStride: stride, KOffset: kOffset, VOffset: vOffset, QKV: qkv, K: k, V: v,
		}, 0, rows)
		kind, tol := words, exact
		switch kv {
		case quant.KVF32:
			kind = floats
		case quant.KVF16:
			kind, tol = halves, half
		}
		empty := poisoned(len(k.Words))
		op, err := b.set.KVStore(kernels.KVStoreArgs{
			Rows: bucket, KVHeads: kvHeads, HeadDim: d, RowStride: stride, KOffset: kOffset, VOffset: vOffset, KV: kv,
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
func (b *bench) emptyCache(blocks, kvHeads, d int, kv quant.KVType) ref.Cache {
	return ref.Cache{
		Words: poisoned(blocks * int(kv.BlockBytes(kvHeads, d)) / 4), KV: kv, KVHeads: kvHeads, HeadDim: d,
	}
}

// hardVectors gives some vectors contents that are hard to turn into bytes, and sees to it that no element of any is so near
// to half way between two codes that the device may round it otherwise.
func hardVectors(qkv []float32, stride, kOffset, vOffset, d, kvHeads, rows int) {
	hard := []func(x []float32){
		func(x []float32) { fill(x, 0) },
		func(x []float32) { scaleBy(x, 1e-7) }, // below the smallest scale
		func(x []float32) { scaleBy(x, 0.005) },
		func(x []float32) { scaleBy(x, 1e7) }, // beyond the largest
		func(x []float32) { x[d-1] = float32(math.NaN()) },
		func(x []float32) { x[0] = float32(math.Inf(-1)) },
		func(x []float32) { fill(x, -1) },
	}
	n := 0
	for m := range rows {
		for _, offset := range []int{kOffset, vOffset} {
			for g := range kvHeads {
				x := qkv[m*stride+offset+g*d:][:d]
				if n%2 == 1 {
					hard[n/2%len(hard)](x)
				}
				n++
				scale := quant.KVScale(x)
				for i, v := range x {
					if code := v / scale; math.Abs(math.Abs(float64(code)-math.Trunc(float64(code)))-0.5) < 1e-3 {
						x[i] = scale * float32(math.Trunc(float64(code)))
					}
				}
			}
		}
	}
}

func scaleBy(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}
