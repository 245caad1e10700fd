package loadtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Lengths is a distribution of lengths in tokens. It is read from text:
//
//	256                             always 256
//	100-300, uniform:100-300        each length from 100 to 300 alike
//	normal:256,64                   mean 256, standard deviation 64
//	lognormal:256,200               the same for a distribution with a long tail
//	normal:256,64,16-1024           and none outside 16 to 1024
//
// No length is below 1. Where bounds cut a distribution, lengths outside are drawn again; so the mean moves.
type Lengths struct {
	kind     string // "fixed", "uniform", "normal" or "lognormal"
	lo, hi   int    // bounds, both included
	mean, sd float64
	text     string
}

// maxLength keeps numbers sane; no context is longer.
const maxLength = 1 << 24

// FixedLength is always n.
func FixedLength(n int) Lengths {
	return Lengths{kind: "fixed", lo: n, hi: n, text: strconv.Itoa(n)}
}

// ParseLengths reads a distribution.
func ParseLengths(s string) (Lengths, error) {
	kind, rest, named := strings.Cut(s, ":")
	if !named {
		kind, rest = "uniform", s
	}
	l := Lengths{kind: kind, lo: 1, hi: maxLength, text: s}
	bad := fmt.Errorf("%q is no length: write 256, 100-300, normal:MEAN,SD or lognormal:MEAN,SD (with ,MIN-MAX for bounds)", s)
	switch kind {
	case "uniform":
		if n, err := strconv.Atoi(rest); err == nil && !named && n >= 1 && n <= maxLength {
			return FixedLength(n), nil
		}
		if !l.bounds(rest) {
			return Lengths{}, bad
		}
	case "normal", "lognormal":
		f := strings.Split(rest, ",")
		if len(f) < 2 || len(f) > 3 || len(f) == 3 && !l.bounds(f[2]) {
			return Lengths{}, bad
		}
		var err1, err2 error
		l.mean, err1 = strconv.ParseFloat(f[0], 64)
		l.sd, err2 = strconv.ParseFloat(f[1], 64)
		if err1 != nil || err2 != nil || !(l.mean >= 1 && l.mean <= maxLength) || !(l.sd >= 0 && l.sd <= maxLength) {
			return Lengths{}, bad
		}
		if l.mean < float64(l.lo) || l.mean > float64(l.hi) {
			return Lengths{}, fmt.Errorf("%q: the mean is outside the bounds", s)
		}
	default:
		return Lengths{}, bad
	}
	return l, nil
}

func (l *Lengths) bounds(s string) bool {
	a, b, ok := strings.Cut(s, "-")
	lo, err1 := strconv.Atoi(a)
	hi, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || lo < 1 || hi < lo || hi > maxLength {
		return false
	}
	l.lo, l.hi = lo, hi
	return true
}

// Spread widens a fixed length n to the whole numbers from n(1-ratio) to n(1+ratio), as vLLM's --random-range-ratio does.
func (l Lengths) Spread(ratio float64) (Lengths, error) {
	if l.kind != "fixed" || !(ratio >= 0 && ratio < 1) {
		return Lengths{}, fmt.Errorf("a range ratio is from 0 to less than 1 and widens a fixed length, not %q by %g", l.text, ratio)
	}
	if ratio == 0 {
		return l, nil
	}
	lo, hi := max(1, int(math.Floor(float64(l.lo)*(1-ratio)))), int(math.Ceil(float64(l.lo)*(1+ratio)))
	return Lengths{kind: "uniform", lo: lo, hi: hi, text: fmt.Sprintf("%d-%d", lo, hi)}, nil
}

// String writes the distribution as it is read.
func (l Lengths) String() string { return l.text }

// Draw gives a length.
func (l Lengths) Draw(rng *rand.Rand) int {
	if l.kind == "fixed" || l.kind == "uniform" {
		return l.lo + rng.IntN(l.hi-l.lo+1)
	}
	n := 0.0
	for range 1000 {
		if l.kind == "normal" {
			n = l.mean + l.sd*rng.NormFloat64()
		} else {
			// Of a lognormal with mean m and deviation s, the logarithm has variance ln(1+(s/m)²) and mean ln m - variance/2.
			v := math.Log1p(l.sd * l.sd / (l.mean * l.mean))
			n = math.Exp(math.Log(l.mean) - v/2 + math.Sqrt(v)*rng.NormFloat64())
		}
		if n = math.Round(n); n >= float64(l.lo) && n <= float64(l.hi) {
			return int(n)
		}
	}
	return int(min(max(n, float64(l.lo)), float64(l.hi))) // bounds that hold next to nothing of the distribution
}

// UnmarshalText reads the distribution from a flag.
func (l *Lengths) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLengths(string(text))
	return err
}
