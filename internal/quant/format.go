// Package quant defines, once, how weights lie in memory on disk (bundles) and on the device, and makes packed weights.
//
// It knows no device and no file format.
package quant

import "fmt"

// Kind is how one weight is stored.
type Kind uint8

// The kinds of storage. Numbers below are those of bundles' format names and never change.
const (
	F32    Kind = iota
	F16         // IEEE half, two to a 32-bit word, the even element in the low half
	BF16        // upper half of an f32, two to a word likewise
	Q8          // 8-bit codes 0..255 with one scale and one zero point per group, four to a word
	Q4          // 4-bit codes 0..15 likewise, eight to a word, element i in bits 4i..4i+3
	Q2          // 2-bit codes 0..3 likewise
	Q3          // 3-bit codes 0..7 likewise
	Q4M         // 4-bit codes with one scale and one minimum per group: GGUF's Q4_1
	Q5M         // 5-bit codes likewise: GGUF's Q5_0 and Q5_1
	Q2K         // 2-bit codes, groups of 16 with two levels of scales: GGUF's Q2_K
	Q3K         // 3-bit codes, groups of 16 likewise: GGUF's Q3_K
	Q4K         // 4-bit codes, groups of 32 likewise: GGUF's Q4_K
	Q5K         // 5-bit codes, groups of 32 likewise: GGUF's Q5_K
	Q6K         // 6-bit codes, groups of 16 likewise: GGUF's Q6_K
	IQ4         // 4-bit indices into IQ4Values, groups of 32 with one scale: GGUF's IQ4_NL
	F8          // 8-bit floats e4m3fn (no infinities), four to a word, one f32 scale per group
	CCQ275      // convolutional codes of 2.75 bits, groups of 64, in the layout of PaddleNLP's WINT2.75
	CCQ25       // the same of 2.5 bits, FastDeploy's WINT2.5
	CCQ2        // the same of 2 bits, FastDeploy's WINT2
	numKinds
)

// Format is a kind and, for kinds with scales, the number of weights along K that share a scale.
//
// A matrix [rows, K] lies row by row. Codes and values are little-endian 32-bit words, and K is a multiple of 8 (32 for
// Q2, Q3, Q5M, IQ4; 64 for the CCQ kinds; 256 for the K kinds), so a row is a whole number of words. The scales lie apart,
// [rows, ScaleBytes(K)/4] words. What they hold, by kind:
//
//	Q8 Q4 Q2 Q3   K/Group words: scale in the low half, zero point in the high half, both IEEE half
//	              weight = (code - zero) * scale
//	IQ4           the same with IQ4Values[code] for code, and zero = 0
//	Q4M Q5M       K/Group words: scale in the low half, minimum in the high half, both IEEE half
//	              weight = code * scale + minimum
//	Q2K .. Q6K    for each 256 weights one word, d in the low half and dmin in the high half, both IEEE half, and then
//	              256/Group/2 words of 16 bits a group, the even group in the low half: a signed byte sc, and above it a
//	              signed byte mc
//	              weight = (d*sc) * code - dmin*mc
//	F8            K/Group words: an f32 scale
//	              weight = e4m3fn(code) * scale
//	CCQ275 CCQ25  one word: the f32 super scale of the row; local scales lie between the codes
//	CCQ2          three words, f32: super scale, code scale, code zero; and then a nibble of local scale a group, the group 8w+i
//	              in bits 4i of word w, padded with zeros to a word
//
// Codes of 2, 3, 5 and 6 bits lie in runs of 32 weights, of as many words as a code has bits. The words of a run are, in this
// order: for 5 and 6 bits, four words of the low four bits, as Q4; for 2 and 3, two words of the low two bits, 16 to a word,
// element i in bits 2i; for 6 bits, two words of the upper two bits likewise; for 3 and 5 bits, one word of the highest bit,
// element i in bit i.
//
// The CCQ kinds keep the bits of the public layouts (arXiv 2507.07145), row by row of the output instead of column by column:
// CCQ275 has 22 bytes for each 64 weights, the row padded to a word with zeros; CCQ25 has ten 16-bit words, little-endian; CCQ2
// has 16 bytes. See ccq.go.
type Format struct {
	Kind  Kind
	Group int // 0 for F32, F16 and BF16
}

// IQ4Values are the weights that the codes of IQ4 stand for, before the scale (ggml's kvalues_iq4nl).
var IQ4Values = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// kindInfo is what the table below says of a kind.
type kindInfo struct {
	name   string
	bits   int   // of a value or code
	groups []int // that kernels exist for; nil for kinds without scales
	every  int   // K is a multiple of it
}

var kinds = [numKinds]kindInfo{
	F32:    {"f32", 32, nil, 8},
	F16:    {"f16", 16, nil, 8},
	BF16:   {"bf16", 16, nil, 8},
	Q8:     {"q8", 8, []int{8, 16, 32, 64, 128}, 8},
	Q4:     {"q4", 4, []int{8, 16, 32, 64, 128}, 8},
	Q2:     {"q2", 2, []int{16, 32, 64, 128}, 32},
	Q3:     {"q3", 3, []int{16, 32, 64, 128}, 32},
	Q4M:    {"q4m", 4, []int{32}, 32},
	Q5M:    {"q5m", 5, []int{32}, 32},
	Q2K:    {"q2k", 2, []int{16}, 256},
	Q3K:    {"q3k", 3, []int{16}, 256},
	Q4K:    {"q4k", 4, []int{32}, 256},
	Q5K:    {"q5k", 5, []int{32}, 256},
	Q6K:    {"q6k", 6, []int{16}, 256},
	IQ4:    {"iq4", 4, []int{32}, 32},
	F8:     {"f8", 8, []int{8, 16, 32, 64, 128}, 8},
	CCQ275: {"ccq2.75", 0, []int{64}, 64},
	CCQ25:  {"ccq2.5", 0, []int{64}, 64},
	CCQ2:   {"ccq2", 2, []int{64}, 64},
}

func (k Kind) info() kindInfo {
	if k >= numKinds {
		panic(fmt.Sprintf("BUG: unknown weight kind %d", k))
	}
	return kinds[k]
}

// Grouped says whether a format of this kind has a group.
func (f Format) Grouped() bool { return f.Kind.info().groups != nil }

// Multiple is what K must be a multiple of: the group, and what the layout of a row asks for.
func (f Format) Multiple() int { return max(f.Group, f.Kind.info().every) }

// RowBytes is the number of bytes of one row of k values or codes.
func (f Format) RowBytes(k int) int {
	switch f.Kind {
	case CCQ275:
		return (22*(k/64) + 3) / 4 * 4
	case CCQ25:
		return 20 * (k / 64)
	}
	return k * f.Kind.info().bits / 8
}

// superBlock is how many weights of the K kinds share the upper level of scales.
const superBlock = 256

// ScaleBytes is the number of bytes of the scales of one row, with zero points, minima and what else belongs to them.
func (f Format) ScaleBytes(k int) int {
	switch f.Kind {
	case F32, F16, BF16:
		return 0
	case Q2K, Q3K, Q4K, Q5K, Q6K:
		return k / superBlock * (4 + 2*superBlock/f.Group)
	case CCQ275, CCQ25:
		return 4
	case CCQ2:
		return 4 * (3 + (k/64+7)/8)
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

// String is the format's name: f32, f16, bf16, q8g32, q4g128, q4kg32, ccq2.75g64.
func (f Format) String() string {
	if f.Kind >= numKinds {
		return fmt.Sprintf("kind%d", f.Kind)
	}
	if f.Kind.info().groups == nil {
		return f.Kind.info().name
	}
	return fmt.Sprintf("%sg%d", f.Kind.info().name, f.Group)
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

// Formats lists every format, each of which has kernels.
func Formats() []Format {
	var fs []Format
	for k := range numKinds {
		groups := k.info().groups
		if groups == nil {
			groups = []int{0}
		}
		for _, g := range groups {
			fs = append(fs, Format{k, g})
		}
	}
	return fs
}
