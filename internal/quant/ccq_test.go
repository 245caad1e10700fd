package quant

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bitsOf reads the f32 numbers of a field.
func bitsOf(t *testing.T, field string) []float32 {
	t.Helper()
	var list []float32
	for i := 0; i+8 <= len(field); i += 8 {
		bits, err := strconv.ParseUint(field[i:i+8], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, math.Float32frombits(uint32(bits)))
	}
	return list
}

// TestPublicCCQ puts columns of the public layouts into rows of ours, and decodes them. Theirs multiply in another order, which may
// differ by two roundings.
func TestPublicCCQ(t *testing.T) {
	file, err := os.Open("testdata/ccq.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	seen := 0
	for ; lines.Scan(); seen++ {
		fields := strings.Fields(lines.Text())
		f, err := ParseFormat(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		codes, err := hex.DecodeString(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		want := bitsOf(t, fields[6])
		k := len(want)
		data, scales := make([]uint32, f.RowWords(k)), make([]uint32, f.ScaleWords(k))
		padded := append(codes, make([]byte, 4*len(data)-len(codes))...)
		for i := range data {
			data[i] = binary.LittleEndian.Uint32(padded[4*i:])
		}
		super, lineScale, lineZero := bitsOf(t, fields[3])[0], bitsOf(t, fields[4])[0], bitsOf(t, fields[5])[0]
		f.SetCCQSuper(scales, super)
		if f.Kind == CCQ2 {
			SetCCQ2Line(scales, lineScale, lineZero)
			local, err := hex.DecodeString(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			for g := range k / CCQGroup {
				f.SetCCQLocal(data, scales, g, uint32(local[g/2]>>(4-g%2*4)&15))
			}
		}
		got := make([]float32, k)
		Decode(f, data, scales, k, got)
		for i, v := range got {
			if d := math.Abs(float64(v) - float64(want[i])); d > 1.3e-7*math.Abs(float64(want[i])) {
				t.Fatalf("%v: weight %d is %v, want %v", f, i, v, want[i])
			}
		}
		part := make([]float32, 64)
		DecodeFrom(f, data, scales, 128, part)
		if !slices.Equal(part, got[128:]) {
			t.Errorf("%v: weights 128 to 191 alone are others", f)
		}
	}
	if err := lines.Err(); err != nil || seen != 6 {
		t.Errorf("%d columns, %v", seen, err)
	}
}

// A row is what its code words and local scales say, in whatever order they were set.
func TestSetCCQ(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, kind := range []Kind{CCQ275, CCQ25, CCQ2} {
		f := Format{kind, CCQGroup}
		const k = 3 * CCQGroup
		data, scales := make([]uint32, f.RowWords(k)), make([]uint32, f.ScaleWords(k))
		for i := range data {
			data[i] = rng.Uint32()
		}
		const super, scale, zero = 0.25, 162.0744, 10334
		f.SetCCQSuper(scales, super)
		if kind == CCQ2 {
			SetCCQ2Line(scales, scale, zero)
		}
		codes, locals := make([]uint32, k/CCQGroup*f.CCQWords()), make([]uint32, k/CCQGroup)
		for _, i := range rng.Perm(len(codes)) {
			codes[i] = rng.Uint32() & (1<<f.ccqShape().bits - 1)
			f.SetCCQCode(data, i, codes[i])
			g := i / f.CCQWords()
			locals[g] = rng.Uint32N(f.CCQLocalMax() + 1)
			f.SetCCQLocal(data, scales, g, locals[g])
		}
		got := make([]float32, k)
		Decode(f, data, scales, k, got)
		for i, v := range got {
			g, n := i/CCQGroup, i%CCQGroup
			windows := len(f.ccqShape().shifts)
			code := codes[g*f.CCQWords()+n/windows]
			if kind == CCQ2 {
				code = CCQ2Code(byte(code), scale, zero)
			}
			if l := f.CCQLocal(data, scales, g); l != locals[g] {
				t.Fatalf("%v: local scale %d is %d, want %d", f, g, l, locals[g])
			}
			var weights [7]int32
			if want := float32(f.CCQWeights(code, weights[:])[n%windows]) * float32(locals[g]) * super; v != want {
				t.Fatalf("%v: weight %d is %v, want %v", f, i, v, want)
			}
		}
	}
}

func TestCCQ2Stable(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		scale, zero float32
		want        bool
	}{
		{162.0625, 10334.4375, true}, // multiples of 1/16
		{128.5, 0, true},             // ties, but exact ones
		{0, 0.1, true},
		{1.0001, 0.25, true},   // 0.22 at least from where codes change
		{128.498, 0.25, false}, // byte 125 is at 16063, and 128.498 is no f32
		{137.1, 0, false},      // byte 5 is at 686, and 137.1 is no f32
		{inf, 0, false},
		{float32(math.NaN()), 0, false},
		{5000, 0, false}, // codes of 1.3 million
	} {
		if got := CCQ2Stable(c.scale, c.zero); got != c.want {
			t.Errorf("CCQ2Stable(%v, %v) = %v", c.scale, c.zero, got)
		}
	}
}
