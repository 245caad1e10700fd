package quant

import (
	"errors"
	"fmt"
	"math"
)

// ErrRange says that weights cannot be stored in a format: not finite, or too large for its halves.
var ErrRange = errors.New("weight out of range")

// Quantizes says whether Quantize can store weights in the format. The others are read from files of others, or have encoders of
// their own.
func (f Format) Quantizes() bool {
	switch f.Kind {
	case F32, F16, BF16, Q8, Q4, Q2, Q3, F8:
		return true
	}
	return false
}

// Quantize stores the rows w, k weights each. See QuantizeTo.
func Quantize(f Format, w []float32, k int) (data, scales []uint32, err error) {
	if err := f.Check(k); err != nil {
		return nil, nil, err
	}
	rows := len(w) / k
	data, scales = make([]uint32, rows*f.RowWords(k)), make([]uint32, rows*f.ScaleWords(k))
	return data, scales, QuantizeTo(f, w, k, data, scales)
}

// QuantizeTo is Quantize into memory of the caller: data has RowWords and scales ScaleWords for each row. It allocates
// nothing and may run on several goroutines for distinct rows. Its result depends on the weights only, not on the machine.
//
// F16 and BF16 round to the nearest, and so does F8, with the scale that makes the largest weight of a group F8Max. Q8, Q4, Q3 and Q2
// look for scale, zero point and codes of each group on their own:
// weights that a scale and a zero point can represent exactly stay exact, others get the least squared error that a
// bounded search finds. An error wraps ErrRange and says which weight is not finite or does not fit.
func QuantizeTo(f Format, w []float32, k int, data, scales []uint32) error {
	if err := f.Check(k); err != nil {
		return err
	}
	if len(w)%k != 0 || len(data) != len(w)/k*f.RowWords(k) || len(scales) != len(w)/k*f.ScaleWords(k) {
		return fmt.Errorf("quant: %d weights in rows of %d as %v: %d words of data and %d of scales do not fit", len(w), k, f, len(data), len(scales))
	}
	switch {
	case !f.Quantizes():
		return fmt.Errorf("quant: no weights are quantized to %v: f8, q8, q4, q3 and q2 are formats for that", f)
	case f.Group == 0:
		return encodeChecked(f, w, k, data)
	}
	fit := fitter{max: float64(f.MaxCode())}
	var codes [maxGroup]byte // of whole words
	unit := max(f.Group, f.unit())
	words := f.RowWords(unit)
	for u := range len(w) / unit {
		for at := u * unit; at < (u+1)*unit; at += f.Group {
			word, chosen, err := fit.fit(f, w[at:at+f.Group])
			if err != nil {
				return fmt.Errorf("quant: %v: row %d, weights %d to %d: %w", f, at/k, at%k, at%k+f.Group-1, err)
			}
			scales[at/f.Group] = word
			copy(codes[at-u*unit:], chosen)
		}
		f.PackCodes(data[u*words:(u+1)*words], codes[:unit])
	}
	return nil
}

// fit is the scale, as its word in memory, and the codes of a group.
func (f *fitter) fit(format Format, w []float32) (scale uint32, codes []byte, err error) {
	if format.Kind == F8 {
		scale, err = floats8(f.codes[:len(w)], w)
	} else {
		err = f.group(w)
		scale = PackScale(f.scale, f.zero)
	}
	return scale, f.codes[:len(w)], err
}

// floats8 finds the e4m3fn floats of a group, and the bits of their scale.
func floats8(codes []byte, w []float32) (uint32, error) {
	largest := 0.0
	for i, v := range w {
		if v-v != 0 {
			return 0, fmt.Errorf("weight %d of the group is %v: %w", i, v, ErrRange)
		}
		largest = max(largest, math.Abs(float64(v)))
	}
	scale := float32(largest / F8Max)
	if scale == 0 {
		clear(codes)
		return 0, nil
	}
	for i, v := range w {
		codes[i] = F32ToF8(float32(float64(v) / float64(scale)))
	}
	return math.Float32bits(scale), nil
}

// encodeChecked is Encode for weights that must stay finite.
func encodeChecked(f Format, w []float32, k int, data []uint32) error {
	limit := float64(math.MaxFloat32)
	switch f.Kind {
	case F16:
		limit = 65519.996 // what follows rounds to infinity
	case BF16:
		limit = 3.3961775e38
	}
	for i, v := range w {
		if !(math.Abs(float64(v)) <= limit) {
			return fmt.Errorf("quant: %v: row %d, weight %d is %v: %w", f, i/k, i%k, v, ErrRange)
		}
	}
	Encode(f, data, w)
	return nil
}

// maxGroup is the largest group.
const maxGroup = 128

// fitter finds the representation of one group of weights w:
//
//	w[i] ≈ (codes[i] - zero) * scale        0 <= codes[i] <= max
//
// The zero point may be a fraction: it is the offset of the group in units of the scale. Products are converted to
// float64 by name wherever a sum follows, which keeps the compiler from fusing the two on some machines only.
type fitter struct {
	max float64 // largest code

	w      [maxGroup]float64
	n      int
	lo, hi float64 // smallest and largest weight

	codes       [maxGroup]byte // the best so far
	scale, zero uint16
	err         float64 // its squared error

	trial [maxGroup]byte // of the candidate under test
}

// group fits w.
func (f *fitter) group(w []float32) error {
	f.n = len(w)
	f.lo, f.hi = math.Inf(1), math.Inf(-1)
	for i, v := range w {
		x := float64(v)
		if x-x != 0 {
			return fmt.Errorf("weight %d of the group is %v: %w", i, v, ErrRange)
		}
		f.w[i] = x
		f.lo, f.hi = min(f.lo, x), max(f.hi, x)
	}
	f.err = math.Inf(1)
	switch {
	case f.lo == 0 && f.hi == 0:
		f.scale, f.zero = 0, 0
		clear(f.codes[:f.n])
		return nil
	case f.lo == f.hi:
		f.constant(f.lo)
	case f.exact():
		return nil
	default:
		f.search()
	}
	if math.IsInf(f.err, 1) {
		return fmt.Errorf("weights from %v to %v: no half is large enough as their scale: %w", f.lo, f.hi, ErrRange)
	}
	return nil
}

// constant tries to represent every weight of the group by v: by a half alone, or by the product of two halves, which has
// more digits. The codes then are all 0, or all 1.
func (f *fitter) constant(v float64) {
	magnitude, sign := math.Abs(v), math.Copysign(1, v)
	if v > 0 {
		f.try(magnitude, 0)
	}
	for zero := 1.0; zero < 256 && f.err > 0; zero++ {
		f.try(magnitude/zero, -sign*zero)
	}
	unit := 1.0 / 1024 // keeps the scale where halves have all their digits
	if magnitude > F16Max {
		unit = 1
	}
	for digits := 1024.0; digits < 2048 && f.err > 0; digits += 3 {
		f.try(magnitude/(digits*unit), -sign*digits*unit)
	}
	for zero := 4096.0; zero <= 1<<15 && f.err > 0; zero *= 2 {
		f.try(magnitude/zero, -sign*zero)
	}
}

// exact looks for a scale and a zero point that lose nothing, and says whether there are any.
func (f *fitter) exact() bool {
	spread := f.hi - f.lo
	// The usual case: the smallest and the largest code are both in use.
	if f.lattice(spread/f.max, 0) {
		return true
	}
	// Otherwise the scale divides every difference of two weights. Few sets of weights have a common divisor that is not
	// far below spread/max, so this ends after a few steps for others.
	least := spread / f.max * (1 - 1e-9)
	divisor := spread
	for _, w := range f.w[:f.n] {
		for rest := w - f.lo; rest != 0; {
			if rest < least {
				return false
			}
			divisor, rest = rest, math.Mod(divisor, rest)
		}
	}
	for n := 1.0; divisor/n >= least; n++ {
		scale := divisor / n
		for first := 0.0; first+spread/scale <= f.max; first++ {
			if f.lattice(scale, first) {
				return true
			}
		}
	}
	return false
}

// lattice tries a scale, with the code of the smallest weight, and says whether nothing is lost.
func (f *fitter) lattice(scale, first float64) bool {
	s, ok := half(scale)
	if !ok || s != scale {
		return false
	}
	z, ok := half(first - f.lo/scale)
	if !ok {
		return false
	}
	for i, w := range f.w[:f.n] {
		code := math.Floor((w-f.lo)/scale+0.5) + first
		if code > f.max || (float32(code)-float32(z))*float32(s) != float32(w) {
			return false
		}
		f.codes[i] = byte(code)
	}
	f.scale, f.zero = F32ToF16(float32(s)), F32ToF16(float32(z))
	f.err = 0
	return true
}

// half rounds to the nearest half, and says whether that is finite.
func half(x float64) (float64, bool) {
	h := float64(F16ToF32(F32ToF16(float32(x))))
	return h, h-h == 0
}

// search tries scales around the one that spreads the codes from the smallest to the largest weight. A smaller scale
// cuts off the extremes in favour of the others.
func (f *fitter) search() {
	spread := f.hi - f.lo
	plain := spread / f.max
	if s, ok := half(plain); ok {
		s = max(s, 0x1p-24)
		f.try(s, math.Round(-f.lo/s)) // what everybody does
	}
	steps := searchQ8[:]
	switch f.max {
	case 15:
		steps = searchQ4[:]
	case 7:
		steps = searchQ3[:]
	case 3:
		steps = searchQ2[:]
	}
	for _, extra := range steps {
		scale := spread / (f.max + extra)
		f.refine(scale, -f.lo/scale)
		if f.max < 15 && extra > 0 { // with few codes it matters which end is cut off: the upper, the lower or both
			f.refine(scale, -f.lo/scale-extra)
			f.refine(scale, -f.lo/scale-extra/2)
		}
	}
	// Far from zero the zero point, a half, is too coarse for a scale that fits the spread.
	if largest := max(-f.lo, f.hi); largest > 64*spread {
		for _, zero := range [...]float64{256, 512, 1024, 2048} {
			f.refine(largest/zero, -f.lo/(largest/zero))
		}
		f.constant((f.lo + f.hi) / 2)
	}
	rounds := 2
	if f.max < 15 {
		rounds = 4
	}
	for range rounds {
		f.improve()
	}
}

// Scales to try, as codes more or less than there are between the smallest and the largest weight.
var (
	searchQ2 = [...]float64{-0.3, 0, 0.3, 0.6, 0.9, 1.2, 1.6, 2.1}
	searchQ3 = [...]float64{-0.4, 0, 0.3, 0.6, 1, 1.4, 1.9, 2.6}
	searchQ4 = [...]float64{-0.8, -0.5, -0.2, 0.1, 0.4, 0.7, 1, 1.6}
	searchQ8 = [...]float64{-0.5, 0, 1}
)

// refine tries the scale and the zero point that are best, by least squares, for the codes that the given ones lead to.
func (f *fitter) refine(scale, zero float64) {
	if f.assign(scale, zero) {
		f.solve(f.trial[:f.n])
	}
}

// improve is refine from the best so far.
func (f *fitter) improve() {
	if f.err > 0 {
		f.solve(f.codes[:f.n])
	}
}

// assign sets the trial codes, and says whether the numbers make sense.
func (f *fitter) assign(scale, zero float64) bool {
	inverse := 1 / scale
	if !(inverse > 0 && inverse < math.MaxFloat64) || zero-zero != 0 {
		return false
	}
	zero += 0.5
	for i, w := range f.w[:f.n] {
		f.trial[i] = byte(int(min(max(float64(w*inverse)+zero, 0), f.max)))
	}
	return true
}

// solve tries the scale and the zero point that minimise the squared error for fixed codes.
func (f *fitter) solve(codes []byte) {
	// Weights are taken relative to the smallest: sums of what is far from zero would cancel.
	var sumC, sumCC, sumW, sumCW float64
	for i, w := range f.w[:len(codes)] {
		c, w := float64(codes[i]), w-f.lo
		sumC += c
		sumCC += float64(c * c)
		sumW += w
		sumCW += float64(c * w)
	}
	n := float64(f.n)
	spread := float64(n*sumCC) - float64(sumC*sumC)
	if spread == 0 {
		return
	}
	scale := (float64(n*sumCW) - float64(sumC*sumW)) / spread
	if scale <= 0 {
		return
	}
	// Rounding the scale moves the best zero point.
	s, _ := half(scale)
	s = max(s, 0x1p-24)
	f.try(s, sumC/n-(sumW/n+f.lo)/s)
}

// try rounds a scale and a zero point to halves, and keeps them if their error is less than that of the best so far.
func (f *fitter) try(scale, zero float64) {
	s, ok := half(scale)
	z, ok2 := half(zero)
	if !ok || !ok2 {
		return
	}
	s = max(s, 0x1p-24)
	if !f.assign(s, z) {
		return
	}
	sum := 0.0
	for i, w := range f.w[:f.n] {
		d := float64((float64(f.trial[i])-z)*s) - w
		sum += float64(d * d)
	}
	if sum < f.err {
		f.err = sum
		f.codes = f.trial
		f.scale, f.zero = F32ToF16(float32(s)), F32ToF16(float32(z))
	}
}
