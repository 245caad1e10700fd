package planner

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/weights"
)

// DefaultBudget is the memory budget for weights, cache and scratch when none is stated. WebGPU tells no free memory, so
// this is an estimate of what a device of that kind can spare; a browser tab has less.
func DefaultBudget(k gpu.Kind, tab bool) int64 {
	switch {
	case k == gpu.KindHardware && !tab:
		return 8 << 30
	case k == gpu.KindHardware, !tab:
		return 4 << 30
	}
	return 2 << 30
}

// DefaultMaxSeqs is how many answers a device of that kind works on at once, unless it is told. The cache has room for as many
// of full length, as far as the budget goes.
func DefaultMaxSeqs(k gpu.Kind, tab bool) int {
	switch {
	case tab:
		return 4
	case k == gpu.KindHardware:
		return 64
	}
	return 16
}

// DefaultMaxTokens is the size of a prefill chunk: large enough to read each weight for many tokens, small enough that a
// step takes well under a second on that kind of device.
func DefaultMaxTokens(k gpu.Kind, maxSeqs int) int {
	if k == gpu.KindHardware {
		return max(512, maxSeqs)
	}
	return max(64, maxSeqs)
}

// SourceBytes is what a model's weights take as they are to be loaded, and in 4 bits; q4 is 0 where that is no less.
func SourceBytes(src weights.Source) (asLoaded, q4 int64) {
	asLoaded, q4 = src.Bytes(), weights.BytesAs(src, weights.PolicyQ4(nil))
	if q4 >= asLoaded {
		q4 = 0
	}
	return asLoaded, q4
}
