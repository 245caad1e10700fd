package cpu

import "github.com/pagelight/pagelight/internal/ref"

// penalize is the kernel of this name.
func penalize(consts) ([]phase, error) {
	return rowwise(ref.PenalizeArgs{}, ref.Penalize, func(a *ref.PenalizeArgs, v *views) (int, int) {
		a.Vocab, a.Limit, a.Entries = v.dim(0, "vocab"), v.dim(1, "limit"), v.dim(2, "entries")
		if a.Limit == 0 || a.Limit > a.Vocab {
			v.fail("limit %d of a vocabulary of %d", a.Limit, a.Vocab)
		}
		a.Tokens = v.tokens(2)
		a.States = elements[ref.State](v, 3, "states", v.rows, 4)
		n := records(a.States, 1)
		a.Penalties = elements[ref.Penalty](v, 4, "penalties", n, 8)
		a.Listed = elements[ref.Entry](v, 5, "listed", n*a.Entries, 2)
		a.Counts = v.words(6)
		if len(a.Counts) < n*a.Vocab {
			v.fail("counts: %d elements, %d needed", len(a.Counts), n*a.Vocab)
		}
		a.Logits = v.floats(7, "logits", v.rows*a.Vocab)
		return v.rows, a.Limit
	}), nil
}
