package quant

import (
	"fmt"
	"math"
)

// The convolutional codes (arXiv 2507.07145) in the three layouts that are public. A group is 64 weights of a row. Its code words
// hold windows that overlap: the low bits of a window are the high bits of the one after it.
//
//	CCQ275  22 bytes. Byte b holds windows of 4 bits at 4, 2 and 0, of the weights 3b, 3b+1 and 3b+2; byte 21 only that of
//	        weight 63, and the local scale 0..15 in its low nibble.        weight = (window-8) * (local*super)
//	CCQ25   10 halves of a word. Half h holds windows of 3 bits at 13, 11, 9, 6, 4, 2 and 0, of the weights 7h .. 7h+6; half 9
//	        only that of weight 63, and the local scale in its low 13 bits. weight = (window-4) * (local*super)
//	CCQ2    16 bytes. Byte b stands for the code floor(b*scale + zero + 0.5), whose windows of 6 bits at 9, 6, 3 and 0 are those of
//	        the weights 4b .. 4b+3. Higher bits of the code are ignored.   weight = (window-32) * (local*super)
//
// super is an f32 for each row, as are scale and zero of CCQ2. The products local*super, and that with the window, are each rounded
// to f32.

// CCQGroup is the number of weights of a group of the CCQ kinds.
const CCQGroup = 64

// The bit at which each window of a code word begins.
var (
	ccq275Shifts = [...]uint8{4, 2, 0}
	ccq25Shifts  = [...]uint8{13, 11, 9, 6, 4, 2, 0}
	ccq2Shifts   = [...]uint8{9, 6, 3, 0}
)

// ccqShape is what the layouts differ in.
type ccqShape struct {
	words  int     // code words of a group
	bits   int     // of a code word in memory
	shifts []uint8 // of the windows
	window uint32  // mask of a window
	zero   int32   // window of weight 0
	local  uint32  // largest local scale
}

func (f Format) ccqShape() ccqShape {
	switch f.Kind {
	case CCQ275:
		return ccqShape{22, 8, ccq275Shifts[:], 15, 8, 15}
	case CCQ25:
		return ccqShape{10, 16, ccq25Shifts[:], 7, 4, 0x1FFF}
	case CCQ2:
		return ccqShape{16, 8, ccq2Shifts[:], 63, 32, 15}
	}
	panic(fmt.Sprintf("BUG: format %v has no convolutional codes", f))
}

// CCQWords is the number of code words of a group. Each has as many weights as CCQWeights gives, but the last one of a group of CCQ275
// and CCQ25, which has one.
func (f Format) CCQWords() int { return f.ccqShape().words }

// CCQLocalMax is the largest local scale.
func (f Format) CCQLocalMax() uint32 { return f.ccqShape().local }

// CCQWeights sets dst to the weights that the windows of a code stand for, before the scale, and returns it. The code is a code word of
// CCQ275 or CCQ25, or what CCQ2Code makes of one of CCQ2.
func (f Format) CCQWeights(code uint32, dst []int32) []int32 {
	s := f.ccqShape()
	dst = dst[:len(s.shifts)]
	for i, shift := range s.shifts {
		dst[i] = int32(code>>shift&s.window) - s.zero
	}
	return dst
}

// CCQCode is code word i of a row, whose group g has the words g*CCQWords and so on.
func (f Format) CCQCode(data []uint32, i int) uint32 {
	bits := f.ccqShape().bits
	return data[i*bits/32] >> (i * bits % 32) & (1<<bits - 1)
}

// SetCCQCode sets code word i of a row. It leaves the local scale alone that the last one of a group may hold.
func (f Format) SetCCQCode(data []uint32, i int, code uint32) {
	s := f.ccqShape()
	mask := uint32(1)<<s.bits - 1
	if f.Kind != CCQ2 && i%s.words == s.words-1 {
		mask &^= s.local
	}
	shift := i * s.bits % 32
	word := &data[i*s.bits/32]
	*word = *word&^(mask<<shift) | code&mask<<shift
}

// CCQLocal is the local scale of a group. data and scales begin at the row.
func (f Format) CCQLocal(data, scales []uint32, group int) uint32 {
	if f.Kind == CCQ2 {
		return scales[3+group/8] >> (group % 8 * 4) & 15
	}
	s := f.ccqShape()
	return f.CCQCode(data, group*s.words+s.words-1) & s.local
}

// SetCCQLocal sets the local scale of a group, at most CCQLocalMax.
func (f Format) SetCCQLocal(data, scales []uint32, group int, local uint32) {
	s := f.ccqShape()
	bit := (group*s.words + s.words - 1) * s.bits
	if f.Kind == CCQ2 {
		data, bit = scales[3:], 4*group
	}
	word, shift := &data[bit/32], bit%32
	*word = *word&^(s.local<<shift) | local&s.local<<shift
}

// SetCCQSuper sets the super scale of a row.
func (f Format) SetCCQSuper(scales []uint32, super float32) { scales[0] = math.Float32bits(super) }

// SetCCQ2Line sets what turns the bytes of a row of CCQ2 into codes. See CCQ2Stable.
func SetCCQ2Line(scales []uint32, scale, zero float32) {
	scales[1], scales[2] = math.Float32bits(scale), math.Float32bits(zero)
}

// CCQ2Code is the code that a byte of CCQ2 stands for. Product and sums are rounded to f32 each.
func CCQ2Code(b byte, scale, zero float32) uint32 {
	return uint32(int32(math.Floor(float64(float32(float32(float32(b)*scale)+zero) + 0.5))))
}

// CCQ2Stable says whether every byte gives the same code on every device, however it fuses a product with a sum: nothing is
// rounded at all, as with multiples of 1/16 below 2^12 and 2^19, or no byte comes so near to where the code changes that
// rounding could decide. Codes must be below 2^20.
func CCQ2Stable(scale, zero float32) bool {
	exact := func(v float64) bool { return float64(float32(v)) == v }
	for b := range 256 {
		product := float64(b) * float64(scale)
		sum := product + float64(zero)
		v := sum + 0.5
		if !(math.Abs(v) < 1<<20) {
			return false
		}
		if exact(product) && exact(sum) && exact(v) {
			continue
		}
		slack := 3 * 0x1p-24 * max(math.Abs(product), math.Abs(sum), math.Abs(v)) // three roundings
		if math.Floor(v-slack) != math.Floor(v+slack) {
			return false
		}
	}
	return true
}

// decodeCCQ widens len(dst) weights of a row from weight from on; both are multiples of 64.
func (f Format) decodeCCQ(data, scales []uint32, from int, dst []float32) {
	s := f.ccqShape()
	super, mask := math.Float32frombits(scales[0]), uint32(1)<<s.bits-1
	var lineScale, lineZero float32
	if f.Kind == CCQ2 {
		lineScale, lineZero = math.Float32frombits(scales[1]), math.Float32frombits(scales[2])
	}
	for g := from / CCQGroup; len(dst) > 0; g++ {
		scale := float32(f.CCQLocal(data, scales, g)) * super
		d := dst[:CCQGroup]
		for i := g * s.words; i < (g+1)*s.words; i++ {
			code := data[i*s.bits/32] >> (i * s.bits % 32) & mask
			if f.Kind == CCQ2 {
				code = CCQ2Code(byte(code), lineScale, lineZero)
			}
			n := min(len(s.shifts), len(d))
			for j, shift := range s.shifts[:n] {
				d[j] = float32(int32(code>>shift&s.window)-s.zero) * scale
			}
			d = d[n:]
		}
		dst = dst[CCQGroup:]
	}
}
