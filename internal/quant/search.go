package quant

import (
	"fmt"
	"math"
	"runtime"
	"sync"
)

// Search quantizes the rows of one matrix to what calibration says of its inputs. The zero value takes all errors for
// alike.
type Search struct {
	Metric *Metric // nil: every error counts the same
	// Feedback lets the weights that follow make up for the error of each weight. It needs a Metric made of the whole second
	// moment.
	Feedback bool
}

// Searched says whether Search knows the format. The others come from Quantize.
func Searched(f Format) bool {
	switch f.Kind {
	case Q2, Q3, Q4, Q8, CCQ275, CCQ25, CCQ2:
		return true
	}
	return false
}

// rowCoder quantizes one row at a time; each goroutine has its own.
type rowCoder interface {
	// row stores the weights r in the words of one row.
	row(r *searchRow, data, scales []uint32) error
}

// Quantize stores the rows w, k weights each, in memory of the caller: data has RowWords and scales ScaleWords for each row.
// It works on all processors; what it stores does not depend on their number. An error wraps ErrRange and names the row when a
// weight is not finite or does not fit.
func (s Search) Quantize(f Format, w []float32, k int, data, scales []uint32) error {
	if err := f.Check(k); err != nil {
		return err
	}
	if !Searched(f) {
		return fmt.Errorf("quant: there is no search for %v", f)
	}
	rows, rowWords, scaleWords := len(w)/k, f.RowWords(k), f.ScaleWords(k)
	if len(w)%k != 0 || len(data) != rows*rowWords || len(scales) != rows*scaleWords {
		return fmt.Errorf("quant: %d weights in rows of %d as %v: %d words of data and %d of scales do not fit", len(w), k, f, len(data), len(scales))
	}
	if m := s.Metric; m != nil && m.k != k {
		return fmt.Errorf("quant: rows of %d, calibrated for %d", k, m.k)
	}
	if s.Feedback && (s.Metric == nil || s.Metric.u == nil) {
		return fmt.Errorf("quant: error feedback needs the second moment of the inputs")
	}
	errs := make([]error, rows)
	var next sync.Mutex
	at := 0
	var wg sync.WaitGroup
	for range min(rows, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			r, coder := s.newRow(k), newCoder(f, k)
			for {
				next.Lock()
				i := at
				at++
				next.Unlock()
				if i >= rows {
					return
				}
				if errs[i] = r.load(w[i*k : (i+1)*k]); errs[i] == nil {
					errs[i] = coder.row(r, data[i*rowWords:(i+1)*rowWords], scales[i*scaleWords:(i+1)*scaleWords])
				}
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("quant: %v: row %d: %w", f, i, err)
		}
	}
	return nil
}

func newCoder(f Format, k int) rowCoder {
	switch f.Kind {
	case CCQ275, CCQ25:
		return newCCQ(f, k)
	case CCQ2:
		return newCCQ2(k)
	}
	return &affineCoder{f: f, codes: make([]byte, k)}
}

// searchRow is a row under work.
type searchRow struct {
	w      []float64 // [K] as they are
	target []float64 // [K] where they are best stored, given the errors so far
	weight []float64 // [K] what the squared distance from the target costs
	metric *Metric   // for feedback; nil without
}

func (s Search) newRow(k int) *searchRow {
	r := &searchRow{w: make([]float64, k), target: make([]float64, k)}
	switch {
	case s.Feedback:
		r.metric, r.weight = s.Metric, s.Metric.d
	case s.Metric != nil:
		r.weight = s.Metric.diagonal
	default:
		r.weight = make([]float64, k)
		for i := range r.weight {
			r.weight[i] = 1
		}
	}
	return r
}

// load begins a row.
func (r *searchRow) load(w []float32) error {
	for i, v := range w {
		x := float64(v)
		if x-x != 0 {
			return fmt.Errorf("weight %d is %v: %w", i, v, ErrRange)
		}
		r.w[i], r.target[i] = x, x
	}
	return nil
}

// store says what became of weight i; the targets of those that follow move.
func (r *searchRow) store(i int, stored float64) {
	m := r.metric
	if m == nil {
		return
	}
	e := r.w[i] - stored
	if e == 0 {
		return
	}
	t := r.target[i+1:]
	for n, u := range m.u[i*m.k+i+1 : (i+1)*m.k] {
		t[n] += e * u
	}
}

// affineCoder makes Q8, Q4, Q3 and Q2.
type affineCoder struct {
	f     Format
	fit   affineFit
	codes []byte
}

func (c *affineCoder) row(r *searchRow, data, scales []uint32) error {
	most := float64(c.f.MaxCode())
	for g := range scales {
		lo, hi := g*c.f.Group, (g+1)*c.f.Group
		scale, zero, err := c.fit.group(r.target[lo:hi], r.weight[lo:hi], most)
		if err != nil {
			return fmt.Errorf("weights %d to %d: %w", lo, hi-1, err)
		}
		scales[g] = PackScale(scale, zero)
		s, z := F16ToF32(scale), F16ToF32(zero)
		inverse := 1 / float64(s)
		for i := lo; i < hi; i++ {
			code := 0.0
			if s != 0 {
				code = math.Floor(min(max(r.target[i]*inverse+float64(z), 0), most) + 0.5)
			}
			c.codes[i] = byte(code)
			r.store(i, float64((float32(code)-z)*s))
		}
	}
	c.f.PackCodes(data, c.codes)
	return nil
}

// affineFit finds the scale and the zero point of one group under weighted squared errors.
type affineFit struct {
	plain fitter
	w32   [maxGroup]float32

	w, weight   []float64
	most        float64 // largest code
	scale, zero float64 // the best so far, halves
	err         float64
}

// group gives the scale and the zero point, as halves, for the weights w of which each costs weight times its squared error.
func (f *affineFit) group(w, weight []float64, most float64) (scale, zero uint16, err error) {
	f.plain.max = most
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, v := range w {
		f.w32[i] = float32(v)
		lo, hi = min(lo, v), max(hi, v)
	}
	// What unweighted search finds is the first candidate: it keeps what can be kept exactly, and knows the limits of halves.
	if err := f.plain.group(f.w32[:len(w)]); err != nil {
		return 0, 0, err
	}
	if f.plain.scale == 0 || f.plain.err == 0 {
		return f.plain.scale, f.plain.zero, nil
	}
	f.w, f.weight, f.most, f.err = w, weight, most, math.Inf(1)
	f.try(float64(F16ToF32(f.plain.scale)), float64(F16ToF32(f.plain.zero)))
	spread := hi - lo
	cuts := affineCuts(most)
	for _, below := range cuts {
		for _, above := range cuts {
			s := spread * (1 - below - above) / most
			f.refine(s, -(lo+spread*below)/s)
		}
	}
	for before := math.Inf(1); f.err < before; {
		before = f.err
		f.refine(f.scale, f.zero)
	}
	return F32ToF16(float32(f.scale)), F32ToF16(float32(f.zero)), nil
}

// affineCuts are the parts of a group's range that a candidate leaves out at either end.
func affineCuts(most float64) []float64 {
	switch most {
	case 3:
		return []float64{-0.05, 0.02, 0.09, 0.16, 0.23, 0.3}
	case 7:
		return []float64{-0.02, 0.04, 0.1, 0.16, 0.22}
	case 15:
		return []float64{-0.01, 0.03, 0.07, 0.11, 0.15}
	}
	return []float64{0, 0.003}
}

// refine tries the scale and the zero point that are best for the codes that the given ones lead to.
func (f *affineFit) refine(scale, zero float64) {
	if !(scale > 0) {
		return
	}
	inverse := 1 / scale
	var sum, sumC, sumCC, sumW, sumCW float64
	for i, w := range f.w {
		c := math.Floor(min(max(w*inverse+zero, 0), f.most) + 0.5)
		m := f.weight[i]
		sum += m
		sumC += m * c
		sumCC += m * c * c
		sumW += m * w
		sumCW += m * c * w
	}
	spread := sum*sumCC - sumC*sumC
	if !(spread > 0) {
		return
	}
	s := (sum*sumCW - sumC*sumW) / spread
	if !(s > 0) {
		return
	}
	s, ok := half(s) // rounding the scale moves the best zero point
	if !ok || s == 0 {
		return
	}
	if z, ok := half((sumC - sumW/s) / sum); ok {
		f.try(s, z)
	}
}

// try keeps a scale and a zero point, both halves, if they are better than the best so far.
func (f *affineFit) try(scale, zero float64) {
	inverse, sum := 1/scale, 0.0
	for i, w := range f.w {
		c := math.Floor(min(max(w*inverse+zero, 0), f.most) + 0.5)
		d := w - (c-zero)*scale
		sum += f.weight[i] * d * d
	}
	if sum < f.err {
		f.err, f.scale, f.zero = sum, scale, zero
	}
}
