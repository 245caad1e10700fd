package weights

import (
	"encoding/binary"
	"errors"

	"github.com/pagelight/pagelight/internal/quant"
)

// This file takes blocks of ggml's quantized types apart and puts their codes and scales into the layouts of quant.Format, which
// loses nothing. What the blocks hold: https://github.com/ggml-org/ggml, src/ggml-common.h and src/ggml-quants.c; every type
// below has its bytes above its function.
//
// Codes are worked on eight at a time, one in each byte of a word.

var (
	errScaleNotFinite = errors.New("a scale is NaN or infinite")
	errScaleTooLarge  = errors.New("a scale is too large to be kept in 16 bits with its offset; a file in Q8_0 or F16 would do")
)

const (
	ones   = 0x0101010101010101
	twos   = 0x0303030303030303 // two bits of each byte
	fours  = 0x0F0F0F0F0F0F0F0F
	biased = 0x8080808080808080
)

// run are the codes of 32 weights.
type run [4]uint64

func load8(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// nibbles puts the low four bits of eight bytes, whose other bits are 0, side by side.
func nibbles(x uint64) uint32 {
	x = (x | x>>4) & 0x00FF00FF00FF00FF
	x = (x | x>>8) & 0x0000FFFF0000FFFF
	return uint32(x | x>>16)
}

// pairs does so with the low two bits.
func pairs(x uint64) uint32 {
	x = (x | x>>6) & 0x000F000F000F000F
	x = (x | x>>12) & 0x000000FF000000FF
	return uint32(x|x>>24) & 0xFFFF
}

// singles does so with the lowest bit: the product moves that of byte i to bit 56+i.
func singles(x uint64) uint32 { return uint32(x * 0x0102040810204080 >> 56) }

// spread is the reverse of singles: bit i of b becomes byte i.
func spread(b uint32) uint64 {
	x := uint64(b&0xFF) * ones & 0x8040201008040201
	return (x + 0x7F7F7F7F7F7F7F7F) >> 7 & ones
}

// store writes a run of codes of so many bits, in the order that quant.Format says, and gives the rest of dst.
func (c *run) store(dst []byte, bits int) []byte {
	word := func(w uint32) {
		binary.LittleEndian.PutUint32(dst, w)
		dst = dst[4:]
	}
	low := 0 // bits that are written so far
	if bits >= 4 {
		low = 4
		for _, x := range c {
			word(nibbles(x & fours))
		}
	}
	if bits-low >= 2 {
		word(pairs(c[0]>>low&twos) | pairs(c[1]>>low&twos)<<16)
		word(pairs(c[2]>>low&twos) | pairs(c[3]>>low&twos)<<16)
		low += 2
	}
	if bits-low == 1 {
		word(singles(c[0]>>low&ones) | singles(c[1]>>low&ones)<<8 | singles(c[2]>>low&ones)<<16 | singles(c[3]>>low&ones)<<24)
	}
	return dst
}

// half reads a scale.
func half(b []byte) (uint16, error) {
	h := binary.LittleEndian.Uint16(b)
	if h&0x7C00 == 0x7C00 {
		return 0, errScaleNotFinite
	}
	return h, nil
}

// halves reads two that follow one another.
func halves(b []byte) (x, y uint16, err error) {
	if x, err = half(b); err == nil {
		y, err = half(b[2:])
	}
	return x, y, err
}

// times multiplies a scale by a power of two, which is exact unless it becomes too large.
func times(h uint16, by float32) (uint16, error) {
	h = quant.F32ToF16(by * quant.F16ToF32(h))
	if h&0x7C00 == 0x7C00 {
		return 0, errScaleTooLarge
	}
	return h, nil
}

// unpackBlocks turns the blocks of one row into its codes and scales on the device. len(data) and len(scales) are what
// quant.Format says.
func unpackBlocks(l ggmlLayout, blocks, data, scales []byte) error {
	unpack := unpackers[l.name]
	dataBytes, scaleBytes := l.format.RowBytes(l.values), l.format.ScaleBytes(l.values)
	for ; len(blocks) > 0; blocks = blocks[l.bytes:] {
		if err := unpack(blocks[:l.bytes:l.bytes], data[:dataBytes], scales[:scaleBytes]); err != nil {
			return err
		}
		data, scales = data[dataBytes:], scales[scaleBytes:]
	}
	return nil
}

// unpackers take one block apart, by the name of its type.
var unpackers = map[string]func(b, data, scales []byte) error{
	"Q4_0": unpackQ40, "Q4_1": unpackQ41, "Q5_0": unpackQ50, "Q5_1": unpackQ51, "Q8_0": unpackQ80, "IQ4_NL": unpackIQ4NL,
	"Q2_K": unpackQ2K, "Q3_K": unpackQ3K, "Q4_K": unpackQ4K, "Q5_K": unpackQ5K, "Q6_K": unpackQ6K,
}

func putScale(dst []byte, scale, zero uint16) {
	binary.LittleEndian.PutUint32(dst, quant.PackScale(scale, zero))
}

// lowHigh are 32 codes of which 16 bytes hold the first 16 in their low halves and the others in their high halves.
func lowHigh(b []byte) run {
	x, y := load8(b), load8(b[8:])
	return run{x & fours, y & fours, x >> 4 & fours, y >> 4 & fours}
}

// d f16 | 16 bytes of codes; weight = d*(code-8)
func unpackQ40(b, data, scales []byte) error {
	d, err := half(b)
	c := lowHigh(b[2:])
	c.store(data, 4)
	putScale(scales, d, 0x4800) // 8
	return err
}

// d f16 | 16 bytes of codes; weight = d*IQ4Values[code]
func unpackIQ4NL(b, data, scales []byte) error {
	d, err := half(b)
	c := lowHigh(b[2:])
	c.store(data, 4)
	putScale(scales, d, 0)
	return err
}

// d f16 | m f16 | 16 bytes of codes; weight = d*code + m
func unpackQ41(b, data, scales []byte) error {
	d, m, err := halves(b)
	c := lowHigh(b[4:])
	c.store(data, 4)
	putScale(scales, d, m)
	return err
}

// fifth adds the fifth bits to codes: bit i of the 32 belongs to code i.
func fifth(c *run, bits []byte) {
	for i := range c {
		c[i] |= spread(uint32(bits[i])) << 4
	}
}

// d f16 | 32 fifth bits | 16 bytes of codes; weight = d*(code-16) = d*code + -16d
func unpackQ50(b, data, scales []byte) error {
	d, err := half(b)
	if err != nil {
		return err
	}
	m, err := times(d, -16)
	c := lowHigh(b[6:])
	fifth(&c, b[2:6])
	c.store(data, 5)
	putScale(scales, d, m)
	return err
}

// d f16 | m f16 | 32 fifth bits | 16 bytes of codes; weight = d*code + m
func unpackQ51(b, data, scales []byte) error {
	d, m, err := halves(b)
	c := lowHigh(b[8:])
	fifth(&c, b[4:8])
	c.store(data, 5)
	putScale(scales, d, m)
	return err
}

// d f16 | 32 signed bytes; weight = d*byte. The device has unsigned codes with 128 as zero.
func unpackQ80(b, data, scales []byte) error {
	d, err := half(b)
	for i := 0; i < 32; i += 8 {
		binary.LittleEndian.PutUint64(data[i:], load8(b[2+i:])^biased)
	}
	putScale(scales, d, 0x5800) // 128
	return err
}
