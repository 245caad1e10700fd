package kernels

import (
	"slices"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// The forms of scales of lib_weight_runs.
const (
	scalesZero    = 0 // a scale and a zero point
	scalesMinimum = 1 // a scale and a minimum
	scalesLevels  = 2 // two levels of both
)

// weightLib is the lib file that decodes weights of a format, and its constants.
func weightLib(f quant.Format) (file string, consts wgsl.Consts) {
	layout, consts := "runs", wgsl.Consts{}
	if f.Group != 0 {
		consts["GROUP"] = uint32(f.Group)
	}
	runs := func(bits, scales uint32) { consts["BITS"], consts["SCALES"] = bits, scales }
	switch f.Kind {
	case quant.F32:
		layout = "f32"
	case quant.F16:
		layout = "f16"
	case quant.BF16:
		layout = "bf16"
	case quant.Q8:
		layout = "q8"
	case quant.Q4:
		layout = "q4"
	case quant.Q2:
		runs(2, scalesZero)
	case quant.Q3:
		runs(3, scalesZero)
	case quant.Q4M:
		runs(4, scalesMinimum)
	case quant.Q5M:
		runs(5, scalesMinimum)
	case quant.Q2K:
		runs(2, scalesLevels)
	case quant.Q3K:
		runs(3, scalesLevels)
	case quant.Q4K:
		runs(4, scalesLevels)
	case quant.Q5K:
		runs(5, scalesLevels)
	case quant.Q6K:
		runs(6, scalesLevels)
	case quant.IQ4:
		layout = "iq4"
	case quant.F8:
		layout = "f8"
	case quant.CCQ275:
		layout = "ccq275"
	case quant.CCQ25:
		layout = "ccq25"
	case quant.CCQ2:
		layout = "ccq2"
	default:
		panic("BUG: no kernel reads " + f.String())
	}
	return wgsl.WeightLib(layout), consts
}

// wide says whether 32 weights at a time have one weight_scale: where it is the group's, the group must be as large.
func wide(f quant.Format, k int) uint32 {
	_, consts := weightLib(f)
	scales, runs := consts["SCALES"]
	return bit(k%32 == 0 && (f.Group%32 == 0 || runs && scales != scalesZero))
}

// Widths lists the values that WIDE has in kernels for a format, whatever K.
func Widths(f quant.Format) []uint32 {
	list := []uint32{wide(f, f.Multiple())}
	if most := wide(f, 32*f.Multiple()); most != list[0] {
		list = append(list, most)
	}
	return list
}

// Wide says whether kernels that read 32 weights at a time can read the format.
func Wide(f quant.Format) bool { return slices.Contains(Widths(f), 1) }
