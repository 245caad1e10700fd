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
	from   []codePlace // where each column's code lies in a row, nil: in order
	groups []int32     // the stored group of each of the device's

	lo, hi int       // rows of the strip
	codes  []byte    // as the file has them: lines of the strip, or rows
	scales []float32 // [hi-lo, groups]
	zeros  []uint8   // likewise
	raw    []byte    // what was read to make them
	most   float32   // largest magnitude of the matrix's scales, 0 until it is needed
}

// codePlace is a code in a row of words. One of 3 bits may go on in the next word.
type codePlace struct {
	word  int32
	shift uint8
}

// place is where the code of an input lies.
func (c *codes) place(input int) codePlace {
	bit := input * c.bits
	return codePlace{word: int32(bit / 32), shift: uint8(bit % 32)}
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
		for _, i := range c.order {
			u.from = append(u.from, m.codes.place(int(i)))
		}
		for g, n := range c.counts {
			for range n / step {
				u.groups = append(u.groups, int32(g))
			}
		}
		if len(u.groups)*step != m.k {
			return m.errorf(*m.index, "g_idx", "changed while it was in use")
		}
	}
	if u.from == nil && m.format.Kind == quant.Q3 {
		for i := range m.k {
			u.from = append(u.from, m.codes.place(i))
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
	first, last := u.lo*z.bits/32, (u.hi*z.bits+31)/32 // words of the strip's outputs
	switch z.layout {
	case zeroSame:
	case zeroAcross, zeroByGroup:
		u.raw, err = readLines(ctx, z.t, u.raw, groups, rows*z.bits/8, 4*first, 4*last)
	case zeroByRow:
		u.raw, err = readLines(ctx, z.t, u.raw, 1, 0, 4*first*groups, 4*last*groups)
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
			u.zeros[row*groups+g] = z.at(u.raw, row, g, groups, last-first)
		}
	}
	return nil
}

// at is the zero point of a row of the strip and a group, among the codes from 0 on. words are those of the strip's outputs.
func (z *zeroPoints) at(raw []byte, row, group, groups, words int) uint8 {
	var stored uint32
	switch z.layout {
	case zeroSame:
		return z.value
	case zeroBytes:
		stored = uint32(raw[row*groups+group])
	case zeroByteSame:
		stored = uint32(raw[0])
	default:
		first, step, bit := group*words, 1, row*z.bits
		if z.layout == zeroByRow {
			first, step = group, groups
		}
		if z.layout == zeroAcross {
			bit = row/8*32 + 4*awqOrder[row%8]
		}
		stored = binary.LittleEndian.Uint32(raw[4*(first+bit/32*step):]) >> (bit % 32)
		if more := 32 - bit%32; more < z.bits {
			stored |= binary.LittleEndian.Uint32(raw[4*(first+(bit/32+1)*step):]) << more
		}
	}
	return uint8((stored + uint32(z.add)) & (1<<z.bits - 1))
}

// growTo is grow for other elements.
func growTo[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}
