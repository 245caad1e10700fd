package sample

import (
	"cmp"
	"math"
	"slices"
)

// Draw tells a device how to select the candidates of a step. It has two ways:
// the largest logits, which filters and greedy need, or, where every token may
// be drawn, those with the largest
//
//	logit * InvTemperature - log(-log(u)),   u = (mix(Key + id*golden) >> 11 + 1) * 2^-53
//
// in 64-bit integers and whatever floats it has: the first arrivals of the
// race (see race), for this is the logarithm of their rate.
type Draw struct {
	InvTemperature float32
	Race           bool
	Key            uint64
}

// Top is what a device has found in a row of logits. It looked at the ids
// below numTokens and at no others.
type Top struct {
	IDs    []int32   // the candidates, best first by Draw; all ids if there are no more
	Logits []float32 // theirs, unchanged
	Max    float32   // the largest logit of the row; a NaN if it has one
	Total  float64   // sum over the row of exp((logit - Max) * InvTemperature), within topTotal
}

// The errors that a device's floats may have.
const (
	// topTotal is the relative error of Total: of exponentials of arguments to
	// -80 in f32 (WGSL allows 3 + 2|x| units in the last place), and of a sum of
	// a hundred of them and of a few hundred such sums.
	topTotal = 1e-4
	// raceError and raceRelative bound the error of the logarithm of a rate:
	// of its random part, and relative to that of logit / temperature.
	raceError    = 1e-4
	raceRelative = 0x1p-22
)

// Draw says how a device can select k candidates for SampleTop, or that it
// cannot: Sample then needs all logits.
func (s *Sampler) Draw(k int) (d Draw, ok bool) {
	if k < 2 || s.changesLogits() {
		return Draw{}, false
	}
	if s.temp == 0 {
		return Draw{InvTemperature: 1}, true
	}
	if s.filters() {
		likely := s.p.TopP < 1 || s.p.MinP > 0 || s.p.TopK < k
		return Draw{InvTemperature: float32(1 / s.temp)}, likely
	}
	return Draw{InvTemperature: float32(1 / s.temp), Race: true, Key: s.stepKey()}, true
}

// filters reports whether some tokens may be dropped.
func (s *Sampler) filters() bool {
	return s.p.TopP < 1 || s.p.MinP > 0 || s.p.TopK > 0 && s.p.TopK < s.numTokens
}

// stepKey is the key of the random numbers of the next step.
func (s *Sampler) stepKey() uint64 { return mix(s.key ^ mix(s.step)) }

// SampleTop returns the token that Sample would choose from all logits of a
// step, given the candidates that a device has selected as Draw said. Where
// they do not prove which one that is, ok is false and nothing has changed:
// Sample is to be called. The error is ErrNaN or ErrNoToken.
func (s *Sampler) SampleTop(t Top) (id int32, ok bool, err error) {
	if len(t.IDs) == 0 || s.changesLogits() {
		return 0, false, nil
	}
	switch {
	case t.Max != t.Max || math.IsInf(float64(t.Max), 1):
		s.step++
		return 0, true, ErrNaN
	case math.IsInf(float64(t.Max), -1):
		s.step++
		return 0, true, ErrNoToken
	}
	all := len(t.IDs) >= s.numTokens
	switch {
	case s.temp == 0:
		id, _, err = argmax(t.IDs, t.Logits)
		ok = true
	case s.filters():
		id, ok = s.filterTop(t, all)
	default:
		id, ok = s.raceTop(t, all)
	}
	if ok {
		s.step++
	}
	return id, ok, err
}

// filterTop chooses among the largest logits.
func (s *Sampler) filterTop(t Top, all bool) (id int32, ok bool) {
	last := t.Logits[len(t.Logits)-1]
	// In the order of ids, so that sums are added up as Sample does.
	s.cand = s.cand[:0]
	for i, id := range t.IDs {
		s.cand = append(s.cand, candidate{id, float64(t.Logits[i])})
	}
	slices.SortFunc(s.cand, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	s.ids, s.logits = s.ids[:0], s.logits[:0]
	for _, c := range s.cand {
		s.ids, s.logits = append(s.ids, c.id), append(s.logits, float32(c.w))
	}

	// Others are at most as large as the last candidate: if min_p or top_k drop that
	// one, they drop all others, and nothing else of them matters.
	inside := all
	if s.p.MinP > 0 && float64(last)/s.temp < float64(t.Max)/s.temp+log(s.p.MinP) {
		inside = true
	}
	if k := s.p.TopK; k > 0 && k < len(s.logits) && s.kthLargest(s.logits, k) > last {
		inside = true
	}
	s.collect(s.ids, s.logits, t.Max)
	switch {
	case inside && s.p.TopP < 1:
		s.cand = topP(s.cand, s.p.TopP)
	case !inside && (s.p.TopP == 1 || !s.topPInside(t)):
		return 0, false
	}
	return race(s.cand, s.stepKey()), true
}

// topPInside drops from s.cand what top_p drops, and reports whether that is certain
// although others, no larger than the last candidate, are not known one by one.
//
// Of tokens in descending order with weights w_1, w_2, ... of sum W, token n+1 is
// dropped if w_1 + .. + w_n >= p W, see topP.
func (s *Sampler) topPInside(t Top) bool {
	slices.SortFunc(s.cand, func(a, b candidate) int {
		if a.w != b.w {
			return cmp.Compare(b.w, a.w)
		}
		return cmp.Compare(a.id, b.id)
	})
	var known float64
	for _, c := range s.cand {
		known += c.w
	}
	// min_p and top_k may have dropped any of the others.
	low, high := known, t.Total*(1+topTotal)
	if s.p.MinP == 0 && (s.p.TopK <= 0 || s.p.TopK >= s.numTokens) {
		low = max(low, t.Total*(1-topTotal))
	}
	if !(high >= low) {
		return false // Total is no number, or wrong
	}
	last := s.cand[len(s.cand)-1].w
	var sum float64
	for n, c := range s.cand {
		if n > 0 && sum >= s.p.TopP*low*(1-1e-9) { // the n-th may be the last to be kept, but need not
			return false
		}
		sum += c.w
		if sum >= s.p.TopP*high*(1+1e-9) {
			s.cand = s.cand[:n+1]
			return c.w > last // or others could come before it
		}
	}
	return false
}

// raceTop chooses among the first arrivals.
func (s *Sampler) raceTop(t Top, all bool) (id int32, ok bool) {
	key, xMax := s.stepKey(), float64(t.Max)/s.temp
	s.cand = s.cand[:0]
	for i, id := range t.IDs {
		if l := t.Logits[i]; !math.IsInf(float64(l), -1) {
			s.cand = append(s.cand, candidate{id, exp(float64(l)/s.temp - xMax)})
		}
	}
	if len(s.cand) == 0 {
		return 0, false
	}
	id = race(s.cand, key)
	if all || len(s.cand) < len(t.IDs) {
		return id, true // others have the logit -Inf
	}
	best := 0.0
	for _, c := range s.cand {
		best = max(best, rate(c.w, uniform(key, c.id)))
	}
	// The device's last candidate arrived, for the device, before all others. Only
	// tokens within 41 of the largest can win: -log(-log(u)) lies in (-3.7, 36.8).
	last := s.cand[len(s.cand)-1]
	off := 2 * (raceError + raceRelative*(math.Abs(xMax)+41))
	return id, best > rate(last.w, uniform(key, last.id))*math.Exp(off)
}
