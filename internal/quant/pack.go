package quant

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// How a row lies in its words (bit 31 left, bit 0 right; the lowest byte comes first in memory):
//
//	f32    | e0                                                              |  word 0
//	f16    | e1                              | e0                            |  word 0, likewise bf16
//	q8     | e3            | e2              | e1            | e0            |  word 0
//	q4     | e7    | e6    | e5    | e4      | e3    | e2    | e1    | e0    |  word 0
//	scale  | zero of group 0                 | scale of group 0              |  word 0 of the scales
//
// A word thus holds PerWord consecutive elements, and 8 elements, the smallest group, are 8, 4, 2 or 1 words.

// PerWord is the number of elements in one 32-bit word.
func (f Format) PerWord() int {
	switch f.Kind {
	case F32:
		return 1
	case F16, BF16:
		return 2
	case Q8:
		return 4
	case Q4:
		return 8
	}
	panic(fmt.Sprintf("BUG: unknown weight kind %d", f.Kind))
}

// MaxCode is the largest code of Q8 and Q4, and 0 for the other kinds.
func (f Format) MaxCode() int {
	switch f.Kind {
	case Q8:
		return 255
	case Q4:
		return 15
	}
	return 0
}

// Check says whether kernels exist for rows of k elements in this format.
func (f Format) Check(k int) error {
	if f.Kind >= numKinds {
		return fmt.Errorf("quant: unknown weight kind %d", f.Kind)
	}
	info := f.Kind.info()
	switch {
	case info.groups == nil && f.Group != 0:
		return fmt.Errorf("quant: format %v has a group of %d", f, f.Group)
	case info.groups != nil && !slices.Contains(info.groups, f.Group):
		return fmt.Errorf("quant: format %v: a group of %s has %s weights", f, info.name, oneOf(info.groups))
	case f.Group != 0 && k%f.Group != 0:
		return fmt.Errorf("quant: format %v: rows of %d are not whole groups", f, k)
	case k%info.every != 0:
		return fmt.Errorf("quant: format %v: rows of %d: K is a multiple of %d", f, k, info.every)
	}
	if k <= 0 || k%8 != 0 {
		return fmt.Errorf("quant: rows of %d: K is a positive multiple of 8", k)
	}
	return nil
}

// oneOf is "8, 16 or 32".
func oneOf(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// RowWords is the number of words of one row of k values or codes.
func (f Format) RowWords(k int) int { return k / f.PerWord() }

// ScaleWords is the number of words of scales and zero points of one row.
func (f Format) ScaleWords(k int) int { return f.ScaleBytes(k) / 4 }

// PackScale is the word of a group: scale in the low half, zero point in the high half.
func PackScale(scale, zero uint16) uint32 { return uint32(zero)<<16 | uint32(scale) }

// UnpackScale is the reverse of PackScale, widened to f32.
func UnpackScale(word uint32) (scale, zero float32) {
	return F16ToF32(uint16(word)), F16ToF32(uint16(word >> 16))
}

// PackCodes puts codes, one per byte, into words. len(codes) is a multiple of 8 and every code at most MaxCode.
func (f Format) PackCodes(dst []uint32, codes []byte) {
	switch f.Kind {
	case Q8:
		for i := range len(codes) / 4 {
			c := codes[4*i : 4*i+4]
			dst[i] = uint32(c[0]) | uint32(c[1])<<8 | uint32(c[2])<<16 | uint32(c[3])<<24
		}
	case Q4:
		for i := range len(codes) / 8 {
			word := uint32(0)
			for j, c := range codes[8*i : 8*i+8] {
				word |= uint32(c&15) << (4 * j)
			}
			dst[i] = word
		}
	default:
		panic(fmt.Sprintf("BUG: format %v has no codes", f))
	}
}

// UnpackCodes is the reverse of PackCodes; it fills dst.
func (f Format) UnpackCodes(dst []byte, data []uint32) {
	switch f.Kind {
	case Q8:
		for i := range dst {
			dst[i] = byte(data[i/4] >> (i % 4 * 8))
		}
	case Q4:
		for i := range dst {
			dst[i] = byte(data[i/8]>>(i%8*4)) & 15
		}
	default:
		panic(fmt.Sprintf("BUG: format %v has no codes", f))
	}
}

// Encode stores the row src in F32, F16 or BF16, rounding to the nearest. Quantize makes the formats with codes.
func Encode(f Format, dst []uint32, src []float32) {
	switch f.Kind {
	case F32:
		for i, v := range src {
			dst[i] = math.Float32bits(v)
		}
	case F16:
		for i := range len(src) / 2 {
			dst[i] = uint32(F32ToF16(src[2*i])) | uint32(F32ToF16(src[2*i+1]))<<16
		}
	case BF16:
		for i := range len(src) / 2 {
			dst[i] = uint32(F32ToBF16(src[2*i])) | uint32(F32ToBF16(src[2*i+1]))<<16
		}
	default:
		panic(fmt.Sprintf("BUG: Encode of %v", f))
	}
}

// Decode widens one row of k elements into dst. data and scales begin at the row. What it computes in f32 is what
// kernels compute: the definition of every format.
func Decode(f Format, data, scales []uint32, k int, dst []float32) {
	dst = dst[:k]
	data = data[:f.RowWords(k)]
	switch f.Kind {
	case F32:
		for i, word := range data {
			dst[i] = math.Float32frombits(word)
		}
	case F16:
		for i, word := range data {
			d := dst[2*i : 2*i+2]
			d[0], d[1] = F16ToF32(uint16(word)), F16ToF32(uint16(word>>16))
		}
	case BF16:
		for i, word := range data {
			d := dst[2*i : 2*i+2]
			d[0], d[1] = math.Float32frombits(word<<16), math.Float32frombits(word&0xFFFF0000)
		}
	case Q8:
		for g := range k / f.Group {
			scale, zero := UnpackScale(scales[g])
			d := dst[g*f.Group : (g+1)*f.Group]
			for i, word := range data[g*f.Group/4 : (g+1)*f.Group/4] {
				d := d[4*i : 4*i+4]
				d[0] = (float32(word&255) - zero) * scale
				d[1] = (float32(word>>8&255) - zero) * scale
				d[2] = (float32(word>>16&255) - zero) * scale
				d[3] = (float32(word>>24) - zero) * scale
			}
		}
	case Q4:
		for g := range k / f.Group {
			scale, zero := UnpackScale(scales[g])
			d := dst[g*f.Group : (g+1)*f.Group]
			for i, word := range data[g*f.Group/8 : (g+1)*f.Group/8] {
				for j := range d[8*i : 8*i+8] {
					d[8*i+j] = (float32(word&15) - zero) * scale
					word >>= 4
				}
			}
		}
	}
}
