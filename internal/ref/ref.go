// Package ref holds the kernels of Pagelight in plain Go, under the names that the WGSL files have. It is the oracle that
// every other implementation is held against, and what the cpu driver runs on machines without a GPU.
//
// The contract: readable before fast, no tricks, f32 in and out, every sum in float64 in the order of the indices. Two
// kernels, matmul and paged attention, have a fast form in a file of their own (matmul_fast.go, paged_attn_fast.go), which
// tests hold to the plain one.
//
// Letters used for shapes throughout:
//
//	M  rows of a step: one per new token, of any sequence
//	S  sequences, B  most blocks of a sequence
//	H  query heads, G  key and value heads, D  the dimension of a head
//	K  inputs of a linear layer, N  its outputs: a weight matrix is [N, K]
//
// Work is given as a range lo..hi-1 of whatever the kernel's results are counted in, so that goroutines can share it:
// distinct ranges write distinct elements. An index out of range panics, as in all Go.
package ref

import "github.com/pagelight/pagelight/internal/quant"

// BlockSize is the number of tokens in a block of the KV cache.
const BlockSize = 16

// NoSlot is the slot of a token whose key and value are not stored.
const NoSlot = 0xFFFFFFFF

// Token is one row of a step, as the kernels see it: vec4<u32>.
type Token struct {
	ID       uint32 // in the vocabulary
	Position uint32 // in its sequence, from 0
	Slot     uint32 // block * BlockSize + offset in the KV cache, or NoSlot
	Seq      uint32 // row of the block tables
}

// Matrix is a weight matrix [Rows, K], or a part of one, in the layout of quant.Format.
type Matrix struct {
	Format  quant.Format
	Rows, K int
	Data    []uint32 // Rows * Format.RowWords(K)
	Scales  []uint32 // Rows * Format.ScaleWords(K); empty for formats without groups
}

// Row decodes row j into dst, which has K elements.
func (w *Matrix) Row(j int, dst []float32) {
	data, scales := w.row(j)
	quant.Decode(w.Format, data, scales, w.K, dst)
}

// row is the packed form of row j.
func (w *Matrix) row(j int) (data, scales []uint32) {
	n, s := w.Format.RowWords(w.K), w.Format.ScaleWords(w.K)
	return w.Data[j*n : (j+1)*n], w.Scales[j*s : (j+1)*s]
}

// Cache is the keys or the values of one layer: [blocks, G, BlockSize, D] as quant.KVType says.
type Cache struct {
	Words   []uint32
	KV      quant.KVType
	KVHeads int // G
	HeadDim int // D
}

// head is the words of one kv head of a slot's block.
func (c *Cache) head(slot, head int) []uint32 {
	n := c.KV.HeadWords(c.HeadDim)
	at := (slot/BlockSize*c.KVHeads + head) * n
	return c.Words[at : at+n]
}
