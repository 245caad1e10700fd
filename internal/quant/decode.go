package quant

import "math"

// Decode widens one row of k weights into dst. data and scales begin at the row. What it computes in f32 is what kernels
// compute: the definition of every format.
//
// Each operation of the formulas in Format is rounded to f32. In the kinds of GGUF all products are exact there (a half or a half
// times a signed byte, times a code of at most 6 bits), so that a weight is rounded once, whether or not a processor fuses the
// product with the sum.
func Decode(f Format, data, scales []uint32, k int, dst []float32) {
	DecodeFrom(f, data[:f.RowWords(k)], scales, 0, dst[:k])
}

// DecodeFrom widens len(dst) weights of a row from weight from on. Both are multiples of Format.Multiple; data and scales begin
// at the row.
func DecodeFrom(f Format, data, scales []uint32, from int, dst []float32) {
	if f.ccq() {
		f.decodeCCQ(data, scales, from, dst)
		return
	}
	data, scales = data[f.RowWords(from):], scales[f.ScaleWords(from):]
	switch f.Kind {
	case F32:
		for i, word := range data[:len(dst)] {
			dst[i] = math.Float32frombits(word)
		}
	case F16:
		for i, word := range data[:len(dst)/2] {
			d := dst[2*i : 2*i+2]
			d[0], d[1] = F16ToF32(uint16(word)), F16ToF32(uint16(word>>16))
		}
	case BF16:
		for i, word := range data[:len(dst)/2] {
			d := dst[2*i : 2*i+2]
			d[0], d[1] = math.Float32frombits(word<<16), math.Float32frombits(word&0xFFFF0000)
		}
	default:
		f.decodeCodes(data, scales, dst)
	}
}

// decodeCodes widens the kinds that have a code for each weight.
func (f Format) decodeCodes(data, scales []uint32, dst []float32) {
	var codes [superBlock]byte // a multiple of every group and run
	for len(dst) > 0 {
		n := min(superBlock, len(dst))
		f.UnpackCodes(codes[:n], data)
		switch f.Kind {
		case Q8, Q4, Q2, Q3:
			for g := range n / f.Group {
				scale, zero := UnpackScale(scales[g])
				d := dst[g*f.Group:]
				for i, code := range codes[g*f.Group : (g+1)*f.Group] {
					d[i] = (float32(code) - zero) * scale
				}
			}
		case IQ4:
			for g := range n / f.Group {
				scale, zero := UnpackScale(scales[g])
				d := dst[g*f.Group:]
				for i, code := range codes[g*f.Group : (g+1)*f.Group] {
					d[i] = (float32(IQ4Values[code]) - zero) * scale
				}
			}
		case Q4M, Q5M:
			for g := range n / f.Group {
				scale, minimum := UnpackScale(scales[g])
				line(dst[g*f.Group:], codes[g*f.Group:(g+1)*f.Group], scale, minimum)
			}
		case Q2K, Q3K, Q4K, Q5K, Q6K:
			d, dmin := UnpackScale(scales[0])
			for g := range n / f.Group {
				sc, mc := f.GroupScale(scales, g)
				line(dst[g*f.Group:], codes[g*f.Group:(g+1)*f.Group], d*float32(sc), -(dmin * float32(mc)))
			}
		case F8:
			for g := range n / f.Group {
				scale := math.Float32frombits(scales[g])
				d := dst[g*f.Group:]
				for i, code := range codes[g*f.Group : (g+1)*f.Group] {
					d[i] = f8Table[code] * scale
				}
			}
		}
		dst, data, scales = dst[n:], data[f.RowWords(n):], scales[f.ScaleWords(n):]
	}
}

// line is code*scale + offset for each code.
func line(dst []float32, codes []byte, scale, offset float32) {
	for i, code := range codes {
		dst[i] = float32(float32(code)*scale) + offset
	}
}
