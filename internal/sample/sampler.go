package sample

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampler is the sampling state of one sequence. It belongs to one
// goroutine. Equal seeds, parameters, accepted ids and logits give equal
// tokens, natively and in WebAssembly: what decides is computed in float64
// by code without assembly or fused operations (see exp.go).
type Sampler struct {
	p         Params
	temp      float64 // effective temperature; 0 is greedy
	numTokens int

	masks
	bias   []biased // by id
	counts []uint32 // [numTokens] of the output; only if penalties are on
	seen   []int32  // ids in prompt or output, each once; only with penalties
	inSeen []bool   // [numTokens]

	key  uint64 // of the random numbers
	step uint64 // calls of Sample and SampleTop so far

	undo   []biased    // scratch: logits that this step has changed, as they were
	cand   []candidate // scratch: the candidates of this step
	heap   []float32   // scratch: the largest k logits
	ids    []int32     // scratch: ids that are not simply 0, 1, 2, ...
	logits []float32   // scratch: theirs
}

type biased struct {
	id   int32
	bias float32 // or the logit itself
}

// candidate is a token that the filters have kept so far.
type candidate struct {
	id int32
	w  float64 // probability, up to a common factor; the largest is 1
}

// New starts the sampler of a sequence. p must be valid. numTokens is the
// number of ids that exist: logits of larger ids are never chosen. prompt
// are the ids that the repetition penalty starts with; without penalties
// it is not read. Ids out of range in prompt and parameters are ignored.
func New(p Params, numTokens int, prompt ...int32) *Sampler {
	s := &Sampler{p: p, temp: p.Temperature, numTokens: numTokens, masks: newMasks(&p, numTokens)}
	switch {
	case s.temp < greedyBelow:
		s.temp = 0
	case s.temp < minTemperature:
		s.temp = minTemperature
	}
	for id, v := range p.LogitBias {
		if id >= 0 && int(id) < numTokens {
			s.bias = append(s.bias, biased{id, float32(min(max(v, -maxLogitBias), maxLogitBias))})
		}
	}
	if p.penalizes() {
		s.counts = make([]uint32, numTokens)
		s.inSeen = make([]bool, numTokens)
		for _, id := range prompt {
			s.see(id)
		}
	}
	if p.Seed != nil {
		s.key = mix(uint64(*p.Seed))
	} else {
		s.key = rand.Uint64()
	}
	return s
}

// golden is the increment of SplitMix64, 2^64 divided by the golden ratio.
const golden = 0x9E3779B97F4A7C15

// mix is the output function of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

func (s *Sampler) inRange(id int32) bool { return id >= 0 && int(id) < s.numTokens }

func (s *Sampler) see(id int32) {
	if s.inRange(id) && !s.inSeen[id] {
		s.inSeen[id] = true
		s.seen = append(s.seen, id)
	}
}

// Greedy reports whether the next token is simply the id of the largest
// logit below numTokens, so that the device can choose it and Sample need
// not be called. It may change from step to step.
func (s *Sampler) Greedy() bool { return s.temp == 0 && !s.changesLogits() }

// changesLogits reports whether the logits of the next step are changed, or
// some ids ruled out.
func (s *Sampler) changesLogits() bool { return s.p.changesLogits() || s.active() }

// Accept records that id is now part of the output. It must be called for
// each output id, also for those that the device chose.
func (s *Sampler) Accept(id int32) {
	s.accept(id)
	if s.counts == nil || !s.inRange(id) {
		return
	}
	s.counts[id]++
	s.see(id)
}

// Sample returns the next token. logits [vocab] are unnormalized
// log-probabilities by id; they are changed meanwhile and are as they were
// when it returns, so that Logprobs can be asked about them. Ids from
// numTokens on are not looked at. It does not call Accept. The error is
// ErrNaN, ErrNoToken or ErrRuledOut. It allocates nothing once its scratch
// has grown.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	logits = logits[:min(len(logits), s.numTokens)]
	s.mask(logits)
	s.adjust(logits)
	var ids []int32
	from := logits
	if s.allowed != nil {
		s.gather(logits)
		ids, from = s.ids, s.logits
	}
	id, err := s.choose(ids, from)
	for _, u := range slices.Backward(s.undo) {
		logits[u.id] = u.bias
	}
	s.undo = s.undo[:0]
	if errors.Is(err, ErrNoToken) { // by whose doing?
		if _, _, own := argmax(nil, logits); own == nil {
			err = ErrRuledOut
		}
	}
	return id, err
}

// choose picks one of logits, whose ids are ids, or their indices if ids is
// nil.
func (s *Sampler) choose(ids []int32, logits []float32) (int32, error) {
	// Counted also when greedy or in error, so that the random numbers of a
	// step depend on its number alone.
	key := s.stepKey()
	s.step++
	best, most, err := argmax(ids, logits)
	if err != nil || s.temp == 0 {
		return best, err
	}
	s.collect(ids, logits, most)
	if s.p.TopP < 1 {
		s.cand = topP(s.cand, s.p.TopP)
	}
	return race(s.cand, key), nil
}

// keep notes the logit of id before it is changed.
func (s *Sampler) keep(logits []float32, id int32) {
	s.undo = append(s.undo, biased{id, logits[id]})
}

// adjust applies bias, then the three penalties, to logits.
func (s *Sampler) adjust(logits []float32) {
	for _, b := range s.bias {
		if int(b.id) < len(logits) {
			s.keep(logits, b.id)
			logits[b.id] += b.bias
		}
	}
	if s.counts == nil {
		return
	}
	// A penalty may be any positive number, and a logit times that may be too
	// large for a float32: it then is the largest there is. An infinity would
	// pass for a fault of the model, or become NaN.
	const least, largest = math.SmallestNonzeroFloat32, math.MaxFloat32
	rep := float32(min(max(s.p.RepetitionPenalty, least), largest))
	freq, pres := float32(s.p.FrequencyPenalty), float32(s.p.PresencePenalty)
	for _, id := range s.seen {
		if int(id) >= len(logits) {
			continue
		}
		s.keep(logits, id)
		l := logits[id]
		if l > 0 {
			l /= rep
		} else {
			l *= rep
		}
		if n := s.counts[id]; n > 0 {
			// The conversions keep compilers from fusing multiply and add,
			// which some processors would do and others would not.
			l -= float32(freq * float32(n))
			l -= pres
		}
		if logits[id] >= -largest { // one that is ruled out stays so
			l = min(max(l, -largest), largest)
		}
		logits[id] = l
	}
}

// argmax returns the id of the largest logit, the lowest such id if several
// are equal, and that logit.
func argmax(ids []int32, logits []float32) (id int32, most float32, err error) {
	most, at := float32(math.Inf(-1)), -1
	for i, l := range logits {
		if l > most || l == most && at >= 0 && ids != nil && ids[i] < ids[at] {
			most, at = l, i
		} else if l != l {
			return 0, 0, ErrNaN
		}
	}
	switch {
	case at < 0:
		return 0, 0, ErrNoToken
	case math.IsInf(float64(most), 1):
		return 0, 0, ErrNaN
	case ids != nil:
		return ids[at], most, nil
	}
	return int32(at), most, nil
}

// collect fills s.cand with the tokens that min_p and top_k keep. most is
// the largest logit.
//
// min_p drops p < min_p * max p. As p is exp(x) up to a common factor that
// is x < max x + log(min_p), so no softmax is needed.
func (s *Sampler) collect(ids []int32, logits []float32, most float32) {
	xMax := float64(most) / s.temp
	floor := math.Inf(-1)
	if s.p.MinP > 0 {
		floor = xMax + log(s.p.MinP)
	}
	least := float32(math.Inf(-1)) // top_k: the k-th largest logit
	// top_k comes after min_p, but as both keep the largest, what both keep
	// is the same in either order.
	if k := s.p.TopK; k > 0 && k < len(logits) {
		least = s.kthLargest(logits, k)
	}
	s.cand = s.cand[:0]
	for i, l := range logits {
		if l < least || math.IsInf(float64(l), -1) {
			continue
		}
		x := float64(l) / s.temp
		if x < floor {
			continue
		}
		id := int32(i)
		if ids != nil {
			id = ids[i]
		}
		s.cand = append(s.cand, candidate{id, exp(x - xMax)})
	}
}

// kthLargest returns the k-th largest of logits, 1 <= k <= len(logits),
// without sorting them: a heap of the k largest so far with the smallest on
// top, which most logits do not enter. O(n + m log k) with m entries.
func (s *Sampler) kthLargest(logits []float32, k int) float32 {
	h := append(s.heap[:0], logits[:k]...)
	s.heap = h
	for i := k/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	for _, l := range logits[k:] {
		if l > h[0] {
			h[0] = l
			siftDown(h, 0)
		}
	}
	return h[0]
}

func siftDown(h []float32, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[i] <= h[child] {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// topP keeps the most probable tokens whose probabilities reach p: in
// ascending order all are dropped whose cumulative probability is at most
// 1-p, never the last. Of equals the lower id is the more probable.
//
// Only what can matter is sorted: tokens are taken into buckets by weight,
// and only the bucket in which the sum is reached is.
func topP(cand []candidate, p float64) []candidate {
	var total float64
	for i := range cand {
		total += cand[i].w
	}
	drop := (1 - p) * total // weight that may be dropped at most
	// Candidates lighter than cut can be dropped unsorted, if all of them
	// together weigh at most drop: find such a cut by halving exponents.
	var weights [64]float64 // by floor(-log2 w); the last takes the rest
	for i := range cand {
		weights[bucket(cand[i].w)] += cand[i].w
	}
	var light float64
	first := len(weights) // buckets from here on are dropped as a whole
	for first > 1 && light+weights[first-1] <= drop {
		first--
		light += weights[first]
	}
	kept := cand[:0]
	for _, c := range cand {
		if bucket(c.w) < first {
			kept = append(kept, c)
		}
	}
	slices.SortFunc(kept, func(a, b candidate) int {
		if a.w != b.w {
			return cmp.Compare(b.w, a.w)
		}
		return cmp.Compare(a.id, b.id)
	})
	for len(kept) > 1 && light+kept[len(kept)-1].w <= drop {
		light += kept[len(kept)-1].w
		kept = kept[:len(kept)-1]
	}
	return kept
}

// bucket returns floor(-log2 w) for w in (0, 1], at most 63.
func bucket(w float64) int {
	if w == 0 {
		return 63
	}
	_, e := math.Frexp(w) // w = f * 2^e with f in [0.5, 1)
	return min(max(1-e, 0), 63)
}

// race draws one candidate with probability w / sum of w: each gets an
// arrival time from the exponential distribution of rate w and the first
// one wins. It is vLLM's argmax(p / q), q ~ Exp(1), and needs no sum.
//
// The random number of a token is output id of the SplitMix64 stream that
// key starts, not the next of a sequence: so it does not depend on which
// other tokens are candidates, and SampleTop draws what Sample would.
func race(cand []candidate, key uint64) int32 {
	best, at := -1.0, int32(-1)
	for _, c := range cand {
		u := uniform(key, c.id)
		// -log(u) >= 1-u, so most tokens are seen to lose without a logarithm.
		if c.w < float64(best*(1-u)) {
			continue
		}
		r := rate(c.w, u)
		if r > best || r == best && c.id < at {
			best, at = r, c.id
		}
	}
	return at
}

// uniform is the random number of a token: 53 bits in (0, 1], never 0, whose
// logarithm is not finite.
func uniform(key uint64, id int32) float64 {
	return (float64(mix(key+uint64(id)*golden)>>11) + 1) * 0x1p-53
}

// rate is the inverse of the time at which a token of weight w arrives.
func rate(w, u float64) float64 {
	if q := -log(u); q > 0 {
		return w / q
	}
	if w == 0 {
		return 0
	}
	return math.Inf(1) // u is 1: arrives at once
}
