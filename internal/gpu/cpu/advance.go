package cpu

import "github.com/pagelight/pagelight/internal/ref"

// advanceArgs reads what the kernels that advance rows have: stops and block tables, and, from binding written on, states,
// tokens, ring and counts.
func advanceArgs(v *views, a *ref.AdvanceArgs, counts bool, stops, written int) {
	a.MaxBlocks, a.RingRows, a.Vocab = v.dim(0, "max_blocks"), v.dim(1, "ring_rows"), v.dim(2, "vocab")
	if a.RingRows < v.rows {
		v.fail("ring_rows is %d for %d rows", a.RingRows, v.rows)
	}
	a.Stops = elements[[8]uint32](v, stops, "stops", v.rows, 8)
	a.BlockTables = v.words(stops + 1)
	a.States = elements[ref.State](v, written, "states", v.rows, 4)
	a.Tokens = v.tokens(written + 1)
	a.Ring = v.words(written + 2)
	if len(a.Ring) < ref.RingSlots*a.RingRows {
		v.fail("ring: %d elements, %d needed", len(a.Ring), ref.RingSlots*a.RingRows)
	}
	if counts {
		a.Counts = v.words(written + 3)
		if n := records(a.States, 2) * a.Vocab; len(a.Counts) < n {
			v.fail("counts: %d elements, %d needed", len(a.Counts), n)
		}
	}
}

// records is how many there must be for the rows with a flag.
func records(states []ref.State, flag uint32) (n int) {
	for _, s := range states {
		if s.Flags&flag != 0 {
			n = max(n, int(s.Flags>>8)+1)
		}
	}
	return n
}

// advance is the kernel of this name.
func advance(c consts) ([]phase, error) {
	counts, err := c.get("COUNTS")
	return rowwise(ref.AdvanceArgs{}, ref.Advance, func(a *ref.AdvanceArgs, v *views) (int, int) {
		advanceArgs(v, a, counts == 1, 3, 5)
		a.IDs = v.words(2)
		if len(a.IDs) < v.rows {
			v.fail("ids: %d elements, %d needed", len(a.IDs), v.rows)
		}
		return v.rows, 32
	}), err
}

// argmaxAdvance is argmax_reduce, then advance.
func argmaxAdvance(c consts) ([]phase, error) {
	counts, err := c.get("COUNTS")
	find := rowwise(ref.ArgmaxReduceArgs{}, ref.ArgmaxReduce, func(a *ref.ArgmaxReduceArgs, v *views) (int, int) {
		return argmaxReduceArgs(v, a, 3, 2, 5)
	})
	next := rowwise(ref.AdvanceArgs{}, ref.Advance, func(a *ref.AdvanceArgs, v *views) (int, int) {
		advanceArgs(v, a, counts == 1, 3, 6)
		a.IDs = v.words(5)
		return v.rows, 32
	})
	return append(find, next...), err
}
