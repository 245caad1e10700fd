package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

func TestKVBlockBytes(t *testing.T) {
	for _, c := range []struct {
		t    KVType
		want int64
	}{{KVF32, 16 * 2 * 128 * 4}, {KVF16, 16 * 2 * 128 * 2}, {KVI8, 16 * 2 * (128 + 2)}} {
		if got := c.t.BlockBytes(2, 128); got != c.want {
			t.Errorf("%v: a block has %d bytes, want %d", c.t, got, c.want)
		}
		if n := c.t.HeadWords(48) % 4; n != 0 {
			t.Errorf("%v: a head is no multiple of 16 bytes", c.t)
		}
	}
}

// The layout, spelled out: byte e of token i lies at i*D + e, its scale after 16*D bytes.
func TestKVI8Layout(t *testing.T) {
	const d = 16
	head := slices.Repeat([]uint32{0x7FFF7FFF}, KVI8.HeadWords(d))
	x := make([]float32, d)
	for i := range x {
		x[i] = float32(i-8) * 0.5
	}
	x[3] = 127 * 0.5 // so that the scale is 0.5
	EncodeKVI8(head, 5, x)
	for at, word := range head {
		for b := range 4 {
			got, want := byte(word>>(8*b)), []byte{0xFF, 0x7F}[b%2]
			switch i := 4*at + b; {
			case i == 5*d+3:
				want = 127
			case i >= 5*d && i < 6*d:
				want = byte(int8(i - 5*d - 8))
			case i >= 16*d+10 && i < 16*d+12: // 0.5 is 0x3800
				want = []byte{0x00, 0x38}[i%2]
			}
			if got != want {
				t.Errorf("byte %d is %#x, want %#x", 4*at+b, got, want)
			}
		}
	}
}

func TestKVI8RoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const d = 48
	for _, magnitude := range []float64{1e-9, 1e-4, 1, 30, 1e6} {
		head := make([]uint32, KVI8.HeadWords(d))
		all := make([][]float32, kvBlock)
		var wg sync.WaitGroup
		for i := range all {
			all[i] = make([]float32, d)
			for j := range all[i] {
				all[i][j] = float32(magnitude * rng.NormFloat64())
			}
			wg.Go(func() { EncodeKVI8(head, i, all[i]) }) // neighbours share a word of scales
		}
		wg.Wait()
		for i, x := range all {
			got := make([]float32, d)
			DecodeKVI8(head, i, got)
			most := 0.0
			for _, v := range x {
				most = max(most, math.Abs(float64(v)))
			}
			// Half a step, and what rounding the scale to a half costs the largest.
			allowed := max(most/127, kvMinScale)*0.5*(1+0x1p-11) + most*0x1p-11
			for j := range x {
				if diff := math.Abs(float64(got[j]) - float64(x[j])); !(diff <= allowed) {
					t.Fatalf("magnitude %g, token %d, element %d: got %g, want %g within %g", magnitude, i, j, got[j], x[j], allowed)
				}
			}
		}
	}
}

func TestKVI8Extremes(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name  string
		x     [3]float32
		want  [3]float32
		scale float32
	}{
		{"zero", [3]float32{}, [3]float32{}, kvMinScale},
		{"infinity saturates", [3]float32{inf, -inf, 1}, [3]float32{127 * F16Max, -127 * F16Max, 0}, F16Max},
		{"beyond a half", [3]float32{1e30, -1e7, 0}, [3]float32{127 * F16Max, -127 * F16Max, 0}, F16Max},
		{"a NaN is kept for all", [3]float32{1, nan, 2}, [3]float32{nan, nan, nan}, nan},
		{"ties go to even", [3]float32{127, 2.5, -3.5}, [3]float32{127, 2, -4}, 1},
	} {
		x := make([]float32, 16)
		copy(x, c.x[:])
		head := make([]uint32, KVI8.HeadWords(16))
		EncodeKVI8(head, 15, x)
		got := make([]float32, 16)
		DecodeKVI8(head, 15, got)
		same := func(a, b float32) bool { return a == b || a != a && b != b }
		if s := KVScale(x); !same(s, c.scale) {
			t.Errorf("%s: the scale is %g, want %g", c.name, s, c.scale)
		}
		for i, want := range c.want {
			if !same(got[i], want) {
				t.Errorf("%s: element %d is %g, want %g", c.name, i, got[i], want)
			}
		}
	}
}
