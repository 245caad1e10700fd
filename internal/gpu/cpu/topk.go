package cpu

import "github.com/pagelight/pagelight/internal/ref"

// topKArgs reads what both kernels of TopK have.
func topKArgs(v *views, a *ref.TopKArgs) {
	a.Vocab, a.Limit, a.Parts, a.K = v.dim(0, "vocab"), v.dim(1, "limit"), v.dim(2, "parts"), v.count(3, "k")
	if a.Limit == 0 || a.Limit > a.Vocab {
		v.fail("limit %d of a vocabulary of %d", a.Limit, a.Vocab)
	}
	if a.Parts == 0 || a.Parts > a.Limit {
		v.fail("%d parts of %d ids", a.Parts, a.Limit)
	}
	a.Draws = elements[ref.Draw](v, 2, "draws", v.rows, 4)
	a.Logits = v.floats(3, "logits", v.rows*a.Vocab)
	a.Partial = elements[ref.Slice](v, 4, "partial", v.rows*a.Parts, 4)
}

// topKGroup is how many neighbours lie in a slice of topk_slices.
const topKGroup = 8

func topKPartial(consts) ([]phase, error) { return topKSlicesOf(1), nil }

func topKSlices(consts) ([]phase, error) { return topKSlicesOf(topKGroup), nil }

func topKSlicesOf(group int) []phase {
	return rowwise(ref.TopKArgs{Group: group}, ref.TopKPartial, func(a *ref.TopKArgs, v *views) (int, int) {
		topKArgs(v, a)
		return v.rows, 8 * a.Limit
	})
}

func topKReduce(consts) ([]phase, error) { return topKReduceOf(1), nil }

func topKPick(consts) ([]phase, error) { return topKReduceOf(topKGroup), nil }

func topKReduceOf(group int) []phase {
	var partial []ref.Slice // ref changes it, but topk_pick may only read its own
	return rowwise(ref.TopKArgs{Group: group}, ref.TopKReduce, func(a *ref.TopKArgs, v *views) (int, int) {
		topKArgs(v, a)
		partial = append(partial[:0], a.Partial...)
		a.Partial = partial
		a.Top = elements[ref.Best](v, 5, "top", v.rows*a.K, 2)
		a.Sums = elements[[2]uint32](v, 6, "sums", v.rows, 2)
		return v.rows, a.K * (a.Parts + a.Limit/max(1, a.Parts))
	})
}

// elements is a binding of elements of size words that must have at least n; it shows just these.
func elements[T ref.Token | ref.Best | ref.Draw | ref.Slice | ref.State | ref.Sampler | ref.Penalty | ref.Entry | ref.Mass | [2]uint32 | [8]uint32](v *views, i int, name string, n, size int) []T {
	list := view[T](v.words(i), size)
	if len(list) < n {
		v.fail("%s: %d elements, %d needed", name, len(list), n)
	}
	return list[:min(len(list), n)]
}
