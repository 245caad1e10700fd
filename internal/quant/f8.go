package quant

import "math"

// F8Max is the largest number that e4m3fn has.
const F8Max = 448

// f8Table is what the codes of F8 stand for: a sign, four bits of exponent biased by 7, three of mantissa. Exponent 0 has
// multiples of 2^-9; there are no infinities, and one NaN of each sign, 0x7F and 0xFF.
var f8Table = func() (table [256]float32) {
	for code := range table {
		exponent, mantissa := code>>3&15, float64(code&7)
		v := math.Ldexp(1+mantissa/8, exponent-7)
		switch {
		case exponent == 0:
			v = math.Ldexp(mantissa, -9)
		case code&0x7F == 0x7F:
			v = math.NaN()
		}
		if code >= 128 {
			v = -v
		}
		table[code] = float32(v)
	}
	return table
}()

// F8ToF32 widens an e4m3fn float.
func F8ToF32(code byte) float32 { return f8Table[code] }

// F32ToF8 rounds to the nearest e4m3fn float, ties to the even one. What is beyond F8Max becomes F8Max; a NaN stays a NaN.
func F32ToF8(f float32) byte {
	bits := math.Float32bits(f)
	sign := byte(bits>>24) & 0x80
	magnitude := math.Float32frombits(bits & 0x7FFFFFFF)
	switch {
	case f != f:
		return sign | 0x7F
	case magnitude >= F8Max:
		return sign | 0x7E
	case magnitude < 0x1p-6:
		// The unit in the last place of a sum with 1.5*2^14 is 2^-9; f32 addition rounds to nearest even.
		return sign | byte(math.Float32bits(magnitude+0x1.8p14)&0x0F)
	}
	bits = bits&0x7FFFFFFF - (127-7)<<23
	bits += 0x7FFFF + bits>>20&1 // a carry moves into the exponent, as it should
	return sign | byte(bits>>20)
}
