package ref

import "math"

// Sampler says how a row's token is drawn from its candidates: 8 words.
type Sampler struct {
	InvTemperature float32   // 0: the largest logit
	TopK           uint32    // 0: all
	TopP           float32   // 1: all
	MinP           float32   // -log(min_p), what a token may be less likely than the most likely one; NoMinP: all
	Key            [2]uint32 // of the sequence, low half first
	Step           [2]uint32 // number of the step, low half first
}

// NoMinP is the Sampler.MinP that keeps all tokens.
const NoMinP = 1e30

// From these on some of the first arrivals are nearly always kept.
const (
	likelyTopP = 0.5
	likelyMinP = 2.0 // at most an eighth of the largest probability
)

// race reports whether candidates are to be those that arrive first; withMass, whether SampleMass runs.
func (s *Sampler) race(withMass bool) bool {
	return s.TopK == 0 && (s.TopP == 1 || withMass && s.TopP >= likelyTopP) && s.MinP >= likelyMinP
}

// next moves to the next step.
func (s *Sampler) next() {
	if s.Step[0]++; s.Step[0] == 0 {
		s.Step[1]++
	}
}

// Draw says what candidates the step that s is at wants, if SampleMass runs or does not.
func (s *Sampler) Draw(withMass bool) Draw {
	if s.InvTemperature == 0 {
		return Draw{InvTemperature: 1}
	}
	d := Draw{InvTemperature: s.InvTemperature}
	if s.race(withMass) {
		key := splitMix(join(s.Key) ^ splitMix(join(s.Step)))
		d.Race, d.Key = 1, [2]uint32{uint32(key), uint32(key >> 32)}
	}
	return d
}

func join(halves [2]uint32) uint64 { return uint64(halves[0]) | uint64(halves[1])<<32 }

// The errors that a device's floats may have: see sample.wgsl.
const (
	drawError    = 1e-4    // of the random part of the logarithm of a rate
	drawRelative = 0x1p-22 // of it, relative to logit / temperature
	sumError     = 1e-4    // of the sum of the softmax, relative
	weightError  = 0x1p-20 // of exp(-x), relative and for each 1 + x
	roundError   = 1e-5    // of sums of 64 of them, relative
	minPError    = 0x1p-20 // of what min_p compares, relative
	nearError    = 0x1p-30 // logits/temperature that are nearer may have one weight
	largestError = 1 << 20 // logits/temperature that are larger are not looked at
)

// SampleArgs are the arguments of Sample.
type SampleArgs struct {
	K        int         // candidates of a row
	Limit    int         // ids that took part
	Top      []Best      // [M, K] best first, as TopK gives them for Draws
	Sums     [][2]uint32 // [M]
	Parts    int         // of Mass; 0: there is none
	Mass     []Mass      // [M, Parts] as SampleMass leaves it
	Samplers []Sampler   // [M], moved on where a token was chosen
	Draws    []Draw      // [M] of this step, replaced by those of the next where a token was chosen
	IDs      []uint32    // [M] the token; NoID: a NaN or an infinity; Undecided: the candidates do not prove which it is
	// Margin multiplies the errors that are allowed for: 1 is what the kernel has.
	Margin float64
}

// Sample chooses the tokens of the rows lo..hi-1: the one that comes first in a race of those that top_k, min_p and top_p leave.
func Sample(a *SampleArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		s := &a.Samplers[m]
		id := a.choose(m, s)
		a.IDs[m] = id
		if id < Undecided {
			s.next()
			a.Draws[m] = s.Draw(a.Parts > 0)
		}
	}
}

// entrant is a candidate as Sample sees it.
type entrant struct {
	id     uint32
	logit  float64
	below  float64 // (largest logit - logit) / temperature
	weight float64 // exp(-below)
	err    float64 // of weight
	score  float64 // logarithm of its rate
}

// choose finds the token of row m.
func (a *SampleArgs) choose(m int, s *Sampler) uint32 {
	top := a.Top[m*a.K : (m+1)*a.K]
	largest := float64(math.Float32frombits(a.Sums[m][0]))
	switch {
	case math.IsNaN(largest) || math.IsInf(largest, 1):
		return NoID
	case math.IsInf(largest, -1):
		return Undecided // the host knows what that means
	case a.Draws[m].Race == 1 && (s.InvTemperature == 0 || s.TopK != 0):
		return Undecided // of these rows no race is wanted
	case s.InvTemperature == 0:
		return top[0].ID
	case math.Abs(largest)*float64(s.InvTemperature) > largestError:
		return Undecided
	}
	key := splitMix(join(s.Key) ^ splitMix(join(s.Step)))
	count := 0 // of candidates
	var list []entrant
	for _, b := range top {
		if b.ID == NoID {
			break
		}
		count++
		logit := float64(math.Float32frombits(b.Bits))
		if math.IsInf(logit, -1) {
			continue // such a one is never chosen
		}
		below := (largest - logit) * float64(s.InvTemperature)
		weight := math.Exp(-below)
		list = append(list, entrant{b.ID, logit, below, weight, weight * weightError * (1 + below) * a.Margin, -below + lead(key, b.ID)})
	}
	if len(list) == 0 {
		return Undecided
	}
	var keeps func(i int) (sure, may bool)
	if a.Draws[m].Race == 1 {
		keeps = a.arrived(list, s, m)
	} else {
		total := float64(math.Float32frombits(a.Sums[m][1]))
		sure, may := a.filter(list, s, count, total)
		if may == 0 {
			return Undecided
		}
		keeps = func(i int) (bool, bool) { return i < sure, i < may }
	}
	first, certain, best, second := -1, false, math.Inf(-1), math.Inf(-1)
	for i, e := range list {
		if sure, may := keeps(i); may {
			second = max(second, min(e.score, best))
			if e.score > best {
				first, certain, best = i, sure, e.score
			}
		}
	}
	apart := 2 * a.Margin * (drawError + drawRelative*(math.Abs(largest)*float64(s.InvTemperature)+41))
	switch {
	case a.Draws[m].Race == 1 && count < a.Limit && len(list) == count && !(best-list[count-1].score > apart):
		return Undecided // one that is no candidate may come before
	case !certain || !(best-second > apart):
		return Undecided
	}
	return list[first].id
}

// arrived says of the entrants of a race whether they are certainly kept, and whether they may be.
func (a *SampleArgs) arrived(list []entrant, s *Sampler, m int) func(i int) (sure, may bool) {
	var mass [massColumns]float64
	for _, part := range a.Mass[m*a.Parts : (m+1)*a.Parts] {
		for j, v := range part {
			mass[j] += float64(v)
		}
	}
	t := sumError * a.Margin
	return func(i int) (sure, may bool) {
		sure, may = s.aboveMin(list[i].below, a.Margin)
		if s.TopP < 1 {
			known := i < massFirst && a.Parts > 0 && mass[massFirst+2] == 0
			if !known {
				return false, may
			}
			before, p := mass[i], float64(s.TopP)
			sure = sure && (before == 0 || before*(1+t) < p*mass[massFirst]*(1-t))
			may = may && (before == 0 || before*(1-t) < p*mass[massFirst+1]*(1+t))
		}
		return sure, may
	}
}

// aboveMin says whether min_p certainly keeps a token, and whether it may.
func (s *Sampler) aboveMin(below, margin float64) (sure, may bool) {
	sure = below == 0 || below <= float64(s.MinP)*(1-minPError*margin)
	return sure, sure || below < float64(s.MinP)*(1+minPError*margin)
}

// filter is how many of the first entrants top_k, min_p and top_p certainly keep, and how many they may keep; 0 and 0 if others
// than the count candidates may be kept. total is the sum of the weights of all tokens.
//
// Of tokens in descending order with weights w_1, w_2, .. of sum W, top_p keeps the first, and token n+1 while
// w_1 + .. + w_n < top_p * W.
func (a *SampleArgs) filter(list []entrant, s *Sampler, count int, total float64) (sure, may int) {
	kept := len(list) // by top_k
	if s.TopK > 0 && int(s.TopK) < count {
		for kept = 0; kept < len(list) && (kept < int(s.TopK) || list[kept].logit == list[s.TopK-1].logit); {
			kept++
		}
	}
	low, high, slack := 0.0, 0.0, 0.0 // the weight of all that is kept, at least and at most, and the error of these sums
	for _, e := range list[:kept] {
		certain, perhaps := s.aboveMin(e.below, a.Margin)
		if certain {
			sure++
			low += e.weight
		} else if !perhaps {
			break
		}
		may++
		high += e.weight
		slack += e.err
	}
	inside := count == a.Limit || may < count // what is less likely than the last candidate is dropped too
	if !inside {
		if s.TopP == 1 {
			return 0, 0
		}
		if s.TopK == 0 && s.MinP >= NoMinP {
			low = max(low, total*(1-sumError*a.Margin))
		}
		if high = total * (1 + sumError*a.Margin); !(high >= low) {
			return 0, 0 // not a sum
		}
	}
	if s.TopP == 1 {
		return sure, may
	}
	least := float64(s.TopP) * (low - slack) * (1 - roundError*a.Margin)
	most := float64(s.TopP) * (high + slack) * (1 + roundError*a.Margin)
	sum, off := list[0].weight, list[0].err
	first, last := 1, 1
	for _, e := range list[1:may] {
		if sum+off < least {
			first++
		}
		if sum-off < most {
			last++
		}
		sum, off = sum+e.weight, off+e.err
	}
	first = min(first, sure)
	// Logits that are this near may have one weight; then they come in the order of their ids.
	near := func(i int) bool { return (list[i-1].logit-list[i].logit)*float64(s.InvTemperature) < nearError }
	if first < may {
		from := first
		for from > 0 && near(from) {
			from--
		}
		if list[from].logit != list[first].logit { // equals are in that order
			first = from
		}
	}
	to := last
	for to < may && near(to) {
		to++
	}
	if list[to-1].logit != list[last-1].logit {
		last = to
	}
	if !inside && (last == count || list[last-1].logit <= list[len(list)-1].logit) {
		return 0, 0
	}
	return first, last
}

// lead is -log(-log(u)) of a token, or 100 for u = 1.
func lead(key uint64, id uint32) float64 {
	u := float64(splitMix(key+uint64(id)*golden)>>11+1) * 0x1p-53
	if u < 1 {
		return -math.Log(-math.Log(u))
	}
	return 100
}
