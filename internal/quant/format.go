// Package quant defines, once, how weights lie in memory on disk (bundles) and on the device, and makes packed weights.
//
// It knows no device and no file format.
package quant

import "fmt"

// Kind is how one weight is stored.
type Kind uint8

// The kinds of storage.
const (
	F32  Kind = iota
	F16       // IEEE half, two to a 32-bit word, the even element in the low half
	BF16      // upper half of an f32, two to a word likewise
	Q8        // 8-bit codes 0..255 with one scale and one zero point per group, four to a word
	Q4        // 4-bit codes 0..15 likewise, eight to a word, element i in bits 4i..4i+3
)

// Format is a kind and, for Q8 and Q4, the number of weights along K that share a scale and a zero point.
//
// A matrix [rows, K] lies row by row. Codes and values are little-endian 32-bit words without padding: K is a multiple
// of 8, so a row is a whole number of words. The scales lie apart, [rows, K/Group] words, each with the scale in
// its low half and the zero point in its high half, both IEEE half:
//
//	weight = (code - zero) * scale
type Format struct {
	Kind  Kind
	Group int // 128, 64, 32, 16 or 8; 0 for F32, F16 and BF16
}

// RowBytes is the number of bytes of one row of k values or codes.
func (f Format) RowBytes(k int) int {
	switch f.Kind {
	case F32:
		return 4 * k
	case F16, BF16:
		return 2 * k
	case Q8:
		return k
	case Q4:
		return k / 2
	}
	panic(fmt.Sprintf("BUG: unknown weight kind %d", f.Kind))
}

// ScaleBytes is the number of bytes of the scales and zero points of one row.
func (f Format) ScaleBytes(k int) int {
	if f.Group == 0 {
		return 0
	}
	return 4 * (k / f.Group)
}

// FitGroup is the largest group, at most want, that divides k: a matrix whose K is no multiple of the wanted group uses a
// smaller one. k is a multiple of 8.
func FitGroup(k, want int) int {
	for g := want; g > 8; g /= 2 {
		if k%g == 0 {
			return g
		}
	}
	return 8
}

// String is the format's name: f32, f16, bf16, q8g32, q4g128.
func (f Format) String() string {
	switch f.Kind {
	case F32:
		return "f32"
	case F16:
		return "f16"
	case BF16:
		return "bf16"
	case Q8:
		return fmt.Sprintf("q8g%d", f.Group)
	case Q4:
		return fmt.Sprintf("q4g%d", f.Group)
	}
	return fmt.Sprintf("kind%d", f.Kind)
}

// ParseFormat is the reverse of String.
func ParseFormat(s string) (Format, error) {
	for _, f := range Formats() {
		if f.String() == s {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("quant: unknown weight format %q", s)
}

// Formats lists every format that kernels exist for.
func Formats() []Format {
	fs := []Format{{F32, 0}, {F16, 0}, {BF16, 0}}
	for _, k := range []Kind{Q8, Q4} {
		for _, g := range []int{8, 16, 32, 64, 128} {
			fs = append(fs, Format{k, g})
		}
	}
	return fs
}
