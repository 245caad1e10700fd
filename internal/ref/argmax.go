package ref

import "math"

// NoID is the answer of Argmax for a row of logits that has a NaN in it.
const NoID = 0xFFFFFFFF

// emptyID is the index of a slice without ids: above every id, so that it loses each tie, and not NoID.
const emptyID = NoID - 1

// Best is the result of one slice of a row of logits: vec2<u32>.
type Best struct {
	Bits uint32 // of the largest value, an f32
	ID   uint32 // the lowest id that has this value; NoID when the slice has a NaN
}

// ArgmaxPartialArgs are the arguments of ArgmaxPartial.
type ArgmaxPartialArgs struct {
	Vocab   int       // elements of a row of Logits
	Limit   int       // only ids below this one take part
	Parts   int       // slices of a row
	Block   int       // ids of a slice, neighbours; 0: see ArgmaxPartial
	Logits  []float32 // [M, Vocab]
	Partial []Best    // [M, Parts]
}

// ArgmaxPartial finds the best id of each slice of the rows lo..hi-1. Slice p holds the ids p, p+Parts, p+2*Parts and so
// on below Limit, or the Block ids from p*Block on.
func ArgmaxPartial(a *ArgmaxPartialArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		logits := a.Logits[m*a.Vocab:][:a.Limit]
		for p := range a.Parts {
			if a.Block == 0 {
				a.Partial[m*a.Parts+p] = best(logits, p, a.Parts)
				continue
			}
			first := min(p*a.Block, a.Limit)
			b := best(logits[first:min(first+a.Block, a.Limit)], 0, 1)
			if b.ID < emptyID {
				b.ID += uint32(first)
			}
			a.Partial[m*a.Parts+p] = b
		}
	}
}

// best is the best of the ids first, first+stride, first+2*stride, ...
func best(logits []float32, first, stride int) Best {
	largest, id := math.Inf(-1), emptyID
	for i := first; i < len(logits); i += stride {
		v := float64(logits[i])
		if math.IsNaN(v) {
			return Best{math.Float32bits(logits[i]), NoID}
		}
		if v > largest || id == emptyID {
			largest, id = v, i
		}
	}
	return Best{math.Float32bits(float32(largest)), uint32(id)}
}

// ArgmaxReduceArgs are the arguments of ArgmaxReduce.
type ArgmaxReduceArgs struct {
	Parts   int
	Partial []Best   // [M, Parts]
	IDs     []uint32 // [M]
}

// ArgmaxReduce finds the winner of each row lo..hi-1: the lowest id among the largest values, or NoID when any slice has
// seen a NaN.
func ArgmaxReduce(a *ArgmaxReduceArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		winner := a.Partial[m*a.Parts]
		for _, b := range a.Partial[m*a.Parts : (m+1)*a.Parts] {
			if b.ID == NoID {
				winner = b
				break
			}
			v, w := math.Float32frombits(b.Bits), math.Float32frombits(winner.Bits)
			if v > w || v == w && b.ID < winner.ID {
				winner = b
			}
		}
		a.IDs[m] = winner.ID
	}
}

// Argmax is ArgmaxPartial and ArgmaxReduce in one, for rows of logits that hold vocab elements each.
func Argmax(logits []float32, vocab, limit int, ids []uint32) {
	for m := range ids {
		ids[m] = best(logits[m*vocab:][:limit], 0, 1).ID
	}
}
