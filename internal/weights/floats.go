package weights

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// floatFormat is the format of a safetensors dtype that weights may have.
func floatFormat(dtype string) (quant.Format, error) {
	switch dtype {
	case "F32":
		return quant.Format{Kind: quant.F32}, nil
	case "F16":
		return quant.Format{Kind: quant.F16}, nil
	case "BF16":
		return quant.Format{Kind: quant.BF16}, nil
	}
	more := ""
	switch dtype {
	case "F8_E4M3":
		more = ", or F8_E4M3 where quantization_config says how it is scaled"
	case "F8_E5M2":
		more = "; of 8-bit floats F8_E4M3 with a quantization_config"
	}
	return quant.Format{}, fmt.Errorf("is stored as %s; weights can be F32, F16 or BF16%s", dtype, more)
}

// decodeFloats turns stored values into f32; len(raw) is len(dst) times the size of one.
func decodeFloats(kind quant.Kind, raw []byte, dst []float32) {
	switch kind {
	case quant.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case quant.F16:
		for i := range dst {
			dst[i] = quant.F16ToF32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case quant.BF16:
		for i := range dst {
			dst[i] = quant.BF16ToF32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	default:
		panic(fmt.Sprintf("BUG: %d is no kind of float", kind))
	}
}

// firstNonFinite is the index of the first NaN or infinity among the stored values, or -1.
//
// A value is one of these when all bits of its exponent are set. Adding the exponent's lowest bit to the exponent alone
// then carries into the sign's place, so eight bytes are tested at a time.
func firstNonFinite(kind quant.Kind, raw []byte) int {
	var exponent, one, carry uint64
	width := 2
	switch kind {
	case quant.F32:
		exponent, one, carry, width = 0x7F800000_7F800000, 0x00800000_00800000, 0x80000000_80000000, 4
	case quant.F16:
		exponent, one, carry = 0x7C00_7C00_7C00_7C00, 0x0400_0400_0400_0400, 0x8000_8000_8000_8000
	case quant.BF16:
		exponent, one, carry = 0x7F80_7F80_7F80_7F80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000
	default:
		return -1
	}
	const block = 4096
	for lo := 0; lo < len(raw); lo += block {
		part := raw[lo:min(lo+block, len(raw))]
		var seen uint64
		rest := part
		for ; len(rest) >= 8; rest = rest[8:] {
			seen |= binary.LittleEndian.Uint64(rest)&exponent + one
		}
		var tail [8]byte
		copy(tail[:], rest)
		seen |= binary.LittleEndian.Uint64(tail[:])&exponent + one
		if seen&carry == 0 {
			continue
		}
		for i := 0; i < len(part); i += width {
			var v [8]byte
			copy(v[:], part[i:i+width])
			if (binary.LittleEndian.Uint64(v[:])&exponent+one)&carry != 0 {
				return (lo + i) / width
			}
		}
	}
	return -1
}
