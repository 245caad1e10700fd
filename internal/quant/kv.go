package quant

import (
	"fmt"
	"math"
	"sync/atomic"
)

// KVType is how keys and values lie in the paged cache. The values are those of KV_TYPE in the kernels.
//
// Keys and values lie apart, in one array of 32-bit words for each layer. A block holds 16 tokens, and each KV head of a
// block is one run of words:
//
//	f32, f16   [blocks, G, (16, D)]             f16: two to a word, the even element in the low half
//	i8         [blocks, G, (16, D) + (16)]      16*D signed bytes, four to a word, then one f16 scale per token
//
//	value = code * scale,   scale = max(max_i |value_i| / 127, 2^-14) rounded to f16,   -127 <= code <= 127
//
// So the scales are in the block that they belong to: a block of a layer's keys is one run of bytes in all three types, and
// can be moved, hashed and sent as such. Scales are never subnormal, because devices may flush those to zero. The head of
// a block is a multiple of 16 bytes long: D is a multiple of 16.
type KVType uint8

// The types of cache.
const (
	KVF32 KVType = iota
	KVF16        // IEEE halves
	KVI8         // bytes with one f16 scale per token and KV head
)

// KVTypes are all of them.
func KVTypes() []KVType { return []KVType{KVF32, KVF16, KVI8} }

// kvBlock is the number of tokens in a block of the cache.
const kvBlock = 16

// The numbers that decide about a scale.
const (
	kvCodes    = 127
	kvMinScale = 0x1p-14 // the smallest normal half
)

func (t KVType) String() string {
	switch t {
	case KVF32:
		return "f32"
	case KVF16:
		return "f16"
	case KVI8:
		return "int8"
	}
	return fmt.Sprintf("KVType(%d)", uint8(t))
}

// HeadWords is the number of words of one KV head of a block.
func (t KVType) HeadWords(headDim int) int {
	switch t {
	case KVF32:
		return kvBlock * headDim
	case KVF16:
		return kvBlock * headDim / 2
	case KVI8:
		return kvBlock*headDim/4 + kvBlock/2
	}
	panic("BUG: " + t.String())
}

// BlockBytes is the size of one block of keys, or of values, of one layer.
func (t KVType) BlockBytes(kvHeads, headDim int) int64 {
	return 4 * int64(kvHeads) * int64(t.HeadWords(headDim))
}

// KVScale is the scale of a vector in a cache of KVI8. It is a half, exactly; a NaN if the vector has one, and at most the
// largest half: codes saturate beyond.
func KVScale(x []float32) float32 {
	most := uint32(0) // of the magnitudes, as bits: they compare like the floats, with NaN above all
	for _, v := range x {
		most = max(most, math.Float32bits(v)&0x7FFFFFFF)
	}
	if most > 0x7F800000 {
		return F16ToF32(0x7E00)
	}
	scale := max(math.Float32frombits(most)*float32(1.0/kvCodes), kvMinScale)
	return min(F16ToF32(F32ToF16(scale)), F16Max)
}

// EncodeKVI8 writes the vector x [D] as token i, 0 to 15, of one KV head of a block: head has HeadWords words. Tokens of
// one head may be written at the same time, though two scales share a word.
func EncodeKVI8(head []uint32, i int, x []float32) {
	d := len(x)
	scale := KVScale(x)
	inverse := 1 / scale
	codes := head[i*d/4 : (i+1)*d/4]
	for w := range codes {
		word := uint32(0)
		for b, v := range x[4*w : 4*w+4] {
			code := int32(0) // of a NaN
			if scale == scale {
				code = int32(math.RoundToEven(float64(min(max(v*inverse, -kvCodes), kvCodes))))
			}
			word |= uint32(code) & 0xFF << (8 * b)
		}
		codes[w] = word
	}
	shift := 16 * (i % 2)
	at := &head[kvBlock*d/4+i/2]
	atomic.AndUint32(at, 0xFFFF0000>>shift)
	atomic.OrUint32(at, uint32(F32ToF16(scale))<<shift)
}

// DecodeKVI8 reads token i of one KV head of a block into dst [D].
func DecodeKVI8(head []uint32, i int, dst []float32) {
	d := len(dst)
	scale := F16ToF32(uint16(head[kvBlock*d/4+i/2] >> (16 * (i % 2))))
	for w, word := range head[i*d/4 : (i+1)*d/4] {
		for b := range 4 {
			dst[4*w+b] = float32(int8(word>>(8*b))) * scale
		}
	}
}
