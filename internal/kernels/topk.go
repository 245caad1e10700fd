package kernels

import (
	"math"

	"github.com/pagelight/pagelight/internal/gpu"
)

// TopKArgs are the arguments of TopK.
type TopKArgs struct {
	Rows   int // most rows, M
	Vocab  int // elements of a row of Logits
	Limit  int // only ids below this one take part; 0 means Vocab
	K      int // candidates of a row, at most MaxTopK
	Logits gpu.Buffer
	// Draws says in which order tokens are candidates: [M] (f32 1/temperature, u32 0 or 1 for a race, u64 key). See lib_topk.
	Draws gpu.Buffer
	Top   gpu.Buffer  // [M, K] (f32 logit, u32 id), written: best first; NoID where there are no more or one logit is a NaN
	Sums  gpu.Buffer  // [M] (f32, f32), written: the largest logit, the sum of exp((logit - largest) / temperature)
	Step  gpu.Binding // holds the rows that a step really has
}

// MaxTopK is the most candidates that TopK gives.
const MaxTopK = 128

// DrawBytes is the size of an element of TopKArgs.Draws.
const DrawBytes = 16

type topKParams struct{ Vocab, Limit, Parts, K uint32 }

// topKWay is how rows are cut into slices, and by what kernels.
type topKWay struct {
	partial, reduce string
	parts           int // slices of a row
	most            int // largest Limit
	perPart         int // invocations of partial for a slice, in workgroups of wg
	wg              int
	reduceWG        int // rows for a workgroup of reduce
}

// topKWay is the way for limit ids.
func (t Tuning) topKWay(limit int) topKWay {
	if t.BarrierFree {
		const slice = 64 // ids: topk_reduce_serial has a bit for each
		return topKWay{"topk_partial", "topk_reduce_serial", ceil(limit, slice), 1 << 19, 1, elementWG, 8}
	}
	const group = 8 // ids that lie in one slice
	return topKWay{"topk_slices", "topk_pick", min(512, ceil(limit, group)), math.MaxInt32, 32, 256, 1}
}

// topKScratch is the size of what topk_partial leaves of each slice of rows rows.
func (t Tuning) topKScratch(rows, limit int) int64 {
	return 16 * int64(rows) * int64(t.topKWay(limit).parts)
}

// TopK finds the best candidates of each row for a sampler.
func (s *Set) TopK(a TopKArgs) (Op, error) {
	if a.Limit == 0 {
		a.Limit = a.Vocab
	}
	c := checker{op: "topk"}
	c.positive("Rows", a.Rows)
	c.positive("Vocab", a.Vocab)
	c.want(a.K >= 1 && a.K <= MaxTopK, "K is %d, not 1 to %d", a.K, MaxTopK)
	c.want(a.Limit >= 1 && a.Limit <= a.Vocab, "Limit is %d of %d", a.Limit, a.Vocab)
	way := s.tuning.topKWay(a.Limit)
	c.want(a.Limit <= way.most, "Limit is %d, more than %d", a.Limit, way.most)
	c.buffer("Logits", a.Logits, a.Rows*a.Vocab)
	c.buffer("Draws", a.Draws, a.Rows*DrawBytes/4)
	c.buffer("Top", a.Top, 2*a.Rows*a.K)
	c.buffer("Sums", a.Sums, 2*a.Rows)
	if c.err != nil {
		return nil, c.err
	}
	partial, err := s.pipeline(way.partial, nil, nil)
	if err != nil {
		return nil, err
	}
	reduce, err := s.pipeline(way.reduce, nil, nil)
	if err != nil {
		return nil, err
	}
	first := &dispatch{pipeline: partial, grid: s.elementwise(way.parts*way.perPart, way.wg)}
	second := &dispatch{pipeline: reduce, grid: s.elementwise(1, way.reduceWG)}
	s.later(s.tuning.topKScratch(a.Rows, a.Limit), func(scratch gpu.Buffer) (err error) {
		params := topKParams{Vocab: uint32(a.Vocab), Limit: uint32(a.Limit), Parts: uint32(way.parts), K: uint32(a.K)}
		if first.group, err = s.bind(partial, params, a.Step, a.Draws, a.Logits, scratch); err != nil {
			return err
		}
		second.group, err = s.bind(reduce, params, a.Step, a.Draws, a.Logits, scratch, a.Top, a.Sums)
		return err
	})
	return &op{
		name: "topk", rows: a.Rows, choose: always(first, second),
		traffic: func(rows int) int64 { return int64(rows) * int64(4*a.Limit+8*a.K+8+DrawBytes) },
	}, nil
}
