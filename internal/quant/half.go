package quant

import "math"

// F16Max is the largest finite IEEE half.
const F16Max = 65504

// F16ToF32 widens an IEEE half. Every half has an exact f32, NaN payloads included.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	magnitude := uint32(h&0x7FFF) << 13 // exponent and mantissa where f32 has them; the exponent is biased by 15, not 127
	if h&0x7C00 == 0x7C00 {
		return math.Float32frombits(sign | 0x7F800000 | magnitude) // infinity or NaN
	}
	// A product with 2^(127-15) corrects the bias, and normalises subnormals, without rounding.
	return math.Float32frombits(math.Float32bits(math.Float32frombits(magnitude)*0x1p112) | sign)
}

// F32ToF16 rounds to the nearest IEEE half, ties to the even one. Magnitudes of 65,520 and more become infinite; a NaN
// stays a NaN.
func F32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits>>16) & 0x8000
	bits &= 0x7FFFFFFF
	switch {
	case bits > 0x7F800000:
		return sign | 0x7E00 | uint16(bits>>13)&0x3FF // NaN, quiet
	case bits >= 0x477FF000: // 65,520, half way between the largest half and what would follow
		return sign | 0x7C00
	case bits < 0x38800000: // below 2^-14: a subnormal half, a multiple of 2^-24
		// Adding 0.5 aligns the binary point so that the unit in the last place of the sum is 2^-24; f32 addition rounds to
		// nearest even.
		return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-0x3F000000)
	}
	bits -= (127 - 15) << 23
	bits += 0xFFF + bits>>13&1 // round to nearest even; a carry moves into the exponent, as it should
	return sign | uint16(bits>>13)
}

// BF16ToF32 widens a bfloat16.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to the even one. A NaN stays a NaN.
func F32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7FFFFFFF > 0x7F800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7FFF + bits>>16&1) >> 16)
}
