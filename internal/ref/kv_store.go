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
	for h := range c.KVHeads {
		at, x := c.at(slot, h), x[h*c.HeadDim:(h+1)*c.HeadDim]
		if c.F16 {
			quant.Encode(quant.Format{Kind: quant.F16}, c.Words[at/2:(at+c.HeadDim)/2], x)
			continue
		}
		for i, v := range x {
			c.Words[at+i] = math.Float32bits(v)
		}
	}
}

// Load reads the vector of a slot and a kv head into dst, which has D elements.
func (c *Cache) Load(slot, head int, dst []float32) {
	at := c.at(slot, head)
	if c.F16 {
		quant.Decode(quant.Format{Kind: quant.F16}, c.Words[at/2:], nil, c.HeadDim, dst)
		return
	}
	quant.Decode(quant.Format{Kind: quant.F32}, c.Words[at:], nil, c.HeadDim, dst)
}
