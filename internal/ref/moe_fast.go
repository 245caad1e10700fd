package ref

// ExpertPairs are the pairs of each expert of a part, for ExpertsFast.
type ExpertPairs struct {
	used  []int   // experts that have any
	first []int   // where their pairs begin in list; one more for the end
	list  []int32 // pairs
	count []int   // by expert
}

// Sort collects the pairs whose expert is one of the experts from expert0 on, sorted by expert.
func (p *ExpertPairs) Sort(chosen []uint32, expert0, experts int) {
	count := grow(&p.count, experts+1)
	clear(count)
	p.used, p.first = p.used[:0], p.first[:0]
	for _, c := range chosen {
		if e := int(c) - expert0; e >= 0 && e < experts {
			count[e]++
		}
	}
	total := 0
	for e, n := range count[:experts] {
		if n > 0 {
			p.used, p.first = append(p.used, e), append(p.first, total)
		}
		count[e] = total // from here on, the place of the expert's next pair
		total += n
	}
	p.first = append(p.first, total)
	list := grow(&p.list, total)
	for i, c := range chosen {
		if e := int(c) - expert0; e >= 0 && e < experts {
			list[count[e]] = int32(i)
			count[e]++
		}
	}
}

// Used is how many experts have pairs.
func (p *ExpertPairs) Used() int { return len(p.used) }

// Inputs is the number of rows of K inputs that the pairs have: one a token where all slots read the same.
func (a *ExpertsArgs) Inputs(m int) int {
	if a.XSlot == 0 {
		return m
	}
	return m * a.TopK
}

// Widen converts the inputs lo..hi-1 for ExpertsFast: x is [Inputs, K] without gaps.
func (a *ExpertsArgs) Widen(x []float64, lo, hi int) {
	k := a.W.K
	for i := lo; i < hi; i++ {
		at := i * a.XStride
		if a.XSlot != 0 {
			at = i/a.TopK*a.XStride + i%a.TopK*a.XSlot
		}
		dst := x[i*k : (i+1)*k]
		for j, v := range a.X[at:][:k] {
			dst[j] = float64(v)
		}
	}
}

// ExpertsFast computes what Experts does, with the same order of every sum, from x as Widen made it, for the pairs of the expert
// that is number used among those that have any, and its rows lo..hi-1. It decodes four rows at a time, once for all pairs.
func ExpertsFast(a *ExpertsArgs, p *ExpertPairs, x []float64, s *Scratch, used, lo, hi int) {
	k, row := a.W.K, p.used[used]*a.N
	pairs := p.list[p.first[used]:p.first[used+1]]
	sums := grow(&s.sums, len(pairs))
	input := func(pair int32, from, n int) []float64 {
		if a.XSlot == 0 {
			pair /= int32(a.TopK)
		}
		return x[int(pair)*k+from:][:n]
	}
	for j := lo; j < hi; j += 4 {
		clear(sums)
		for from := 0; from < k; from += tileK {
			n := min(tileK, k-from)
			w := grow(&s.weights, n)
			decodeQuad(&a.W, row+j, row+hi-1, from, w)
			i := 0
			for ; i+2 <= len(pairs); i += 2 {
				dotQuad2(w, input(pairs[i], from, n), input(pairs[i+1], from, n), &sums[i], &sums[i+1])
			}
			if i < len(pairs) {
				dotQuad(w, input(pairs[i], from, n), &sums[i])
			}
		}
		for r := range min(4, hi-j) {
			for i, pair := range pairs {
				*a.y(int(pair), j+r) = float32(sums[i][r])
			}
		}
	}
}
