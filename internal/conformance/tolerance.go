package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// tolerance is how far a value may be from ref: abs + rel*|want|.
type tolerance struct{ abs, rel float64 }

// Tolerances, by what a value went through. Inputs are of magnitude 1, and weights are scaled so that sums are too.
var (
	exact      = tolerance{}
	rounded    = tolerance{1e-7, 1e-6} // a few roundings: embedding, rotation
	summed     = tolerance{2e-5, 1e-5} // an f32 sum of up to 1,024 products, in another order than ref's
	functional = tolerance{1e-6, 2e-5} // exp, inverse square root: a few units in the last place more than rounding
	attended   = tolerance{2e-5, 2e-5} // scores, exponentials, and a sum over the context
	half       = tolerance{6.2e-5, 1.0 / 1024}
	// half is one unit in the last place of an IEEE half; below the smallest normal one devices may flush to zero.
)

// kind is how the words of an output are read.
type kind uint8

const (
	words  kind = iota // as they are
	floats             // f32
	halves             // two f16
)

// poison is a NaN as f32, and two as f16. Nothing computes it.
const poison = 0x7FFF7FFF

// diff compares one word. A want of poison is one that must not have been written.
func diff(k kind, got, want uint32, tol tolerance) (abs, rel float64, ok bool) {
	if got == want {
		return 0, 0, true
	}
	if k == words || want == poison || got == poison {
		return math.Inf(1), math.Inf(1), false
	}
	if k == floats {
		if math.IsNaN(float64(math.Float32frombits(want))) && math.IsNaN(float64(math.Float32frombits(got))) {
			return 0, 0, true // which NaN arithmetic gives differs by device
		}
		return near(float64(math.Float32frombits(got)), float64(math.Float32frombits(want)), tol)
	}
	ok = true
	for shift := 0; shift < 32; shift += 16 {
		g, w := quant.F16ToF32(uint16(got>>shift)), quant.F16ToF32(uint16(want>>shift))
		a, r, fine := near(float64(g), float64(w), tol)
		abs, rel, ok = max(abs, a), max(rel, r), ok && fine
	}
	return abs, rel, ok
}

func near(got, want float64, tol tolerance) (abs, rel float64, ok bool) {
	abs = math.Abs(got - want)
	if math.IsNaN(abs) {
		return math.Inf(1), math.Inf(1), false
	}
	// Relative to a tiny value any rounding is large: the magnitude is at least what makes abs and rel equally strict.
	floor := 1e-3
	if tol.rel > 0 {
		floor = max(floor, tol.abs/tol.rel)
	}
	return abs, abs / max(math.Abs(want), floor), abs <= tol.abs+tol.rel*math.Abs(want)
}
