package loadtest

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestPercentile has the values of numpy.percentile (method "linear").
func TestPercentile(t *testing.T) {
	samples := func(values ...int) (d []time.Duration) {
		for _, v := range values {
			d = append(d, time.Duration(v)*msec)
		}
		return d
	}
	for _, c := range []struct {
		samples []time.Duration
		p, want float64
	}{
		{samples(15, 20, 35, 40, 50), 40, 29},
		{samples(15, 20, 35, 40, 50), 0, 15},
		{samples(15, 20, 35, 40, 50), 100, 50},
		{samples(15, 20, 35, 40, 50), 90, 46},
		{samples(1, 2, 3, 4), 50, 2.5},
		{samples(1, 2, 3, 4), 99, 3.97},
		{samples(1, 2, 3, 4), 25, 1.75},
		{samples(7), 99.9, 7},
		{samples(3, 3, 3), 66, 3},
	} {
		if got := Percentile(c.samples, c.p); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("p%g of %v is %g, want %g", c.p, c.samples, got, c.want)
		}
	}
	d := Distribute(samples(4, 2, 9, 4, 5, 4, 7, 5), []float64{99.9})
	if d.Mean != 5 || d.Std != 2 || d.Median != 4.5 || d.Min != 2 || d.Max != 9 || d.Samples != 8 || math.Abs(d.Percentiles["p99.9"]-8.986) > 1e-9 {
		t.Errorf("%+v", d)
	}
	if Distribute(nil, []float64{99}) != nil {
		t.Error("nothing has a distribution")
	}
}

// result is a request that was due at 0, sent 10 ms later, and had output at the given times.
func result(tokens int, at ...int) Result {
	r := Result{Sent: 10 * msec, Exchange: Exchange{Done: true, Chunks: len(at), Usage: &Usage{PromptTokens: 100, CompletionTokens: tokens}}}
	for i, ms := range at {
		now := time.Duration(ms) * msec
		if i == 0 {
			r.First = now
		} else {
			r.Gaps = append(r.Gaps, now-r.Last)
		}
		r.Last = now
	}
	return r
}

func TestGoals(t *testing.T) {
	goal := func(s string) Goal {
		g, err := ParseGoal(s)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	r := result(5, 100, 120, 150, 160) // a chunk of two tokens among them: TPOT is 60 ms / 4
	for s, want := range map[string]bool{
		"ttft:100": true, "ttft:99.9": false, "tpot:15": true, "tpot:14.9": false, "itl:30": true, "itl:29": false, "e2el:160": true, "e2el:159": false,
	} {
		if r.meets(goal(s)) != want {
			t.Errorf("%s: %v", s, !want)
		}
	}
	if one := result(1, 100); !one.meets(goal("tpot:1")) || !one.meets(goal("itl:1")) {
		t.Error("an answer of one token has no time per token that could be too long")
	}
	failed := result(5, 100)
	failed.Err = &Fault{Kind: KindStream}
	out := &Outcome{Results: []Result{r, result(2, 500, 510), failed}, Duration: 2 * time.Second, OpenLoop: true}
	s := Summarize(out, nil, []Goal{goal("ttft:200"), goal("tpot:20")})
	if *s.Good != 1 || *s.GoodRate != 0.5 || s.TTFT.Max != 500 || s.SentTTFT.Max != 490 || s.E2EL.Min != 160 || s.SentE2EL.Min != 150 {
		t.Errorf("%d good, %+v", *s.Good, s)
	}
	if s = Summarize(out, nil, nil); s.Good != nil {
		t.Error("there is goodput without goals")
	}
	for _, bad := range []string{"", "ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:x", "latency:5", "ttft:1:2", "ttft:inf", "ttft:nan"} {
		if _, err := ParseGoal(bad); err == nil {
			t.Errorf("%q is a goal", bad)
		}
	}
}

// gaps of n arrivals, as multiples of their mean 1/rate.
func gaps(n int, rate, burstiness float64, seed uint64) []float64 {
	a := NewArrivals(rate, burstiness, seed)
	var last time.Duration
	g := make([]float64, n)
	for i := range g {
		at := a.Next()
		g[i] = (at - last).Seconds() * rate
		last = at
	}
	return g
}

// TestArrivals holds the gaps against the gamma distribution: its mean, its variance 1/burstiness, and for the Poisson
// process the whole distribution by Kolmogorov and Smirnov.
func TestArrivals(t *testing.T) {
	const n = 20_000
	for _, b := range []float64{0.25, 0.5, 1, 2, 4, 20} {
		g := gaps(n, 50, b, 1)
		var mean, variance float64
		for _, x := range g {
			mean += x / n
		}
		for _, x := range g {
			variance += (x - mean) * (x - mean) / n
		}
		// The mean of n gaps deviates by sqrt(1/b/n); the variance by about (1/b) sqrt((2+6/b)/n).
		if limit := 4 * math.Sqrt(1/b/n); math.Abs(mean-1) > limit {
			t.Errorf("burstiness %g: mean gap %.4f of 1/rate, off by more than %.4f", b, mean, limit)
		}
		if limit := 4 / b * math.Sqrt((2+6/b)/n); math.Abs(variance-1/b) > limit {
			t.Errorf("burstiness %g: variance %.4f, want %.4f within %.4f", b, variance, 1/b, limit)
		}
	}
	for seed := range uint64(3) {
		g := gaps(n, 3, 1, seed)
		slices.Sort(g)
		var most float64
		for i, x := range g {
			f := -math.Expm1(-x)
			most = max(most, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
		}
		if most*math.Sqrt(n) > 1.63 { // the 1 % point
			t.Errorf("seed %d: gaps are not exponential: distance %.4f", seed, most)
		}
	}
	for i, x := range gaps(10, 4, math.Inf(1), 0) {
		if math.Abs(x-1) > 1e-8 {
			t.Errorf("a clock's gap %d is %g of 1/rate", i, x)
		}
	}
	if a, b := gaps(100, 5, 0.5, 7), gaps(100, 5, 0.5, 7); !slices.Equal(a, b) {
		t.Error("the same seed gives other times")
	}
	if a, b := gaps(100, 5, 1, 7), gaps(100, 5, 1, 8); slices.Equal(a, b) {
		t.Error("another seed gives the same times")
	}
}

// TestArrivalsAreIndependent: the numbers of arrivals in equal spans have a variance equal to their mean.
func TestArrivalsAreIndependent(t *testing.T) {
	const spans, rate = 4000, 10
	counts := make([]float64, spans)
	for a := NewArrivals(rate, 1, 3); ; {
		at := int(a.Next() / time.Second)
		if at >= spans {
			break
		}
		counts[at]++
	}
	var mean, variance float64
	for _, c := range counts {
		mean += c / spans
	}
	for _, c := range counts {
		variance += (c - mean) * (c - mean) / spans
	}
	if math.Abs(mean-rate) > 4*math.Sqrt(rate/float64(spans)) || math.Abs(variance/mean-1) > 4*math.Sqrt(2/float64(spans)) {
		t.Errorf("mean %.3f, variance %.3f", mean, variance)
	}
}
