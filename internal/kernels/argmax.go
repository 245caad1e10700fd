package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// ArgmaxArgs are the arguments of Argmax.
type ArgmaxArgs struct {
	Rows   int        // most rows, M
	Vocab  int        // elements of a row of Logits
	Limit  int        // only ids below this one may win; 0 means Vocab
	Logits gpu.Buffer // [M, Vocab] f32
	IDs    gpu.Buffer // [M] u32, written: the id of the largest logit, the lowest on a tie, NoID if any is NaN
	// Advance, if not nil, has the winners advance their rows, as the op Advance with the same rows, IDs and step would, in
	// the dispatch that finds them. Its Rows, IDs and Step are not looked at.
	Advance *AdvanceArgs
	Step    gpu.Binding // holds the rows that a step really has
}

type (
	argmaxPartialParams struct{ Vocab, Limit, Parts, Pad0 uint32 }
	argmaxReduceParams  struct{ Parts, Pad0, Pad1, Pad2 uint32 }
)

// How rows are cut into slices.
const (
	argmaxParts = 1024 // at most, for argmax_partial
	argmaxBlock = 2048 // ids, for argmax_blocks
)

// argmaxScratch is the size of the best (f32, u32) of each slice of rows rows.
func argmaxScratch(rows, limit int) int64 {
	return 8 * int64(rows) * int64(max(min(argmaxParts, limit), ceil(limit, argmaxBlock)))
}

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
	name, parts := "argmax_blocks", ceil(a.Limit, argmaxBlock)
	if s.tuning.BarrierFree {
		name, parts = "argmax_partial", min(argmaxParts, a.Limit)
	}
	c.buffer("Logits", a.Logits, a.Rows*a.Vocab)
	c.buffer("IDs", a.IDs, a.Rows)
	if a.Advance != nil {
		c.advance(a.next())
	}
	if c.err != nil {
		return nil, c.err
	}
	partial, err := s.pipeline(name, nil, nil)
	if err != nil {
		return nil, err
	}
	reduce, err := s.argmaxReduce(&a)
	if err != nil {
		return nil, err
	}
	first := &dispatch{pipeline: partial, grid: func(rows int) [3]uint32 { return s.rowEach(rows * parts) }}
	if s.tuning.BarrierFree {
		first.grid = s.elementwise(parts, elementWG)
	}
	second := &dispatch{pipeline: reduce, grid: s.rowEach}
	s.later(argmaxScratch(a.Rows, a.Limit), func(scratch gpu.Buffer) (err error) {
		params := argmaxPartialParams{Vocab: uint32(a.Vocab), Limit: uint32(a.Limit), Parts: uint32(parts)}
		if first.group, err = s.bind(partial, params, a.Step, a.Logits, scratch); err != nil {
			return err
		}
		second.group, err = s.bindArgmaxReduce(reduce, &a, parts, scratch)
		return err
	})
	return &op{
		name: "argmax", rows: a.Rows, choose: always(first, second),
		traffic: func(rows int) int64 { return int64(rows) * int64(4*a.Limit+4) },
	}, nil
}

// next fills in Advance and gives it.
func (a *ArgmaxArgs) next() *AdvanceArgs {
	next := *a.Advance
	next.Rows, next.IDs, next.Step = a.Rows, a.IDs, a.Step
	a.Advance = &next
	return a.Advance
}

// rowEach is the grid of a kernel that has a workgroup for each row.
func (s *Set) rowEach(rows int) [3]uint32 { return gpu.Grid(rows, 1, s.limits.MaxWorkgroupsPerDim) }

// argmaxReduce is the kernel that finds the winners among the best of slices, and advances the rows if a says so.
func (s *Set) argmaxReduce(a *ArgmaxArgs) (*pipeline, error) {
	if a.Advance != nil {
		return s.pipeline("argmax_advance", nil, a.Advance.consts())
	}
	return s.pipeline("argmax_reduce", nil, nil)
}

// bindArgmaxReduce binds that kernel to partial, [M, parts] (bits of the value, id).
func (s *Set) bindArgmaxReduce(p *pipeline, a *ArgmaxArgs, parts int, partial gpu.Buffer) (gpu.BindGroup, error) {
	if n := a.Advance; n != nil {
		params := argmaxAdvanceParams{
			MaxBlocks: uint32(n.MaxBlocks), RingRows: uint32(n.RingRows), Vocab: uint32(n.Vocab), Parts: uint32(parts),
		}
		return s.bind(p, params, a.Step, partial, n.Stops, n.BlockTables, a.IDs, n.States, n.Tokens, n.Ring, n.Counts)
	}
	return s.bind(p, argmaxReduceParams{Parts: uint32(parts)}, a.Step, partial, a.IDs)
}
