package quant

import (
	"math"
	"slices"
)

// The convolutional codes of CCQ275 and CCQ25: a chain is a string of bits, and its weights are windows of it that overlap. The
// first window lies in the highest bits; each next one begins two bits lower.
//
//	CCQ275  a byte:    one chain of three windows of 4 bits         bits 7..4, 5..2, 3..0
//	CCQ25   16 bits:   a chain of three windows of 3 bits           bits 15..13, 13..11, 11..9
//	                   and one of four                              bits 8..6, 6..4, 4..2, 2..0
//
// The weight 63 of a group has a window of its own beside the group's local scale. A weight is (window - zero) * local * super.
const chainStep = 2

// ccqCoder makes CCQ275 and CCQ25.
type ccqCoder struct {
	f      Format
	zero   float64
	codes  int   // number of values of a window
	chains []int // of a group

	values []float64 // [K] code times local scale, for the last fit of the super scale
	bits   []uint32  // of a group's chains
	scales []float64 // [groups] the best scale of each on its own
	curves []float64 // [groups] what a squared error of that scale costs

	search chainSearch
}

func newCCQ(f Format, k int) *ccqCoder {
	groups := k / CCQGroup
	window, chains := 4, slices.Repeat([]int{3}, 21)
	if f.Kind == CCQ25 {
		window, chains = 3, slices.Repeat([]int{3, 4}, 9)
	}
	c := &ccqCoder{
		f: f, codes: 1 << window, zero: float64(int(1) << (window - 1)), chains: append(chains, 1),
		values: make([]float64, k), scales: make([]float64, groups), curves: make([]float64, groups),
	}
	c.bits = make([]uint32, len(c.chains))
	c.search = chainSearch{codes: c.codes, zero: c.zero, window: window}
	return c
}

func (c *ccqCoder) row(r *searchRow, data, scales []uint32) error {
	clear(data)
	clear(scales)
	clear(c.values)
	super := c.super(r)
	if super == 0 {
		return nil // a super scale of zero: any codes will do
	}

	for g := range c.scales {
		lo := g * CCQGroup
		local := c.local(r, g, super)
		c.encode(r, lo, float64(local), super)
		c.pack(data, g)
		c.f.SetCCQLocal(data, scales, g, uint32(local))
	}
	c.f.SetCCQSuper(scales, float32(r.bestScale(c.values, super)))
	return nil
}

// super chooses the scale of the row: each group on its own has a best scale, and the local scales, integers, are to come
// near them.
func (c *ccqCoder) super(r *searchRow) float64 {
	most := 0.0
	for g := range c.scales {
		lo, hi := g*CCQGroup, (g+1)*CCQGroup
		c.scales[g], c.curves[g] = c.freeScale(r.target[lo:hi], r.weight[lo:hi])
		most = max(most, c.scales[g])
	}
	return superScale(c.scales, c.curves, most, float64(c.f.CCQLocalMax()))
}

// superScale is the scale of which all others are best an integer multiple, 1 to maxLocal. A multiple costs its squared
// distance times its curve.
func superScale(scales, curves []float64, most, maxLocal float64) float64 {
	best, least := most/maxLocal, math.Inf(1)
	for step := range 24 {
		super := most / (maxLocal * (1 - float64(step)/64))
		sum := 0.0
		for g, s := range scales {
			d := s - super*min(max(math.Round(s/super), 1), maxLocal)
			sum += curves[g] * d * d
		}
		if sum < least {
			best, least = super, sum
		}
	}
	return float64(float32(best))
}

// freeScale is the best scale of a group that stands alone, and what a squared error of it costs.
func (c *ccqCoder) freeScale(target, weight []float64) (scale, curve float64) {
	rms := weightedRMS(target, weight)
	if rms == 0 {
		return 0, 0
	}
	least := math.Inf(1)
	try := func(s float64) {
		err, cross, square := c.cost(target, weight, s)
		if square > 0 && cross > 0 {
			err -= (cross - s*square) * (cross - s*square) / square // what fitting the scale to these codes gains
			if err < least {
				least, scale, curve = err, cross/square, square
			}
		}
	}
	for step := range 9 {
		try(rms * math.Exp2(float64(step)/5) * 1.3 / c.zero)
	}
	try(scale)
	return scale, curve
}

// weightedRMS is the root of the mean square.
func weightedRMS(target, weight []float64) float64 {
	var sum, all float64
	for i, t := range target {
		sum += weight[i] * t * t
		all += weight[i]
	}
	return math.Sqrt(sum / all)
}

// cost is the error of the best codes under a scale, and the sums of weight*target*code and weight*code².
func (c *ccqCoder) cost(target, weight []float64, scale float64) (err, cross, square float64) {
	at := 0
	for _, n := range c.chains {
		c.search.viterbi(target[at:at+n], weight[at:at+n], scale)
		for i, code := range c.search.path[:n] {
			t, v := target[at+i], float64(code)-c.zero
			d := t - v*scale
			err += weight[at+i] * d * d
			cross += weight[at+i] * t * v
			square += weight[at+i] * v * v
		}
		at += n
	}
	return err, cross, square
}

// local chooses the local scale of a group for its targets as they are now.
func (c *ccqCoder) local(r *searchRow, g int, super float64) int {
	target, weight := r.target[g*CCQGroup:(g+1)*CCQGroup], r.weight[g*CCQGroup:(g+1)*CCQGroup]
	wanted := c.scales[g]
	if r.metric != nil && g > 0 { // the targets have moved
		wanted, _ = c.freeScale(target, weight)
	}
	most := int(c.f.CCQLocalMax())
	if most > 15 { // so fine that the nearest is best
		return min(max(int(math.Round(wanted/super)), 1), most)
	}
	best, least := 1, math.Inf(1)
	first := int(math.Floor(wanted / super))
	for l := max(1, min(first, most)); l <= min(max(first, 0)+1, most); l++ {
		if err, _, _ := c.cost(target, weight, float64(l)*super); err < least {
			best, least = l, err
		}
	}
	return best
}

// encode chooses the bits of a group's chains and stores their weights.
func (c *ccqCoder) encode(r *searchRow, lo int, local, super float64) {
	scale := float32(local) * float32(super)
	at := lo
	for i, n := range c.chains {
		c.search.chain(r, at, n, float64(scale))
		c.bits[i] = c.search.join(n)
		for j, code := range c.search.path[:n] {
			v := float64(code) - c.zero
			c.values[at+j] = v * local
			r.store(at+j, float64(float32(v)*scale))
		}
		at += n
	}
}

// pack puts a group's chains into its code words.
func (c *ccqCoder) pack(data []uint32, group int) {
	words := c.f.CCQWords()
	last := c.bits[len(c.bits)-1]
	for i := range words {
		var word uint32
		switch {
		case c.f.Kind == CCQ275 && i < words-1:
			word = c.bits[i]
		case c.f.Kind == CCQ275:
			word = last << 4
		case i < words-1:
			word = c.bits[2*i]<<9 | c.bits[2*i+1]
		default:
			word = last << 13
		}
		c.f.SetCCQCode(data, group*words+i, word)
	}
}

// bestScale is the factor of the row's values that loses the least, which is near the one that they were searched with.
func (r *searchRow) bestScale(values []float64, searched float64) float64 {
	var cross, square float64
	if r.metric == nil {
		for i, v := range values {
			cross += r.weight[i] * r.w[i] * v
			square += r.weight[i] * v * v
		}
	} else {
		m := r.metric
		v, w := slices.Clone(values), slices.Clone(r.w)
		for i := range v {
			cross += m.d[i] * v[i] * w[i]
			square += m.d[i] * v[i] * v[i]
			a, b := values[i], r.w[i]
			for n, u := range m.u[i*m.k+i+1 : (i+1)*m.k] {
				v[i+1+n] += a * u
				w[i+1+n] += b * u
			}
		}
	}
	if !(square > 0) || !(cross > 0) {
		return searched
	}
	return cross / square
}

// chainSearch finds the codes of one chain.
type chainSearch struct {
	codes  int
	zero   float64
	window int

	path [4]uint32 // the codes that were found

	trial [4]uint32
	best  float64
	errs  [4]float64 // of the weights of the trial
	r     *searchRow
	at, n int
	scale float64
}

// join makes the bits of a chain of its first n codes.
func (c *chainSearch) join(n int) uint32 {
	bits := c.path[0]
	for _, code := range c.path[1:n] {
		bits = bits<<chainStep | code&(1<<chainStep-1)
	}
	return bits
}

// viterbi finds the path for weights whose errors do not touch each other: of all windows that end in the same bits, and so
// allow the same next ones, only the best is followed.
func (c *chainSearch) viterbi(target, weight []float64, scale float64) {
	overlap := c.window - chainStep
	states := 1 << overlap
	var from [4][16]uint8 // the window before, for each window of each step
	var sums, next [16]float64
	n := len(target)
	for i, t := range target {
		var best [4]float64 // of the windows before that end in these bits
		var who [4]uint8
		if i > 0 {
			for s := range states {
				best[s] = math.Inf(1)
			}
			for v, sum := range sums[:c.codes] {
				if s := v & (states - 1); sum < best[s] {
					best[s], who[s] = sum, uint8(v)
				}
			}
		}
		for v := range c.codes {
			d := t - (float64(v)-c.zero)*scale
			next[v] = weight[i] * d * d
			if i > 0 {
				s := v >> chainStep
				next[v] += best[s]
				from[i][v] = who[s]
			}
		}
		sums = next
	}
	last := 0
	for v, sum := range sums[:c.codes] {
		if sum < sums[last] {
			last = v
		}
	}
	for i := n - 1; i >= 0; i-- {
		c.path[i] = uint32(last)
		last = int(from[i][last])
	}
}

// chain finds the path of the n weights from at on. With feedback, the error of each weight moves the targets of those after it,
// so all paths are walked but those that cost more than the best so far already on their way.
func (c *chainSearch) chain(r *searchRow, at, n int, scale float64) {
	c.viterbi(r.target[at:at+n], r.weight[at:at+n], scale)
	if r.metric == nil || n == 1 {
		return
	}
	c.r, c.at, c.n, c.scale = r, at, n, scale
	first := c.path
	c.best = math.Inf(1)
	c.walk(0, 0, &first)
	c.walk(0, 0, nil)
}

// walk extends the trial from weight i on. Where only is not nil, it follows that path alone.
func (c *chainSearch) walk(i int, sum float64, only *[4]uint32) {
	if i == c.n {
		if sum < c.best {
			c.best, c.path = sum, c.trial
		}
		return
	}
	m := c.r.metric
	j := c.at + i
	target := c.r.target[j]
	for b := range i {
		target += c.errs[b] * m.u[(c.at+b)*m.k+j]
	}
	lo, hi := uint32(0), uint32(c.codes)
	if i > 0 {
		lo = c.trial[i-1] << chainStep & uint32(c.codes-1)
		hi = lo + 1<<chainStep
	}
	if only != nil {
		lo, hi = only[i], only[i]+1
	}
	for v := lo; v < hi; v++ {
		stored := (float64(v) - c.zero) * c.scale
		d := target - stored
		if cost := sum + m.d[j]*d*d; cost < c.best {
			c.trial[i], c.errs[i] = v, c.r.w[j]-stored
			c.walk(i+1, cost, only)
		}
	}
}
