package quant

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// ggmlBlock says, after ggml's definitions, what a block of a GGUF file holds: codes in the order of the weights, and the scales of
// the format of ours that has the same weights.
func ggmlBlock(kind string, b []byte) (f Format, codes []byte, scales []uint32) {
	half := func(at int) uint16 { return binary.LittleEndian.Uint16(b[at:]) }
	times := func(h uint16, x float32) uint16 { return F32ToF16(F16ToF32(h) * x) }
	nibbles := func(q []byte) {
		for _, shift := range []int{0, 4} {
			for _, c := range q {
				codes = append(codes, c>>shift&15)
			}
		}
	}
	fifth := func(at int) { // the upper bits of 32 codes
		for i := range codes {
			codes[i] |= b[at+i/8] >> (i % 8) & 1 << 4
		}
	}
	switch kind {
	case "Q4_0":
		nibbles(b[2:])
		return Format{Q4, 32}, codes, []uint32{PackScale(half(0), F32ToF16(8))}
	case "Q4_1":
		nibbles(b[4:])
		return Format{Q4M, 32}, codes, []uint32{PackScale(half(0), half(2))}
	case "Q5_0":
		nibbles(b[6:])
		fifth(2)
		return Format{Q5M, 32}, codes, []uint32{PackScale(half(0), times(half(0), -16))}
	case "Q5_1":
		nibbles(b[8:])
		fifth(4)
		return Format{Q5M, 32}, codes, []uint32{PackScale(half(0), half(2))}
	case "Q8_0":
		for _, c := range b[2:] {
			codes = append(codes, c+128)
		}
		return Format{Q8, 32}, codes, []uint32{PackScale(half(0), F32ToF16(128))}
	case "IQ4_NL":
		nibbles(b[2:])
		return Format{IQ4, 32}, codes, []uint32{PackScale(half(0), 0)}
	}
	// The pairs of bits of 256 codes, in two halves: bits 2j of byte l belong to code 32j + l of the half.
	pairs := func(q []byte) {
		for n := 0; n < 64; n += 32 {
			for shift := 0; shift < 8; shift += 2 {
				for _, c := range q[n : n+32] {
					codes = append(codes, c>>shift&3)
				}
			}
		}
	}
	levels := func(f Format, d, dmin uint16, level func(group int) (sc, mc int8)) {
		scales = make([]uint32, f.ScaleWords(256))
		f.SetBlockScale(scales, 0, d, dmin)
		for g := range 256 / f.Group {
			sc, mc := level(g)
			f.SetGroupScale(scales, g, sc, mc)
		}
	}
	six := func(j int) (sc, mc int8) { // Q4_K and Q5_K
		s := b[4:16]
		if j < 4 {
			return int8(s[j] & 63), int8(s[j+4] & 63)
		}
		return int8(s[j+4]&15 | s[j-4]>>6<<4), int8(s[j+4]>>4 | s[j]>>6<<4)
	}
	switch kind {
	case "Q2_K":
		pairs(b[16:80])
		f = Format{Q2K, 16}
		levels(f, half(80), half(82), func(g int) (int8, int8) { return int8(b[g] & 15), int8(b[g] >> 4) })
	case "Q3_K":
		pairs(b[32:96])
		for i := range codes {
			codes[i] |= b[i%32] >> (i / 32) & 1 << 2
		}
		f = Format{Q3K, 16}
		levels(f, half(108), times(half(108), 4), func(g int) (int8, int8) {
			s := int8(b[96+g%8]>>(g/8*4)&15|b[104+g%4]>>(g/4*2)&3<<4) - 32
			return s, s
		})
	case "Q4_K":
		for n := 16; n < 144; n += 32 {
			nibbles(b[n : n+32])
		}
		f = Format{Q4K, 32}
		levels(f, half(0), half(2), six)
	case "Q5_K":
		for n := 48; n < 176; n += 32 {
			nibbles(b[n : n+32])
		}
		for i := range codes {
			codes[i] |= b[16+i%32] >> (i / 32) & 1 << 4
		}
		f = Format{Q5K, 32}
		levels(f, half(0), half(2), six)
	case "Q6_K":
		pairs(b[128:192])
		high := codes
		codes = nil
		nibbles(b[:64])
		nibbles(b[64:128])
		for i := range codes {
			codes[i] |= high[i] << 4
		}
		f = Format{Q6K, 16}
		levels(f, half(208), times(half(208), 32), func(g int) (int8, int8) { return int8(b[192+g]), int8(b[192+g]) })
	}
	return f, codes, scales
}

// TestBlocksOfGGUF holds what Decode computes to what an independent program computed from blocks that llama.cpp made, exactly.
func TestBlocksOfGGUF(t *testing.T) {
	file, err := os.Open("testdata/blocks.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	seen := 0
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		block, err := hex.DecodeString(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		f, codes, scales := ggmlBlock(fields[0], block)
		k := len(codes)
		if len(fields[2]) != 8*k {
			t.Fatalf("%s: %d codes, want %d", fields[0], k, len(fields[2])/8)
		}
		data, got := make([]uint32, f.RowWords(k)), make([]float32, k)
		f.PackCodes(data, codes)
		Decode(f, data, scales, k, got)
		for i, v := range got {
			bits, err := strconv.ParseUint(fields[2][8*i:8*i+8], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			if want := math.Float32frombits(uint32(bits)); v != want {
				t.Fatalf("%s as %v: weight %d is %v, want %v", fields[0], f, i, v, want)
			}
		}
		seen++
	}
	if err := lines.Err(); err != nil || seen != 22 {
		t.Errorf("%d blocks, %v", seen, err)
	}
}
