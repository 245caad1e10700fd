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
//	q8     | e3            | e2              | e1            | e0            |  word 0, likewise f8
//	q4     | e7    | e6    | e5    | e4      | e3    | e2    | e1    | e0    |  word 0, likewise q4m, q4k and iq4
//	scale  | zero of group 0                 | scale of group 0              |  word 0 of the scales
//
// codes.go has the runs of 2, 3, 5 and 6 bits, ccq.go the convolutional codes.

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
func (f Format) RowWords(k int) int { return f.RowBytes(k) / 4 }

// ScaleWords is the number of words of scales of one row, with all that belongs to them.
func (f Format) ScaleWords(k int) int { return f.ScaleBytes(k) / 4 }

// PackScale is the word of a group: scale in the low half, zero point or minimum in the high half.
func PackScale(scale, zero uint16) uint32 { return uint32(zero)<<16 | uint32(scale) }

// UnpackScale is the reverse of PackScale, widened to f32.
func UnpackScale(word uint32) (scale, zero float32) {
	return F16ToF32(uint16(word)), F16ToF32(uint16(word >> 16))
}

// SetBlockScale sets the upper level of scales of the block of 256 weights of a row in a K kind; d and dmin are halves. scales
// begin at the row.
func (f Format) SetBlockScale(scales []uint32, block int, d, dmin uint16) {
	scales[block*f.ScaleWords(superBlock)] = PackScale(d, dmin)
}

// SetGroupScale sets the lower level of scales of a group of a row in a K kind: weights are (d*sc)*code - dmin*mc.
func (f Format) SetGroupScale(scales []uint32, group int, sc, mc int8) {
	word, shift := f.groupScale(group)
	scales[word] = scales[word]&^(0xFFFF<<shift) | (uint32(uint8(sc))|uint32(uint8(mc))<<8)<<shift
}

// GroupScale is what SetGroupScale has set.
func (f Format) GroupScale(scales []uint32, group int) (sc, mc int8) {
	word, shift := f.groupScale(group)
	return int8(scales[word] >> shift), int8(scales[word] >> shift >> 8)
}

// groupScale is where the lower level of a group lies in the scales of a row.
func (f Format) groupScale(group int) (word, shift int) {
	groups := superBlock / f.Group
	return group/groups*f.ScaleWords(superBlock) + 1 + group%groups/2, 16 * (group % 2)
}

// Encode stores the row src in F32, F16 or BF16, rounding to the nearest. Quantize makes formats with codes.
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
