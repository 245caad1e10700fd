package weights

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// stripBytes is about how many bytes of codes are in memory at a time.
const stripBytes = 4 << 20

// stripRows is what the rows of a strip are a multiple of: whole words of codes and of zero points of any layout.
const stripRows = 32

// unpacker writes rows of packed matrices in the device's layout. It reads a strip of rows at a time, which in a matrix that
// lies transposed is a strip of columns of the file, and keeps the last one, since rows are asked for in order.
type unpacker struct {
	strip  int // bytes of codes to read at a time, 0: stripBytes
	m      *packedMatrix
	order  []int32 // of the columns, nil: their own
	groups []int32 // the stored group of each of the device's

	lo, hi int       // rows of the strip
	codes  []byte    // as the file has them: lines of the strip, or rows
	scales []float32 // [hi-lo, groups]
	zeros  []uint8   // likewise
	raw    []byte    // what was read to make them
	most   float32   // largest magnitude of the matrix's scales, 0 until it is needed
}

// rows writes the rows lo to hi-1 of m.
func (u *unpacker) rows(ctx context.Context, m *packedMatrix, lo, hi int, data, scales []byte) error {
	if u.m != m {
		if err := u.use(m); err != nil {
			return err
		}
	}
	rowBytes, scaleBytes := m.format.RowBytes(m.k), m.format.ScaleBytes(m.k)
	for lo < hi {
		if lo < u.lo || lo >= u.hi {
			if err := u.load(ctx, lo); err != nil {
				u.m = nil
				return err
			}
		}
		n := min(hi, u.hi) - lo
		if err := u.write(ctx, lo, lo+n, data[:n*rowBytes], scales[:n*scaleBytes]); err != nil {
			return err
		}
		lo, data, scales = lo+n, data[n*rowBytes:], scales[n*scaleBytes:]
	}
	return nil
}

// use turns to another matrix.
func (u *unpacker) use(m *packedMatrix) error {
	*u = unpacker{strip: u.strip, codes: u.codes, scales: u.scales, zeros: u.zeros, raw: u.raw, groups: u.groups[:0]}
	step := m.format.Group
	if m.index == nil {
		for k := 0; k < m.k; k += step {
			u.groups = append(u.groups, int32(k/m.size))
		}
	} else {
		_, c, err := m.columns()
		if err != nil {
			return err
		}
		u.order = c.order
		for g, n := range c.counts {
			for range n / step {
				u.groups = append(u.groups, int32(g))
			}
		}
		if len(u.groups)*step != m.k {
			return m.errorf(*m.index, "g_idx", "changed while it was in use")
		}
	}
	u.m = m
	return nil
}

// load reads the strip that a row is in.
func (u *unpacker) load(ctx context.Context, row int) error {
	m := u.m
	perRow := m.k * m.codes.bits / 8
	n := max(stripRows, cmp.Or(u.strip, stripBytes)/perRow/stripRows*stripRows)
	u.lo = row / n * n
	u.hi = min(u.lo+n, m.rows)
	if err := u.readCodes(ctx); err != nil {
		return fmt.Errorf("weights: %s: tensor %q: %w", m.file, m.codes.tensor, err)
	}
	if err := u.readScales(ctx); err != nil {
		return fmt.Errorf("weights: %s: tensor %q: %w", m.scales.t.file.name, m.scales.tensor, err)
	}
	if m.format.Kind == quant.F8 {
		return nil
	}
	if err := u.readZeros(ctx); err != nil {
		return fmt.Errorf("weights: %s: tensor %q: %w", m.zeros.t.file.name, m.zeros.tensor, err)
	}
	return nil
}

func (u *unpacker) readCodes(ctx context.Context) (err error) {
	c := &u.m.codes
	if c.byInput {
		count, size := c.lines(u.m.k, u.m.rows)
		_, from := c.lines(u.m.k, u.lo)
		_, to := c.lines(u.m.k, u.hi)
		u.codes, err = readLines(ctx, c.t, u.codes, count, size, from, to)
		return err
	}
	perRow := u.m.k * c.bits / 8
	u.codes, err = readLines(ctx, c.t, u.codes, 1, 0, u.lo*perRow, u.hi*perRow)
	return err
}

// readLines reads the bytes from to to-1 of each of the tensor's lines, which are size bytes long.
func readLines(ctx context.Context, t dirTensor, buf []byte, count, size, from, to int) ([]byte, error) {
	n := to - from
	if n == size { // whole lines: they lie together
		n, size, count, from = count*size, count*size, 1, 0
	}
	buf = grow(buf, count*n)
	for line := range count {
		at := t.offset + int64(line)*int64(size) + int64(from)
		for part := buf[line*n : (line+1)*n]; ; part = part[readStep:] {
			if err := ctx.Err(); err != nil {
				return buf, err
			}
			if err := readAt(t.file.r, part[:min(readStep, len(part))], at); err != nil {
				return buf, err
			}
			if at += readStep; len(part) <= readStep {
				break
			}
		}
	}
	return buf, nil
}

// readScales fills the table of the strip's scales.
func (u *unpacker) readScales(ctx context.Context) error {
	g := &u.m.scales
	width := quant.Format{Kind: g.kind}.RowBytes(1)
	n, first := u.hi-u.lo, 0
	var err error
	if g.byGroup {
		u.raw, err = readLines(ctx, g.t, u.raw, g.groups, u.m.rows*width, u.lo*width, u.hi*width)
	} else {
		first = u.lo / g.rowStep
		last := (u.hi-1)/g.rowStep + 1
		u.raw, err = readLines(ctx, g.t, u.raw, 1, 0, first*g.groups*width, last*g.groups*width)
	}
	if err != nil {
		return err
	}
	stored := make([]float32, len(u.raw)/width)
	decodeFloats(g.kind, u.raw, stored)
	u.scales = growTo(u.scales, n*g.groups)
	for row := range n {
		for i := range g.groups {
			at := ((u.lo+row)/g.rowStep-first)*g.groups + i
			if g.byGroup {
				at = i*n + row
			}
			u.scales[row*g.groups+i] = stored[at]
		}
	}
	for i, s := range u.scales {
		if err := u.fits(s); err != nil {
			return fmt.Errorf("the scale of output %d, group %d %w", u.lo+i/g.groups, i%g.groups, err)
		}
	}
	return nil
}

// fits says whether a scale can be stored: as f32 for F8, else as the nearest half.
//
// Halves hold scales from 2^-14 on to 2^-11 of themselves, as near as the tools that made the checkpoint hold the product of
// code and scale. A smaller scale has an error of at most 2^-25, which does not matter beside the scales of other weights if it
// is at most 2^-11 of the largest.
func (u *unpacker) fits(s float32) error {
	switch {
	case !(math.Abs(float64(s)) <= math.MaxFloat32):
		return fmt.Errorf("is %v", s)
	case u.m.format.Kind == quant.F8 || u.m.scales.kind == quant.F16:
		return nil
	case math.Abs(float64(s)) > quant.F16Max:
		return fmt.Errorf("is %v, which no half holds; at most %d", s, quant.F16Max)
	}
	lost := math.Abs(float64(s - quant.F16ToF32(quant.F32ToF16(s))))
	if lost <= math.Abs(float64(s))*0x1p-11 {
		return nil
	}
	if u.most == 0 {
		most, err := u.m.largestScale()
		if err != nil {
			return err
		}
		u.most = most
	}
	if lost <= float64(u.most)*0x1p-11 {
		return nil
	}
	return fmt.Errorf("is %v, too small for a half to hold well, in a matrix whose largest is %v; quantize the bf16 checkpoint with pagelight pack instead", s, u.most)
}

// largestScale is the largest magnitude of a matrix's scales. Few matrices need it, so it reads them all.
func (m *packedMatrix) largestScale() (float32, error) {
	width := quant.Format{Kind: m.scales.kind}.RowBytes(1)
	total := width
	for _, n := range m.scales.t.shape {
		total *= n
	}
	var most float32
	buf, values := make([]byte, 1<<16), make([]float32, 1<<14)
	for at := 0; at < total; at += len(buf) {
		part := buf[:min(len(buf), total-at)]
		if err := readAt(m.scales.t.file.r, part, m.scales.t.offset+int64(at)); err != nil {
			return 0, err
		}
		some := growTo(values, len(part)/width)
		decodeFloats(m.scales.kind, part, some)
		for _, v := range some {
			most = max(most, float32(math.Abs(float64(v))))
		}
	}
	return most, nil
}

// readZeros fills the table of the strip's zero points.
func (u *unpacker) readZeros(ctx context.Context) (err error) {
	z, groups, rows := &u.m.zeros, u.m.scales.groups, u.m.rows
	n := u.hi - u.lo
	u.zeros = growTo(u.zeros, n*groups)
	per := 1
	if z.bits > 0 {
		per = 32 / z.bits
	}
	whole := (u.hi + per - 1) / per // words of the outputs up to the strip's end
	switch z.layout {
	case zeroSame:
	case zeroAcross, zeroByGroup:
		u.raw, err = readLines(ctx, z.t, u.raw, groups, rows/per*4, u.lo/per*4, whole*4)
	case zeroByRow:
		u.raw, err = readLines(ctx, z.t, u.raw, 1, 0, u.lo/per*4*groups, whole*4*groups)
	case zeroBytes:
		u.raw, err = readLines(ctx, z.t, u.raw, 1, 0, u.lo*groups, u.hi*groups)
	case zeroByteSame:
		u.raw, err = readLines(ctx, z.t, u.raw, 1, 0, 0, 1)
	}
	if err != nil {
		return err
	}
	for row := range n {
		for g := range groups {
			u.zeros[row*groups+g] = z.at(u.raw, row, g, groups, whole-u.lo/per, per)
		}
	}
	return nil
}

// at is the zero point of a row of the strip and a group, among the codes from 0 on. words are those of the strip's outputs.
func (z *zeroPoints) at(raw []byte, row, group, groups, words, per int) uint8 {
	var stored uint32
	mask := uint32(1)<<z.bits - 1
	switch z.layout {
	case zeroAcross:
		stored = binary.LittleEndian.Uint32(raw[4*(group*words+row/per):]) >> (z.bits * awqOrder[row%per])
	case zeroByGroup:
		stored = binary.LittleEndian.Uint32(raw[4*(group*words+row/per):]) >> (z.bits * (row % per))
	case zeroByRow:
		stored = binary.LittleEndian.Uint32(raw[4*(row/per*groups+group):]) >> (z.bits * (row % per))
	case zeroBytes:
		stored = uint32(raw[row*groups+group])
	case zeroByteSame:
		stored = uint32(raw[0])
	default:
		return z.value
	}
	return uint8((stored + uint32(z.add)) & mask)
}

// growTo is grow for other elements.
func growTo[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}

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
	if u.order != nil {
		u.gather(base, step, dst)
	} else {
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
	bits := u.m.codes.bits
	per, mask := 32/bits, uint32(1)<<bits-1
	for i := 0; i < len(dst); i += 4 {
		var out uint32
		for j, from := range u.order[i/4*per:][:per] {
			w := binary.LittleEndian.Uint32(u.codes[base+int(from)/per*step:]) ^ u.m.codes.flip
			out |= w >> (int(from) % per * bits) & mask << (j * bits)
		}
		binary.LittleEndian.PutUint32(dst[i:], out)
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
