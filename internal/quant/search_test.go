package quant

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// correlated makes tokens of inputs that share a few causes, and their second moment.
func correlated(rng *rand.Rand, k, tokens int) []float64 {
	causes := make([][]float64, k)
	for i := range causes {
		causes[i] = make([]float64, 6)
		for j := range causes[i] {
			causes[i][j] = rng.NormFloat64()
		}
	}
	h := make([]float64, k*k)
	x, z := make([]float64, k), make([]float64, 6)
	for range tokens {
		for j := range z {
			z[j] = rng.NormFloat64()
		}
		for i := range x {
			x[i] = 0.5 * rng.NormFloat64()
			for j, c := range causes[i] {
				x[i] += c * z[j]
			}
			x[i] *= 1 + float64(i%7)/3
		}
		for i := range x {
			for j := range x {
				h[i*k+j] += x[i] * x[j] / float64(tokens)
			}
		}
	}
	return h
}

func gauss(rng *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64() * 0.05)
	}
	return w
}

// lossOf quantizes and says what is lost under a metric.
func lossOf(t *testing.T, s Search, f Format, w []float32, k int, m *Metric) float64 {
	t.Helper()
	rows := len(w) / k
	data, scales := make([]uint32, rows*f.RowWords(k)), make([]uint32, rows*f.ScaleWords(k))
	if err := s.Quantize(f, w, k, data, scales); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	got, e := make([]float32, k), make([]float64, k)
	for r := range rows {
		Decode(f, data[r*f.RowWords(k):], scales[r*f.ScaleWords(k):], k, got)
		for i, v := range got {
			e[i] = float64(w[r*k+i]) - float64(v)
		}
		sum += m.Loss(e)
	}
	return sum
}

var searchedFormats = []Format{{Q8, 32}, {Q4, 32}, {Q4, 128}, {Q3, 32}, {Q2, 16}, {Q2, 64}, {CCQ275, 64}, {CCQ25, 64}, {CCQ2, 64}}

// Loss is what e H eᵀ is when it is written out.
func TestMetricLoss(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const k = 40
	h := correlated(rng, k, 500)
	plain := slices.Clone(h)
	m, err := NewMetric(h)
	if err != nil {
		t.Fatal(err)
	}
	e := make([]float64, k)
	for i := range e {
		e[i] = rng.NormFloat64()
	}
	want := 0.0
	for i := range k {
		want += (m.diagonal[i] - plain[i*k+i]) * e[i] * e[i] // the damping
		for j := range k {
			want += e[i] * plain[i*k+j] * e[j]
		}
	}
	if got := m.Loss(e); math.Abs(got-want) > 1e-9*want {
		t.Errorf("got %v, want %v", got, want)
	}
	// Factors on the columns and their inverse on the errors change nothing.
	factors := make([]float32, k)
	for i := range factors {
		factors[i] = 0.25 * float32(1+i%9)
	}
	scaled := m.Scaled(factors)
	for i := range e {
		e[i] *= float64(factors[i])
	}
	if got := scaled.Loss(e); math.Abs(got-want) > 1e-9*want {
		t.Errorf("scaled: got %v, want %v", got, want)
	}
}

// Inputs that depend on each other let later weights make up for earlier ones; and to know which inputs are large beats not to know.
func TestFeedbackAndWeighingLoseLess(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	const k, rows = 256, 24
	h := correlated(rng, k, 1500)
	diagonal := make([]float64, k)
	for i := range diagonal {
		diagonal[i] = h[i*k+i]
	}
	full, err := NewMetric(h)
	if err != nil {
		t.Fatal(err)
	}
	weighed, err := DiagonalMetric(diagonal)
	if err != nil {
		t.Fatal(err)
	}
	w := gauss(rng, rows*k)
	for _, f := range searchedFormats {
		plain := lossOf(t, Search{}, f, w, k, full)
		back := lossOf(t, Search{Metric: full, Feedback: true}, f, w, k, full)
		if back > 0.6*plain {
			t.Errorf("%v: with feedback %.4g is lost, without %.4g", f, back, plain)
		}
		plainDiagonal := lossOf(t, Search{}, f, w, k, weighed)
		if got := lossOf(t, Search{Metric: weighed}, f, w, k, weighed); got > plainDiagonal*0.99 {
			t.Errorf("%v: weighed %.4g is lost, unweighed %.4g", f, got, plainDiagonal)
		}
	}
}

// Without a metric, the search is at least as good as what everybody does: the scale from the smallest to the largest weight.
func TestSearchBeatsTheWholeRange(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	const k = 128
	for _, f := range []Format{{Q8, 32}, {Q4, 32}, {Q3, 64}, {Q2, 64}} {
		w := gauss(rng, 16*k)
		same, err := DiagonalMetric(slices.Repeat([]float64{1}, k))
		if err != nil {
			t.Fatal(err)
		}
		got := lossOf(t, Search{}, f, w, k, same) / 1.01 // the damping
		want := 0.0
		most := float64(f.MaxCode())
		for lo := 0; lo < len(w); lo += f.Group {
			g := w[lo : lo+f.Group]
			a, b := float64(slices.Min(g)), float64(slices.Max(g))
			for _, v := range g {
				d := float64(v) - (a + math.Round((float64(v)-a)/(b-a)*most)*(b-a)/most)
				want += d * d
			}
		}
		if got > want {
			t.Errorf("%v: %.5g is lost, plain rounding loses %.5g", f, got, want)
		}
	}
}

// What can be kept exactly stays exact, with feedback too.
func TestSearchKeepsWhatFits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	const k = 64
	m, err := NewMetric(correlated(rng, k, 200))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Format{{Q8, 32}, {Q4, 32}, {Q3, 32}, {Q2, 32}} {
		w := make([]float32, 3*k)
		for i := range w {
			w[i] = float32(rng.IntN(f.MaxCode()+1)-1) * 0.125
		}
		for g := 0; g < len(w); g += 32 {
			w[g], w[g+1] = -0.125, float32(f.MaxCode()-1)*0.125
		}
		if got := lossOf(t, Search{Metric: m, Feedback: true}, f, w, k, m); got != 0 {
			t.Errorf("%v: %v is lost", f, got)
		}
	}
	for _, f := range searchedFormats {
		if f.Group > k {
			continue
		}
		if got := lossOf(t, Search{Metric: m, Feedback: true}, f, make([]float32, k*2), k, m); got != 0 {
			t.Errorf("%v: %v is lost of nothing", f, got)
		}
	}
}

// The path through a chain is the best of all paths, whose bits are simply counted up.
func TestChainIsOptimal(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	const k = 64
	m, err := NewMetric(correlated(rng, k, 300))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ window, n int }{{4, 3}, {3, 3}, {3, 4}} {
		zero := float64(int(1) << (c.window - 1))
		for _, feedback := range []bool{false, true} {
			s := chainSearch{codes: 1 << c.window, zero: zero, window: c.window}
			for range 40 {
				r := Search{Metric: m, Feedback: feedback}.newRow(k)
				if err := r.load(gauss(rng, k)); err != nil {
					t.Fatal(err)
				}
				at := rng.IntN(k - c.n)
				for i := range r.target {
					r.target[i] += 0.02 * rng.NormFloat64()
				}
				scale := 0.05 * (0.2 + rng.Float64()) * 4 / zero
				s.chain(r, at, c.n, scale)
				cost := func(bits uint32) float64 {
					sum := 0.0
					target := slices.Clone(r.target[at : at+c.n])
					for i := range c.n {
						code := bits >> (chainStep * (c.n - 1 - i)) & (1<<c.window - 1)
						q := (float64(code) - zero) * scale
						sum += r.weight[at+i] * (target[i] - q) * (target[i] - q)
						for j := i + 1; j < c.n && feedback; j++ {
							target[j] += (r.w[at+i] - q) * m.u[(at+i)*k+at+j]
						}
					}
					return sum
				}
				least := math.Inf(1)
				for bits := range uint32(1) << (c.window + chainStep*(c.n-1)) {
					least = min(least, cost(bits))
				}
				if got := cost(s.join(c.n)); got > least*(1+1e-9) {
					t.Fatalf("%d windows of %d bits, feedback %v: the path costs %v, the best %v", c.n, c.window, feedback, got, least)
				}
			}
		}
	}
}

// The byte of CCQ2 is the best of all 256, for what the targets have become.
func TestCCQ2IsOptimal(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	const k = 64
	m, err := NewMetric(correlated(rng, k, 300))
	if err != nil {
		t.Fatal(err)
	}
	c := newCCQ2(k)
	for range 20 {
		r := Search{Metric: m, Feedback: true}.newRow(k)
		if err := r.load(gauss(rng, k)); err != nil {
			t.Fatal(err)
		}
		book := c.books[rng.IntN(len(c.books))]
		const at, scale = 20, 0.003
		cost := func(b int) float64 {
			target, sum := slices.Clone(r.target), 0.0
			for i := at; i < at+4; i++ {
				q := book[b][i-at] * scale
				sum += m.d[i] * (target[i] - q) * (target[i] - q)
				for j := i + 1; j < k; j++ {
					target[j] += (r.w[i] - q) * m.u[i*k+j]
				}
			}
			return sum
		}
		least := math.Inf(1)
		for b := range 256 {
			least = min(least, cost(b))
		}
		if got := cost(c.nearest(book, r, at, scale)); got > least*(1+1e-9) {
			t.Fatalf("the byte costs %v, the best %v", got, least)
		}
	}
}

// Every pair gives the same codes on all devices, and covers normal weights as well as its comment says.
func TestCCQ2Books(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	const k = 64 * 32
	w := gauss(rng, k)
	for i, pair := range ccq2Books {
		if !CCQ2Stable(pair[0], pair[1]) {
			t.Errorf("pair %v: a code depends on how a device rounds", pair)
		}
		book, loss, all := newCCQ2Book(pair[0], pair[1]), 0.0, 0.0
		weight := slices.Repeat([]float64{1}, 4)
		target := make([]float64, 4)
		for at := 0; at < k; at += 4 {
			for j := range target {
				target[j] = float64(w[at+j])
				all += target[j] * target[j]
			}
			err, _ := nearest4(book, target, weight, 0.05*ccq2Spread)
			loss += err
		}
		if db := 10 * math.Log10(all/loss); db < 9.2 {
			t.Errorf("pair %d: normal weights are kept at %.2f dB", i, db)
		}
	}
}

// What a normal weight keeps: the figures that the layouts promise, each within what the search finds above them.
func TestConvolutionalCodesKeepNormalWeights(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(15, 16))
	const k = 1024
	w := gauss(rng, 8*k)
	same, err := DiagonalMetric(slices.Repeat([]float64{1}, k))
	if err != nil {
		t.Fatal(err)
	}
	all := 0.0
	for _, v := range w {
		all += float64(v) * float64(v)
	}
	for _, c := range []struct {
		f    Format
		want float64 // dB
	}{{Format{CCQ275, 64}, 10.8}, {Format{CCQ25, 64}, 9.9}, {Format{CCQ2, 64}, 9.3}} {
		if db := 10 * math.Log10(all*1.01/lossOf(t, Search{}, c.f, w, k, same)); db < c.want {
			t.Errorf("%v: normal weights are kept at %.2f dB, want %.2f", c.f, db, c.want)
		}
	}
}

func TestSearchErrors(t *testing.T) {
	t.Parallel()
	const k = 64
	nan := make([]float32, 2*k)
	nan[k+3] = float32(math.NaN())
	for _, f := range searchedFormats {
		if f.Group > k {
			continue
		}
		data, scales := make([]uint32, 2*f.RowWords(k)), make([]uint32, 2*f.ScaleWords(k))
		if err := (Search{}).Quantize(f, nan, k, data, scales); !errors.Is(err, ErrRange) {
			t.Errorf("%v: a NaN gave %v", f, err)
		}
		if err := (Search{Feedback: true}).Quantize(f, nan[:k], k, data[:f.RowWords(k)], scales[:f.ScaleWords(k)]); err == nil {
			t.Errorf("%v: feedback without a metric was accepted", f)
		}
		if err := (Search{}).Quantize(f, nan[:k], k, data, scales); err == nil {
			t.Errorf("%v: too much memory was accepted", f)
		}
	}
	if err := (Search{}).Quantize(Format{F16, 0}, nan[:k], k, make([]uint32, k/2), nil); err == nil {
		t.Error("a search for f16 was accepted")
	}
	if _, err := NewMetric(make([]float64, 5)); err == nil {
		t.Error("5 numbers passed as a square matrix")
	}
	if _, err := NewMetric([]float64{1, 3, 3, 1}); err == nil {
		t.Error("a matrix that is no moment was accepted")
	}
	if _, err := DiagonalMetric([]float64{1, math.NaN()}); err == nil {
		t.Error("a NaN was accepted as a mean square")
	}
}

// What is stored does not depend on how many processors there are, or on which rows are quantized together.
func TestSearchIsTheSameRowByRow(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(17, 18))
	const k, rows = 128, 9
	m, err := NewMetric(correlated(rng, k, 300))
	if err != nil {
		t.Fatal(err)
	}
	w := gauss(rng, rows*k)
	for _, f := range searchedFormats {
		s := Search{Metric: m, Feedback: true}
		n, ns := f.RowWords(k), f.ScaleWords(k)
		data, scales := make([]uint32, rows*n), make([]uint32, rows*ns)
		if err := s.Quantize(f, w, k, data, scales); err != nil {
			t.Fatal(err)
		}
		for r := range rows {
			one, oneScales := make([]uint32, n), make([]uint32, ns)
			if err := s.Quantize(f, w[r*k:(r+1)*k], k, one, oneScales); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(one, data[r*n:(r+1)*n]) || !slices.Equal(oneScales, scales[r*ns:(r+1)*ns]) {
				t.Errorf("%v: row %d alone is stored otherwise", f, r)
			}
		}
	}
}

// Factors help where few inputs are large, and none are taken where they would not.
func TestChannels(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(19, 20))
	const k, rows = 128, 200
	magnitude, square := make([]float64, k), make([]float64, k)
	for i := range magnitude {
		magnitude[i] = 1
		if i%32 == 5 {
			magnitude[i] = 30
		}
		square[i] = magnitude[i] * magnitude[i] * math.Pi / 2
	}
	m, err := DiagonalMetric(square)
	if err != nil {
		t.Fatal(err)
	}
	f := Format{Q4, 128}
	factors, before, after, err := Channels([]Matrix{{gauss(rng, rows*k), f}, {gauss(rng, 8*k), f}}, magnitude, m)
	if err != nil {
		t.Fatal(err)
	}
	if factors == nil || after > 0.8*before {
		t.Errorf("%.4g is lost with factors, %.4g without", after, before)
	} else if factors[5] <= factors[6] {
		t.Errorf("a large input has the factor %v, a small one %v", factors[5], factors[6])
	}
	even, err := DiagonalMetric(slices.Repeat([]float64{1}, k))
	if err != nil {
		t.Fatal(err)
	}
	w := gauss(rng, rows*k)
	if factors, before, after, err = Channels([]Matrix{{w, f}}, magnitude, even); err != nil || after > before || factors == nil && after != before {
		t.Errorf("inputs that are alike: %.4g is lost with factors, %.4g without, error %v", after, before, err)
	}
	if _, _, _, err := Channels([]Matrix{{w, Format{F16, 0}}}, magnitude, even); err == nil {
		t.Error("f16 was accepted")
	}
	if _, _, _, err := Channels([]Matrix{{w, f}}, magnitude[1:], even); err == nil {
		t.Error("too few magnitudes were accepted")
	}
}

func BenchmarkSearch(b *testing.B) {
	rng := rand.New(rand.NewPCG(21, 22))
	const k, rows = 1024, 16
	m, err := NewMetric(correlated(rng, k, 100))
	if err != nil {
		b.Fatal(err)
	}
	w := gauss(rng, rows*k)
	for _, f := range searchedFormats {
		b.Run(f.String(), func(b *testing.B) {
			data, scales := make([]uint32, rows*f.RowWords(k)), make([]uint32, rows*f.ScaleWords(k))
			b.SetBytes(int64(4 * len(w)))
			for b.Loop() {
				if err := (Search{Metric: m, Feedback: true}).Quantize(f, w, k, data, scales); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
