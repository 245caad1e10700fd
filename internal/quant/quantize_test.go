package quant

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// decoded quantizes rows and decodes them again.
func decoded(t testing.TB, f Format, w []float32, k int) []float32 {
	t.Helper()
	data, scales, err := Quantize(f, w, k)
	if err != nil {
		t.Fatalf("%v: %v", f, err)
	}
	got := make([]float32, len(w))
	for r := range len(w) / k {
		Decode(f, data[r*f.RowWords(k):], scales[r*f.ScaleWords(k):], k, got[r*k:])
	}
	return got
}

// fullShape computes weights of the synthetic model whose every weight is exact in 4 bits, by its published rule.
func fullShape(name string, exponent, n int) []float32 {
	mix := func(z uint64) uint64 {
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		return z ^ z>>31
	}
	seed := uint64(0xCBF29CE484222325)
	for _, c := range []byte(name) {
		seed = (seed ^ uint64(c)) * 0x100000001B3
	}
	h := func(i uint64) uint64 { return mix(seed + (i+1)*0x9E3779B97F4A7C15) }
	w := make([]float32, n)
	for j := range n / 32 {
		codes := make([]int, 32)
		for i := range codes {
			codes[i] = 1 + int(h(uint64(32*j+i))%15)
		}
		x := h(1<<41 + uint64(j))
		codes[x&31] = 0
		codes[(x&31+1+(x>>32)%31)&31] = 15
		r := h(1<<40+uint64(j/4)) >> 60
		scale := float32(16+r) / 32 * float32(math.Ldexp(1, exponent))
		for i, c := range codes {
			w[32*j+i] = float32(c-8) * scale
		}
	}
	return w
}

func TestFullShapeIsExact(t *testing.T) {
	for _, name := range []string{"model.embed_tokens.weight", "model.layers.3.mlp.down_proj.weight"} {
		w := fullShape(name, -7, 64*1024)
		for _, group := range []int{32, 64, 128} {
			for _, kind := range []Kind{Q4, Q8} {
				f := Format{kind, group}
				if got := decoded(t, f, w, 1024); !slices.Equal(got, w) {
					t.Errorf("%s: %v: weights have changed", name, f)
				}
			}
		}
	}
}

// Whatever any scale and whole zero point can make, with any subset of the codes in use, is found again exactly.
func TestLosslessIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range []Format{{Q4, 8}, {Q4, 32}, {Q8, 16}, {Q8, 128}, {Q3, 16}, {Q3, 32}, {Q2, 16}, {Q2, 64}} {
		for range 2000 {
			scale := F16ToF32(uint16(rng.IntN(0x6000-0x0800) + 0x0800))
			zero, from := rng.IntN(f.MaxCode()+1), rng.IntN(f.MaxCode())
			to, step := from+1+rng.IntN(f.MaxCode()-from), 1+rng.IntN(3)
			w := make([]float32, f.Multiple())
			for i := range w {
				w[i] = float32(min(from+rng.IntN(to-from+1)/step*step, to)-zero) * scale
			}
			if got := decoded(t, f, w, len(w)); !slices.Equal(got, w) {
				t.Fatalf("%v: scale %v, zero %d, codes %d to %d by %d:\n got %v\nwant %v", f, scale, zero, from, to, step, got, w)
			}
		}
	}
}

// bell fills weights with a normal distribution that is cut to bf16, as checkpoints are, and some outliers.
func bell(n int, outliers bool) []float32 {
	rng := rand.New(rand.NewPCG(7, 7))
	w := make([]float32, n)
	for i := range w {
		x := rng.NormFloat64() * 0.02
		if outliers && rng.IntN(100) == 0 {
			x *= 6
		}
		w[i] = BF16ToF32(F32ToBF16(float32(x)))
	}
	return w
}

func TestSearchBeatsPlainRounding(t *testing.T) {
	for _, outliers := range []bool{false, true} {
		w := bell(1<<16, outliers)
		for _, c := range []struct {
			f    Format
			most float64 // of plain rounding's squared error
		}{
			{Format{Q4, 8}, 0.65},
			{Format{Q4, 32}, 0.80},
			{Format{Q4, 64}, 0.85},
			{Format{Q4, 128}, 0.90},
			{Format{Q8, 32}, 0.85},
			{Format{Q3, 32}, 0.73},
			{Format{Q3, 128}, 0.72},
			{Format{Q2, 16}, 0.60},
			{Format{Q2, 32}, 0.63},
			{Format{Q2, 64}, 0.62},
			{Format{Q2, 128}, 0.57},
		} {
			got := decoded(t, c.f, w, 1024)
			plain := 0.0
			for g := 0; g < len(w); g += c.f.Group {
				plain += plainError(c.f, w[g:g+c.f.Group])
			}
			ratio := squared(got, w) / plain
			t.Logf("%v, outliers %v: %.3f of the squared error of plain rounding", c.f, outliers, ratio)
			if ratio > c.most {
				t.Errorf("%v, outliers %v: %.3f of plain rounding, want at most %v", c.f, outliers, ratio, c.most)
			}
		}
	}
}

// Groups that break naive quantizers. tolerance is relative to the largest weight.
func TestHardGroups(t *testing.T) {
	group := func(w ...float32) []float32 { return slices.Concat(slices.Repeat(w, 32/len(w)), w[:32%len(w)]) }
	outlier := group(0.001, -0.001)
	outlier[5] = 1
	far := make([]float32, 32)
	for i := range far {
		far[i] = 1000 + float32(i)/3200
	}
	negativeFar := make([]float32, 32)
	for i, v := range far {
		negativeFar[i] = -v * 100
	}
	for name, c := range map[string]struct {
		w          []float32
		q4, q8     float64
		wantSign   bool
		maxDecoded float64
	}{
		"zeros":                {w: group(0)},
		"negative zeros":       {w: group(float32(math.Copysign(0, -1)))},
		"equal halves":         {w: group(0.1875)},
		"equal negative":       {w: group(-7)},
		"equal, not a half":    {w: group(0.1), q4: 2e-6, q8: 2e-6},
		"equal, negative":      {w: group(-0.123456), q4: 2e-6, q8: 2e-6},
		"equal, large":         {w: group(1e6), q4: 2e-6, q8: 2e-6},
		"equal, beyond a half": {w: group(-70000), q4: 2e-6, q8: 2e-6},
		"two values":           {w: group(-1, 1)},
		"one outlier":          {w: outlier, q4: 0.04, q8: 0.003},
		"all positive":         {w: group(5, 6, 7, 8)},
		"far from zero":        {w: far, q4: 1e-5, q8: 1e-5},
		"far below zero":       {w: negativeFar, q4: 1e-5, q8: 1e-5},
		"large":                {w: group(60000, -60000, 1), q4: 0.06, q8: 0.004},
		"larger than a half":   {w: group(3e5, -3e5, 7), q4: 0.06, q8: 0.004},
		"small":                {w: group(1e-5, -2e-5, 3e-6), q4: 0.06, q8: 0.004},
		"denormal scales":      {w: group(1e-7, -2e-7, 3e-7), q4: 0.1, q8: 0.1},
		"below every half":     {w: group(1e-30, -2e-30), q4: 1, q8: 1},
		"f32 denormals":        {w: group(1e-42, 2e-42), q4: 1, q8: 1},
	} {
		largest := math.Max(math.Abs(float64(slices.Max(c.w))), math.Abs(float64(slices.Min(c.w))))
		for _, k := range []struct {
			f         Format
			tolerance float64
		}{{Format{Q4, 32}, c.q4}, {Format{Q8, 32}, c.q8}} {
			got := decoded(t, k.f, c.w, 32)
			for i, v := range got {
				if d := math.Abs(float64(v) - float64(c.w[i])); !(d <= k.tolerance*largest) {
					t.Errorf("%s, %v: weight %d is %v, want %v", name, k.f, i, v, c.w[i])
					break
				}
			}
		}
	}
}

func TestQuantizeErrors(t *testing.T) {
	with := func(v float32) []float32 {
		w := make([]float32, 2*64)
		w[64+37] = v
		return w
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		f    Format
		w    []float32
		want string
	}{
		{Format{Q4, 32}, with(float32(math.NaN())), "row 1, weights 32 to 63"},
		{Format{Q8, 32}, with(inf), "+Inf"},
		{Format{Q4, 8}, with(-inf), "-Inf"},
		{Format{Q4, 32}, with(1e30), "no half is large enough"},
		{Format{Q8, 64}, slices.Repeat([]float32{-1e30}, 128), "no half is large enough"},
		{Format{Q2, 32}, with(float32(math.NaN())), "row 1, weights 32 to 63"},
		{Format{F8, 32}, with(inf), "row 1, weights 32 to 63: weight 5 of the group is +Inf"},
		{Format{F16, 0}, with(65520), "row 1, weight 37 is 65520"},
		{Format{F16, 0}, with(float32(math.NaN())), "row 1, weight 37 is NaN"},
		{Format{F32, 0}, with(inf), "row 1, weight 37 is +Inf"},
		{Format{BF16, 0}, with(math.MaxFloat32), "row 1, weight 37"},
	} {
		_, _, err := Quantize(c.f, c.w, 64)
		if !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want an error about %q", c.f, err, c.want)
		}
	}
	if _, _, err := Quantize(Format{F16, 0}, with(65519), 64); err != nil {
		t.Errorf("65519 rounds to the largest half: %v", err)
	}
	if _, _, err := Quantize(Format{IQ4, 32}, with(0), 64); err == nil || !strings.Contains(err.Error(), "no weights are quantized to iq4g32") {
		t.Errorf("iq4g32 gives %v", err)
	}
	if _, _, err := Quantize(Format{Q4, 48}, with(0), 64); err == nil {
		t.Error("a group of 48 was accepted")
	}
	if err := QuantizeTo(Format{Q4, 32}, with(0), 64, make([]uint32, 15), make([]uint32, 4)); err == nil {
		t.Error("too little memory was accepted")
	}
	if _, _, err := Quantize(Format{Q4, 32}, make([]float32, 65), 64); err == nil {
		t.Error("a broken row was accepted")
	}
}

// An e4m3fn float has four digits, or is a multiple of 2^-9 of a scale that makes the largest weight 448.
func TestQuantizeF8(t *testing.T) {
	for _, group := range []int{8, 128} {
		w := bell(1<<12, true)
		clear(w[:128])
		copy(w[128:], []float32{1e-30, -1e30, 1, 0})
		f := Format{F8, group}
		got := decoded(t, f, w, 1024)
		for g := 0; g < len(w); g += group {
			largest := 0.0
			for _, v := range w[g : g+group] {
				largest = max(largest, math.Abs(float64(v)))
			}
			for i := g; i < g+group; i++ {
				v := float64(w[i])
				if d := math.Abs(float64(got[i]) - v); !(d <= max(math.Abs(v)/16, largest/448/1024)+math.Abs(v)*2e-7) {
					t.Fatalf("%v: weight %d is %v, want %v; the largest of the group is %v", f, i, got[i], v, largest)
				}
			}
		}
	}
}

func TestQuantizeToDoesNotAllocate(t *testing.T) {
	for _, f := range []Format{{Q4, 32}, {Q2, 16}, {F8, 128}} {
		w := bell(1024, true)
		data, scales := make([]uint32, f.RowWords(1024)), make([]uint32, f.ScaleWords(1024))
		if n := testing.AllocsPerRun(3, func() {
			if err := QuantizeTo(f, w, 1024, data, scales); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", f, n)
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	w := bell(1<<16, false)
	for _, f := range []Format{{F16, 0}, {F8, 128}, {Q8, 32}, {Q4, 32}, {Q4, 128}, {Q3, 64}, {Q2, 64}} {
		data, scales := make([]uint32, 64*f.RowWords(1024)), make([]uint32, 64*f.ScaleWords(1024))
		b.Run(f.String(), func(b *testing.B) {
			for b.Loop() {
				if err := QuantizeTo(f, w, 1024, data, scales); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(w)), "ns/weight")
		})
	}
}
