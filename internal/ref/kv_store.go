package ref

import (
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// KVStoreArgs are the arguments of KVStore.
type KVStoreArgs struct {
	Tokens    []Token   // [M]
	RowStride int       // elements of a row of QKV
	KOffset   int       // where the keys begin in a row: [G, D]
	VOffset   int       // where the values begin
	QKV       []float32 // [M, RowStride]
	K, V      Cache
}

// KVStore writes key and value of the tokens lo..hi-1 to their slots. No two tokens of a step have the same slot.
func KVStore(a *KVStoreArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		if slot := a.Tokens[m].Slot; slot != NoSlot {
			row := a.QKV[m*a.RowStride : (m+1)*a.RowStride]
			a.K.store(int(slot), row[a.KOffset:])
			a.V.store(int(slot), row[a.VOffset:])
		}
	}
}

// store writes the vectors [G, D] of one token.
func (c *Cache) store(slot int, x []float32) {
	d, i := c.HeadDim, slot%BlockSize
	for h := range c.KVHeads {
		words, x := c.head(slot, h), x[h*d:(h+1)*d]
		switch c.KV {
		case quant.KVI8:
			quant.EncodeKVI8(words, i, x)
		case quant.KVF16:
			quant.Encode(quant.Format{Kind: quant.F16}, words[i*d/2:(i+1)*d/2], x)
		default:
			for j, v := range x {
				words[i*d+j] = math.Float32bits(v)
			}
		}
	}
}

// Load reads the vector of a slot and a kv head into dst, which has D elements.
func (c *Cache) Load(slot, head int, dst []float32) {
	words, i := c.head(slot, head), slot%BlockSize
	switch c.KV {
	case quant.KVI8:
		quant.DecodeKVI8(words, i, dst[:c.HeadDim])
	case quant.KVF16:
		quant.Decode(quant.Format{Kind: quant.F16}, words[i*c.HeadDim/2:], nil, c.HeadDim, dst)
	default:
		quant.Decode(quant.Format{Kind: quant.F32}, words[i*c.HeadDim:], nil, c.HeadDim, dst)
	}
}
