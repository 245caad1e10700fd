package loadtest

import (
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals are the times at which the requests of an open loop are due. The gaps between them have a gamma distribution
// with mean 1/rate and shape burstiness, as in "vllm bench serve": 1 is a Poisson process (exponential gaps), less is
// burstier, more is more regular, and +Inf is a clock. Unlike there, the times are not stretched afterwards so that the
// last one comes at exactly n/rate: that would take from the process the very randomness that is asked for.
type Arrivals struct {
	rate, shape float64
	rng         *rand.Rand
	at          float64 // seconds
}

// NewArrivals begins a process with rate arrivals a second. The same seed gives the same times.
func NewArrivals(rate, burstiness float64, seed uint64) *Arrivals {
	return &Arrivals{rate: rate, shape: burstiness, rng: newRand(seed, streamArrivals)}
}

// Next gives the next arrival, as the time since the start.
func (a *Arrivals) Next() time.Duration {
	gap := 1 / a.rate
	switch {
	case a.shape == 1:
		gap *= a.rng.ExpFloat64()
	case !math.IsInf(a.shape, 1):
		gap *= gamma(a.rng, a.shape) / a.shape
	}
	a.at += gap
	return time.Duration(min(a.at*1e9, math.MaxInt64/2))
}

// gamma draws from the gamma distribution with a shape and scale 1, by the method of Marsaglia and Tsang ("A simple method
// for generating gamma variables", 2000).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		// 1 - Float64 is in (0, 1], so that the power is never that of 0.
		return gamma(rng, shape+1) * math.Pow(1-rng.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// Streams of random numbers that must not depend on each other; the requests have their own above streamRequests.
const (
	streamArrivals = iota
	streamShuffle
	streamPrefixes = 1 << 32
	streamRequests = 1 << 33
)

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
