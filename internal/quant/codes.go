package quant

import "fmt"

// A run is 32 weights whose codes have 2, 3, 5 or 6 bits. Its words, bit 31 left; low is the low two or four bits of a code and
// high the bits above them:
//
//	2 bits  | low of e15 .. e0 | | low of e31 .. e16 |
//	3 bits  the same two, then   | high of e31 .. e0 |
//	5 bits  | low of e7 .. e0 | | low of e15 .. e8 | | low of e23 .. e16 | | low of e31 .. e24 | | high of e31 .. e0 |
//	6 bits  the same four, then  | high of e15 .. e0 | | high of e31 .. e16 |
const run = 32

// ccq says whether the format is one of the convolutional codes.
func (f Format) ccq() bool { return f.Kind == CCQ275 || f.Kind == CCQ25 || f.Kind == CCQ2 }

// MaxCode is the largest code of the kinds that have one for each weight, and 0 for the others.
func (f Format) MaxCode() int {
	info := f.Kind.info()
	if info.groups == nil || f.ccq() {
		return 0
	}
	return 1<<info.bits - 1
}

// codeBits is the number of bits of a code.
func (f Format) codeBits() int {
	if f.MaxCode() == 0 {
		panic(fmt.Sprintf("BUG: format %v has no codes", f))
	}
	return f.Kind.info().bits
}

// unit is the number of weights whose codes fill whole words.
func (f Format) unit() int {
	if bits := f.codeBits(); bits == 4 || bits == 8 {
		return 8
	}
	return run
}

// PackCodes puts codes, one per byte, into words. len(codes) is a multiple of 8, or of 32 for codes of 2, 3, 5 and 6 bits, and
// every code at most MaxCode. Convolutional codes have SetCCQCode instead.
func (f Format) PackCodes(dst []uint32, codes []byte) {
	switch bits := f.codeBits(); bits {
	case 8:
		for i := range len(codes) / 4 {
			c := codes[4*i : 4*i+4]
			dst[i] = uint32(c[0]) | uint32(c[1])<<8 | uint32(c[2])<<16 | uint32(c[3])<<24
		}
	case 4:
		packNibbles(dst, codes)
	default:
		for i := range len(codes) / run {
			packRun(bits, dst[i*bits:(i+1)*bits], codes[i*run:(i+1)*run])
		}
	}
}

// packNibbles packs the low four bits of codes.
func packNibbles(dst []uint32, codes []byte) {
	for i := range len(codes) / 8 {
		word := uint32(0)
		for j, c := range codes[8*i : 8*i+8] {
			word |= uint32(c&15) << (4 * j)
		}
		dst[i] = word
	}
}

// packRun packs one run.
func packRun(bits int, dst []uint32, codes []byte) {
	clear(dst)
	lowBits, lowWords := 2, 2
	if bits > 4 {
		lowBits, lowWords = 4, 4
		packNibbles(dst, codes)
	} else {
		for i, c := range codes {
			dst[i/16] |= uint32(c&3) << (i % 16 * 2)
		}
	}
	high := dst[lowWords:]
	switch bits - lowBits {
	case 1:
		for i, c := range codes {
			high[0] |= uint32(c>>lowBits) << i
		}
	case 2:
		for i, c := range codes {
			high[i/16] |= uint32(c>>lowBits) << (i % 16 * 2)
		}
	}
}

// UnpackCodes is the reverse of PackCodes; it fills dst.
func (f Format) UnpackCodes(dst []byte, data []uint32) {
	switch bits := f.codeBits(); bits {
	case 8:
		for i := range len(dst) / 4 {
			word := data[i]
			d := dst[4*i : 4*i+4]
			d[0], d[1], d[2], d[3] = byte(word), byte(word>>8), byte(word>>16), byte(word>>24)
		}
	case 4:
		unpackNibbles(dst, data)
	default:
		for i := range len(dst) / run {
			unpackRun(bits, dst[i*run:(i+1)*run], data[i*bits:(i+1)*bits])
		}
	}
}

func unpackNibbles(dst []byte, data []uint32) {
	for i := range len(dst) / 8 {
		word := data[i]
		d := dst[8*i : 8*i+8]
		for j := range d {
			d[j] = byte(word & 15)
			word >>= 4
		}
	}
}

// unpackRun unpacks one run.
func unpackRun(bits int, dst []byte, data []uint32) {
	lowBits, high := 2, data[2:]
	if bits > 4 {
		lowBits, high = 4, data[4:]
		unpackNibbles(dst, data)
	} else {
		unpackPairs(dst, data, 0)
	}
	switch bits - lowBits {
	case 1:
		word := high[0]
		for i := range dst {
			dst[i] |= byte(word&1) << lowBits
			word >>= 1
		}
	case 2:
		unpackPairs(dst, high, lowBits)
	}
}

// unpackPairs adds pairs of bits, shifted, to the codes of a run.
func unpackPairs(dst []byte, data []uint32, shift int) {
	for i := range 2 {
		word := data[i]
		d := dst[16*i : 16*i+16]
		for j := range d {
			if shift == 0 {
				d[j] = byte(word & 3)
			} else {
				d[j] |= byte(word&3) << shift
			}
			word >>= 2
		}
	}
}
