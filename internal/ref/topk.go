package ref

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Draw says in which order the tokens of a row are candidates: vec4<u32>. By their logits, of equals the lower id first, or
// by their arrival in a race that each wins with its probability:
//
//	logit / temperature - log(-log(u)),   u = (output id of the SplitMix64 stream Key >> 11 + 1) * 2^-53
type Draw struct {
	InvTemperature float32
	Race           uint32 // 0 or 1
	Key            [2]uint32
}

// Score is the place of a token: candidates are those with the largest.
func (d *Draw) Score(logit float32, id int) float32 {
	if d.Race == 0 || math.IsInf(float64(logit), 0) || logit != logit {
		return logit
	}
	key := uint64(d.Key[0]) | uint64(d.Key[1])<<32
	u := float64(splitMix(key+uint64(id)*golden)>>11+1) * 0x1p-53
	lead := 100.0 // of u = 1
	if u < 1 {
		lead = -math.Log(-math.Log(u))
	}
	return float32(float64(logit)*float64(d.InvTemperature) + lead)
}

// golden is the increment of SplitMix64 (Steele, Lea, Flood 2014).
const golden = 0x9E3779B97F4A7C15

func splitMix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// order maps a float to an integer that compares like it: NaN above all, -0 like 0.
func order(f float32) uint32 {
	switch b := math.Float32bits(f); {
	case f != f:
		return NoID
	case f == 0:
		return 1 << 31
	case b>>31 == 1:
		return ^b
	default:
		return b | 1<<31
	}
}

// unorder undoes order, but for NaN and -0.
func unorder(o uint32) float32 {
	if o>>31 == 1 {
		return math.Float32frombits(o ^ 1<<31)
	}
	return math.Float32frombits(^o)
}

// Slice is what TopKPartial finds in a slice of a row: vec4<u32>.
type Slice struct {
	Best uint32 // the order of its best token
	ID   uint32 // of that; NoID where there is none, or a NaN
	Most uint32 // the order of its largest logit
	Sum  uint32 // bits of sum exp((logit - largest) / T); 0 for a race
}

// better reports whether a token comes before another.
func better(order, id, thanOrder, thanID uint32) bool {
	return order > thanOrder || order == thanOrder && id < thanID
}

// TopKArgs are the arguments of TopKPartial and TopKReduce.
type TopKArgs struct {
	Vocab   int         // elements of a row of Logits
	Limit   int         // only ids below this one take part
	Parts   int         // slices of a row
	Group   int         // neighbours that lie in one slice; 0 is 1
	K       int         // candidates of a row
	Draws   []Draw      // [M]
	Logits  []float32   // [M, Vocab]
	Partial []Slice     // [M, Parts]
	Top     []Best      // [M, K]: bits of the logit and ID, best first; 0 and NoID where there are no more
	Sums    [][2]uint32 // [M]: bits of the largest logit and of sum exp((logit - largest) / T), 0 for a race
}

// slice is the ids of slice p: every Parts-th group of Group ids below Limit, from the p-th group on.
func (a *TopKArgs) slice(p int) iter.Seq[int] {
	return func(yield func(int) bool) {
		group := max(1, a.Group)
		for first := p * group; first < a.Limit; first += a.Parts * group {
			for id := first; id < min(first+group, a.Limit); id++ {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// TopKPartial finds the best token of each slice of the rows lo..hi-1.
func TopKPartial(a *TopKArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		for p := range a.Parts {
			s := Slice{ID: NoID}
			for id := range a.slice(p) {
				l := a.Logits[m*a.Vocab+id]
				o := order(a.Draws[m].Score(l, id))
				if o == NoID {
					s.Best, s.ID = NoID, NoID
				} else if better(o, uint32(id), s.Best, s.ID) {
					s.Best, s.ID = o, uint32(id)
				}
				s.Most = max(s.Most, order(l))
			}
			if largest := unorder(s.Most); a.Draws[m].Race == 0 && !math.IsInf(float64(largest), 0) && s.Most != NoID {
				sum := 0.0
				for id := range a.slice(p) {
					sum += a.Draws[m].weight(a.Logits[m*a.Vocab+id], largest)
				}
				s.Sum = math.Float32bits(float32(sum))
			}
			a.Partial[m*a.Parts+p] = s
		}
	}
}

// weight is the probability of a token relative to that of the most probable one.
func (d *Draw) weight(logit, largest float32) float64 {
	return math.Exp((float64(logit) - float64(largest)) * float64(d.InvTemperature))
}

// TopKReduce takes the best tokens of the rows lo..hi-1 from what TopKPartial left, K times, and each time looks up what
// is best of the rest of its slice. It changes Partial.
func TopKReduce(a *TopKArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		row, draw := a.Partial[m*a.Parts:(m+1)*a.Parts], &a.Draws[m]
		a.Sums[m] = a.sums(row, draw)
		for j := range a.K {
			best := &row[0]
			for p := range row {
				if s := &row[p]; better(s.Best, s.ID, best.Best, best.ID) {
					best = s
				}
			}
			if best.ID == NoID {
				a.Top[m*a.K+j] = Best{ID: NoID}
				continue
			}
			taken := int(best.ID)
			a.Top[m*a.K+j] = Best{math.Float32bits(a.Logits[m*a.Vocab+taken]), best.ID}
			last, lastID := best.Best, best.ID
			best.Best, best.ID = 0, NoID
			for id := range a.slice(taken / max(1, a.Group) % a.Parts) {
				o := order(draw.Score(a.Logits[m*a.Vocab+id], id))
				if better(last, lastID, o, uint32(id)) && better(o, uint32(id), best.Best, best.ID) {
					best.Best, best.ID = o, uint32(id)
				}
			}
		}
	}
}

// sums combines the slices of a row.
func (a *TopKArgs) sums(row []Slice, draw *Draw) [2]uint32 {
	most := uint32(0)
	for _, s := range row {
		most = max(most, s.Most)
	}
	if most == NoID {
		return [2]uint32{0x7FC00000, 0}
	}
	largest, sum := unorder(most), 0.0
	if draw.Race == 0 && !math.IsInf(float64(largest), 0) {
		for _, s := range row {
			sum += float64(math.Float32frombits(s.Sum)) * draw.weight(unorder(s.Most), largest)
		}
	}
	return [2]uint32{math.Float32bits(largest), math.Float32bits(float32(sum))}
}

// TopK is TopKPartial and TopKReduce in one, by sorting.
func TopK(a *TopKArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		draw, logits := &a.Draws[m], a.Logits[m*a.Vocab:][:a.Limit]
		ids, orders := make([]int, len(logits)), make([]uint32, len(logits))
		most := uint32(0)
		for id, l := range logits {
			ids[id], orders[id] = id, order(draw.Score(l, id))
			most = max(most, order(l))
		}
		slices.SortStableFunc(ids, func(x, y int) int { return cmp.Compare(orders[y], orders[x]) })
		for j := range a.K {
			a.Top[m*a.K+j] = Best{ID: NoID}
			if j < len(ids) && most != NoID {
				a.Top[m*a.K+j] = Best{math.Float32bits(logits[ids[j]]), uint32(ids[j])}
			}
		}
		if a.Sums[m] = [2]uint32{0x7FC00000, 0}; most == NoID {
			continue
		}
		largest, sum := unorder(most), 0.0
		if draw.Race == 0 && !math.IsInf(float64(largest), 0) {
			for _, l := range logits {
				sum += draw.weight(l, largest)
			}
		}
		a.Sums[m] = [2]uint32{math.Float32bits(largest), math.Float32bits(float32(sum))}
	}
}
