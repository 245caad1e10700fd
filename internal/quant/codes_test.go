package quant

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// place is where Format's comment says that bit b of element i of a run lies: its word, and the bit in it.
func place(bits, i, b int) (word, bit int) {
	switch {
	case bits < 4 && b < 2:
		return i / 16, 2*(i%16) + b
	case bits == 3:
		return 2, i
	case b < 4:
		return i / 8, 4*(i%8) + b
	case bits == 5:
		return 4, i
	}
	return 4 + i/16, 2*(i%16) + b - 4
}

func TestRuns(t *testing.T) {
	for _, f := range []Format{{Q2, 32}, {Q2K, 16}, {Q3, 16}, {Q3K, 16}, {Q5M, 32}, {Q5K, 32}, {Q6K, 16}} {
		bits := f.codeBits()
		for i := range 64 {
			for b := range bits {
				codes, want := make([]byte, 64), make([]uint32, 2*bits)
				codes[i] = 1 << b
				word, bit := place(bits, i%32, b)
				want[i/32*bits+word] = 1 << bit
				got := slices.Repeat([]uint32{0xFFFFFFFF}, 2*bits)
				f.PackCodes(got, codes)
				if !slices.Equal(got, want) {
					t.Fatalf("%v: bit %d of code %d: got %08x, want %08x", f, b, i, got, want)
				}
			}
		}
	}
}

// Codes of every format come back.
func TestPackCodes(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, f := range Formats() {
		if f.MaxCode() == 0 {
			continue
		}
		codes, back := make([]byte, 256), make([]byte, 256)
		for i := range codes {
			codes[i] = byte(rng.IntN(f.MaxCode() + 1))
		}
		words := make([]uint32, f.RowWords(256))
		f.PackCodes(words, codes)
		f.UnpackCodes(back, words)
		if !slices.Equal(codes, back) {
			t.Errorf("%v: codes %v came back as %v", f, codes, back)
		}
	}
}

// The two levels of scales of a row of two blocks, word by word.
func TestLevels(t *testing.T) {
	f := Format{Q4K, 32}
	scales := make([]uint32, f.ScaleWords(512))
	f.SetBlockScale(scales, 0, 0x1111, 0x2222)
	f.SetBlockScale(scales, 1, 0x3333, 0x4444)
	for g := range 16 {
		f.SetGroupScale(scales, g, int8(g-8), int8(-g))
	}
	want := []uint32{
		0x22221111, 0xFFF900F8, 0xFDFBFEFA, 0xFBFDFCFC, 0xF9FFFAFE,
		0x44443333, 0xF701F800, 0xF503F602, 0xF305F404, 0xF107F206,
	}
	if !slices.Equal(scales, want) {
		t.Errorf("got %08x, want %08x", scales, want)
	}
	if sc, mc := f.GroupScale(scales, 9); sc != 1 || mc != -9 {
		t.Errorf("group 9 has %d and %d", sc, mc)
	}
}
