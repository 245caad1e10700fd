package bench

import (
	"math"
	"slices"
)

// spread is what samples, at least one, have in common.
func spread(samples []float64) Speed {
	s := slices.Sorted(slices.Values(samples))
	n, mean, square := len(s), 0.0, 0.0
	for _, v := range s {
		mean += v / float64(n)
	}
	for _, v := range s {
		square += (v - mean) * (v - mean)
	}
	return Speed{
		Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1], SD: math.Sqrt(square / float64(max(1, n-1))), Samples: samples,
	}
}
