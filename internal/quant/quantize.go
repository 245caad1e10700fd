package quant

import (
	"errors"
	"fmt"
	"math"
)

// ErrRange says that weights cannot be stored in a format: not finite, or too large for its halves.
var ErrRange = errors.New("weight out of range")

// Quantize stores the rows w, k weights each, in any format. See QuantizeTo.
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
// F16 and BF16 round to the nearest. Q8 and Q4 look for scale, zero point and codes of each group on their own:
// weights that a scale and a zero point can represent exactly stay exact, others get the least squared error that a
// bounded search finds. An error wraps ErrRange and says which weight is not finite or does not fit.
func QuantizeTo(f Format, w []float32, k int, data, scales []uint32) error {
	if err := f.Check(k); err != nil {
		return err
	}
	if len(w)%k != 0 || len(data) != len(w)/k*f.RowWords(k) || len(scales) != len(w)/k*f.ScaleWords(k) {
		return fmt.Errorf("quant: %d weights in rows of %d as %v: %d words of data and %d of scales do not fit", len(w), k, f, len(data), len(scales))
	}
	if f.Group == 0 {
		return encodeChecked(f, w, k, data)
	}
	fit := fitter{max: float64(f.MaxCode())}
	words := f.Group / f.PerWord()
	for g := range len(w) / f.Group {
		if err := fit.group(w[g*f.Group : (g+1)*f.Group]); err != nil {
			at := g * f.Group
			return fmt.Errorf("quant: %v: row %d, weights %d to %d: %w", f, at/k, at%k, at%k+f.Group-1, err)
		}
		scales[g] = PackScale(fit.scale, fit.zero)
		f.PackCodes(data[g*words:(g+1)*words], fit.codes[:f.Group])
	}
	return nil
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
	if f.max == 15 {
		steps = searchQ4[:]
	}
	for _, extra := range steps {
		scale := spread / (f.max + extra)
		f.refine(scale, -f.lo/scale)
	}
	// Far from zero the zero point, a half, is too coarse for a scale that fits the spread.
	if largest := max(-f.lo, f.hi); largest > 64*spread {
		for _, zero := range [...]float64{256, 512, 1024, 2048} {
			f.refine(largest/zero, -f.lo/(largest/zero))
		}
		f.constant((f.lo + f.hi) / 2)
	}
	for range 2 {
		f.improve()
	}
}

// Scales to try, as codes more or less than there are between the smallest and the largest weight.
var (
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
