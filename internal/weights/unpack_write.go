package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// write turns rows of the strip into the device's layout, on all processors.
func (u *unpacker) write(ctx context.Context, lo, hi int, data, scales []byte) error {
	var bad firstError
	var err error
	if u.m.codes.across {
		first := lo / 8
		err = eachRow(ctx, (hi+7)/8-first, func(i int) { u.eight(8*(first+i), lo, hi, data) })
	} else {
		rowBytes := u.m.format.RowBytes(u.m.k)
		err = eachRow(ctx, hi-lo, func(i int) {
			if k := u.row(lo+i, data[i*rowBytes:][:rowBytes]); k >= 0 {
				bad.set(lo+i, fmt.Errorf("row %d, column %d is NaN", lo+i, k))
			}
		})
	}
	if err == nil {
		scaleBytes := u.m.format.ScaleBytes(u.m.k)
		err = eachRow(ctx, hi-lo, func(i int) { u.scaleWords(lo+i, scales[i*scaleBytes:][:scaleBytes]) })
	}
	if err == nil {
		err = bad.err
	}
	if err != nil {
		return fmt.Errorf("weights: %s: tensor %q: %w", u.m.file, u.m.codes.tensor, err)
	}
	return nil
}

// eight writes the eight outputs from row on whose codes share words, those of them that are within lo and hi.
func (u *unpacker) eight(row, lo, hi int, data []byte) {
	_, line := u.m.codes.lines(u.m.k, u.hi-u.lo)
	_, at := u.m.codes.lines(u.m.k, row-u.lo)
	rowBytes := u.m.format.RowBytes(u.m.k)
	var w [8]uint32
	for k := 0; k < u.m.k; k += 8 {
		for i := range w {
			w[i] = binary.LittleEndian.Uint32(u.codes[(k+i)*line+at:])
		}
		transposeNibbles(&w)
		for j, nibble := range awqOrder {
			if r := row + j; r >= lo && r < hi {
				binary.LittleEndian.PutUint32(data[(r-lo)*rowBytes+k/2:], w[nibble])
			}
		}
	}
}

// transposeNibbles makes nibble j of word i what was nibble i of word j: it swaps blocks of four, two and one.
func transposeNibbles(w *[8]uint32) {
	for _, s := range [...]struct {
		size int
		mask uint32
	}{{4, 0x0000FFFF}, {2, 0x00FF00FF}, {1, 0x0F0F0F0F}} {
		shift := 4 * s.size
		for i := range w {
			if i&s.size != 0 {
				continue
			}
			a, b := w[i], w[i+s.size]
			t := (a>>shift ^ b) & s.mask
			w[i], w[i+s.size] = a^t<<shift, b^t
		}
	}
}

// row writes the codes of a row; it gives the column of a NaN, or -1.
func (u *unpacker) row(row int, dst []byte) int {
	m := u.m
	base, step := (row-u.lo)*m.k*m.codes.bits/8, 4
	if m.codes.byInput {
		_, step = m.codes.lines(m.k, u.hi-u.lo)
		base = 4 * (row - u.lo)
	}
	switch {
	case m.format.Kind == quant.Q3:
		u.three(base, step, dst)
	case u.from != nil:
		u.gather(base, step, dst)
	default:
		for i := 0; i < len(dst); i += 4 {
			w := binary.LittleEndian.Uint32(u.codes[base+i/4*step:]) ^ m.codes.flip
			binary.LittleEndian.PutUint32(dst[i:], w)
		}
	}
	if m.format.Kind == quant.F8 {
		return firstNaN8(dst)
	}
	return -1
}

// firstNaN8 is the index of the first 8-bit float that is no number, or -1. That is the one with all bits set but the sign.
func firstNaN8(raw []byte) int {
	for i := 0; i < len(raw); i += 4 {
		if w := binary.LittleEndian.Uint32(raw[i:]); (w&0x7F7F7F7F+0x01010101)&0x80808080 == 0 {
			continue
		}
		for j, b := range raw[i : i+4] {
			if b&0x7F == 0x7F {
				return i + j
			}
		}
	}
	return -1
}

// gather writes the codes of a row in the order of the matrix's columns.
func (u *unpacker) gather(base, step int, dst []byte) {
	bits, flip := u.m.codes.bits, u.m.codes.flip
	per, mask := 32/bits, uint32(1)<<bits-1
	codes, from := u.codes[base:], u.from
	for i := 0; i < len(dst); i += 4 {
		var out uint32
		for j, p := range from[:per] {
			w := binary.LittleEndian.Uint32(codes[int(p.word)*step:])
			out |= (w ^ flip) >> p.shift & mask << (j * bits)
		}
		binary.LittleEndian.PutUint32(dst[i:], out)
		from = from[per:]
	}
}

// three writes the codes of 3 bits of a row: for each 32 of them two words of their low bits and one of their high bit.
func (u *unpacker) three(base, step int, dst []byte) {
	codes := u.codes[base:]
	for i := 0; i < len(dst); i += 12 {
		var low uint64
		var high uint32
		for j, p := range u.from[i/12*32:][:32] {
			at := int(p.word) * step
			code := binary.LittleEndian.Uint32(codes[at:]) >> p.shift
			if p.shift > 29 {
				code |= binary.LittleEndian.Uint32(codes[at+step:]) << (32 - p.shift)
			}
			low |= uint64(code&3) << (2 * j)
			high |= code >> 2 & 1 << j
		}
		binary.LittleEndian.PutUint64(dst[i:], low)
		binary.LittleEndian.PutUint32(dst[i+8:], high)
	}
}

// scaleWords writes the scales of a row, and its zero points.
func (u *unpacker) scaleWords(row int, dst []byte) {
	table := (row - u.lo) * u.m.scales.groups
	for i, g := range u.groups {
		scale := u.scales[table+int(g)]
		word := math.Float32bits(scale)
		if u.m.format.Kind != quant.F8 {
			word = quant.PackScale(quant.F32ToF16(scale), quant.F32ToF16(float32(u.zeros[table+int(g)])))
		}
		binary.LittleEndian.PutUint32(dst[4*i:], word)
	}
}
