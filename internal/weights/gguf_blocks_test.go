package weights

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

// layoutNamed finds a type by its name.
func layoutNamed(t testing.TB, name string) ggmlLayout {
	t.Helper()
	for _, l := range ggmlLayouts {
		if l.name == name {
			return l
		}
	}
	t.Fatalf("no type %s", name)
	return ggmlLayout{}
}

// weightAt is weight i of a row as quant.Format describes it, one bit field at a time.
func weightAt(f quant.Format, data, scales []byte, i int) float32 {
	bit := func(word, at int) int {
		return int(binary.LittleEndian.Uint32(data[4*word:])>>at) & 1
	}
	half := func(at int) float64 {
		return float64(quant.F16ToF32(binary.LittleEndian.Uint16(scales[at:])))
	}
	field := func(word, at, n int) (v int) {
		for b := range n {
			v |= bit(word, at+b) << b
		}
		return v
	}
	bits := map[quant.Kind]int{
		quant.Q8: 8, quant.Q4: 4, quant.IQ4: 4, quant.Q4M: 4, quant.Q5M: 5, quant.Q2K: 2, quant.Q3K: 3, quant.Q4K: 4, quant.Q5K: 5, quant.Q6K: 6,
	}[f.Kind]
	var code int
	run, j := i/32*bits, i%32 // first word of the run, place in it
	switch bits {
	case 2:
		code = field(run+j/16, j%16*2, 2)
	case 3:
		code = field(run+j/16, j%16*2, 2) | bit(run+2, j)<<2
	case 4:
		code = field(run+j/8, j%8*4, 4)
	case 5:
		code = field(run+j/8, j%8*4, 4) | bit(run+4, j)<<4
	case 6:
		code = field(run+j/8, j%8*4, 4) | field(run+4+j/16, j%16*2, 2)<<4
	case 8:
		code = field(i/4, i%4*8, 8)
	}
	g := i / f.Group
	switch f.Kind {
	case quant.Q8, quant.Q4:
		return float32((float64(code) - half(4*g+2)) * half(4*g))
	case quant.IQ4:
		return float32((float64(quant.IQ4Values[code]) - half(4*g+2)) * half(4*g))
	case quant.Q4M, quant.Q5M:
		return float32(float64(code)*half(4*g) + half(4*g+2))
	}
	super := f.ScaleBytes(256) * (i / 256)
	g %= 256 / f.Group
	sc, mc := int8(scales[super+4+2*g]), int8(scales[super+5+2*g])
	return float32(half(super)*float64(sc)*float64(code) - half(super+2)*float64(mc))
}

type blockCase struct {
	Type            string
	Blocks, Weights string // base64
}

func blockCases(t testing.TB) []blockCase {
	t.Helper()
	raw, err := os.ReadFile("testdata/gguf/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []blockCase
	mustUnmarshal(t, raw, &cases)
	return cases
}

func fromBase64(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBlocksKeepEveryBit converts blocks and compares the weights with ggml's, bit for bit.
func TestBlocksKeepEveryBit(t *testing.T) {
	t.Parallel()
	cases := blockCases(t)
	if len(cases) != len(unpackers) {
		t.Errorf("%d types have vectors, %d can be read", len(cases), len(unpackers))
	}
	for _, c := range cases {
		l := layoutNamed(t, c.Type)
		blocks, weights := fromBase64(t, c.Blocks), fromBase64(t, c.Weights)
		k := len(weights) / 4
		data, scales := make([]byte, l.format.RowBytes(k)), make([]byte, l.format.ScaleBytes(k))
		if err := unpackBlocks(l, blocks, data, scales); err != nil {
			t.Fatalf("%s: %v", c.Type, err)
		}
		wrong := 0
		for i := range k {
			got, want := weightAt(l.format, data, scales, i), math.Float32frombits(binary.LittleEndian.Uint32(weights[4*i:]))
			if got != want && wrong < 4 {
				t.Errorf("%s: weight %d is %v, want %v", c.Type, i, got, want)
				wrong++
			}
		}
		if !slices.ContainsFunc(weights, func(b byte) bool { return b != 0 }) {
			t.Errorf("%s: all weights of the vector are 0", c.Type)
		}
	}
}

// TestBlocksWithBadScales: a scale that is no number, or whose minimum 16 bits cannot hold, is an error and not a weight.
func TestBlocksWithBadScales(t *testing.T) {
	t.Parallel()
	at := map[string][]int{
		"Q4_0": {0}, "Q4_1": {0, 2}, "Q5_0": {0}, "Q5_1": {0, 2}, "Q8_0": {0}, "IQ4_NL": {0}, "Q2_K": {80, 82}, "Q3_K": {108},
		"Q4_K": {0, 2}, "Q5_K": {0, 2}, "Q6_K": {208},
	}
	largest := map[string]float32{"Q5_0": 65504 / 16, "Q3_K": 65504 / 4, "Q6_K": 65504 / 32} // whose minimum still fits
	for _, c := range blockCases(t) {
		l := layoutNamed(t, c.Type)
		try := func(at int, bits uint16) error {
			b := fromBase64(t, c.Blocks)[:l.bytes]
			binary.LittleEndian.PutUint16(b[at:], bits)
			return unpackBlocks(l, b, make([]byte, l.format.RowBytes(l.values)), make([]byte, l.format.ScaleBytes(l.values)))
		}
		for _, at := range at[c.Type] {
			for _, bits := range []uint16{0x7C00, 0xFC00, 0x7E00, 0xFFFF} {
				wantWords(t, try(at, bits), "NaN or infinite")
			}
			most, ok := largest[c.Type]
			if !ok {
				most = 65504
			}
			h := quant.F32ToF16(most)
			for _, sign := range []uint16{0, 0x8000} {
				if err := try(at, h|sign); err != nil {
					t.Errorf("%s with a scale of %v: %v", c.Type, most, err)
				}
				if ok {
					wantWords(t, try(at, (h+1)|sign), "too large", "Q8_0")
				}
			}
		}
	}
}

// FuzzBlocks: any bytes give weights or an error.
func FuzzBlocks(f *testing.F) {
	for _, c := range blockCases(f) {
		f.Add(c.Type, fromBase64(f, c.Blocks)[:layoutNamed(f, c.Type).bytes])
	}
	f.Fuzz(func(t *testing.T, name string, block []byte) {
		if _, ok := unpackers[name]; !ok {
			return
		}
		l := layoutNamed(t, name)
		if len(block) < l.bytes {
			return
		}
		data, scales := make([]byte, l.format.RowBytes(l.values)), make([]byte, l.format.ScaleBytes(l.values))
		if err := unpackBlocks(l, block[:l.bytes], data, scales); err != nil {
			if !strings.Contains(err.Error(), "scale") {
				t.Fatal(err)
			}
			return
		}
		for i := range l.values {
			if w := float64(weightAt(l.format, data, scales, i)); math.IsNaN(w) || math.IsInf(w, 0) {
				t.Fatalf("%s: weight %d is %v", name, i, w)
			}
		}
	})
}

func BenchmarkUnpackBlocks(b *testing.B) {
	for _, c := range blockCases(b) {
		b.Run(c.Type, func(b *testing.B) {
			l := layoutNamed(b, c.Type)
			blocks := fromBase64(b, c.Blocks)
			k := len(blocks) / l.bytes * l.values
			data, scales := make([]byte, l.format.RowBytes(k)), make([]byte, l.format.ScaleBytes(k))
			b.SetBytes(int64(len(blocks)))
			for b.Loop() {
				if err := unpackBlocks(l, blocks, data, scales); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
