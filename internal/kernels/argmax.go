package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// ArgmaxArgs are the arguments of Argmax.
type ArgmaxArgs struct {
	Rows   int         // most rows, M
	Vocab  int         // elements of a row of Logits
	Limit  int         // only ids below this one may win; 0 means Vocab
	Logits gpu.Buffer  // [M, Vocab] f32
	IDs    gpu.Buffer  // [M] u32, written: the id of the largest logit, the lowest on a tie, NoID if any is NaN
	Step   gpu.Binding // holds the rows that a step really has
}

type (
	argmaxPartialParams struct{ Vocab, Limit, Parts, Pad0 uint32 }
	argmaxReduceParams  struct{ Parts, Pad0, Pad1, Pad2 uint32 }
)

const argmaxParts = 1024 // slices of a row

// argmaxScratch is the size of the best (f32, u32) of each slice of rows rows.
func argmaxScratch(rows, limit int) int64 { return 8 * int64(rows) * int64(min(argmaxParts, limit)) }

// Argmax finds the most likely id of each row.
func (s *Set) Argmax(a ArgmaxArgs) (Op, error) {
	if a.Limit == 0 {
		a.Limit = a.Vocab
	}
	c := checker{op: "argmax"}
	c.positive("Rows", a.Rows)
	c.positive("Vocab", a.Vocab)
	c.want(a.Limit >= 1 && a.Limit <= a.Vocab, "Limit is %d of %d", a.Limit, a.Vocab)
	c.want(a.Limit <= argmaxParts*maxLoop, "Limit is %d, more than %d", a.Limit, argmaxParts*maxLoop)
	c.buffer("Logits", a.Logits, a.Rows*a.Vocab)
	c.buffer("IDs", a.IDs, a.Rows)
	if c.err != nil {
		return nil, c.err
	}
	partial, err := s.pipeline("argmax_partial", nil, nil)
	if err != nil {
		return nil, err
	}
	reduce, err := s.pipeline("argmax_reduce", nil, nil)
	if err != nil {
		return nil, err
	}
	parts := min(argmaxParts, a.Limit)
	first := &dispatch{pipeline: partial, grid: s.elementwise(parts, elementWG)}
	second := &dispatch{pipeline: reduce, grid: func(rows int) [3]uint32 {
		return gpu.Grid(rows, 1, s.limits.MaxWorkgroupsPerDim)
	}}
	s.later(argmaxScratch(a.Rows, a.Limit), func(scratch gpu.Buffer) (err error) {
		params := argmaxPartialParams{Vocab: uint32(a.Vocab), Limit: uint32(a.Limit), Parts: uint32(parts)}
		if first.group, err = s.bind(partial, params, a.Step, a.Logits, scratch); err != nil {
			return err
		}
		second.group, err = s.bind(reduce, argmaxReduceParams{Parts: uint32(parts)}, a.Step, scratch, a.IDs)
		return err
	})
	return &op{
		name: "argmax", rows: a.Rows, choose: always(first, second),
		traffic: func(rows int) int64 { return int64(rows) * int64(4*a.Limit+4) },
	}, nil
}
