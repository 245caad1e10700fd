package kernels

import "github.com/pagelight/pagelight/internal/gpu"

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

// How rows are cut into slices.
const (
	topKParts       = 1024 // at most, for topk_reduce, which has memory for as many
	topKSerialSlice = 64   // ids of a slice, for topk_reduce_serial, which has a bit for each
	topKSerialLimit = 1 << 19
)

// topKParts is the number of slices of a row.
func (t Tuning) topKParts(limit int) int {
	if t.BarrierFree {
		return ceil(limit, topKSerialSlice)
	}
	return min(topKParts, limit)
}

// topKScratch is the size of what topk_partial leaves of each slice of rows rows.
func (t Tuning) topKScratch(rows, limit int) int64 {
	return 16 * int64(rows) * int64(t.topKParts(limit))
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
	parts, most := s.tuning.topKParts(a.Limit), topKParts*maxLoop
	if s.tuning.BarrierFree {
		most = topKSerialLimit
	}
	c.want(a.Limit <= most, "Limit is %d, more than %d", a.Limit, most)
	c.buffer("Logits", a.Logits, a.Rows*a.Vocab)
	c.buffer("Draws", a.Draws, a.Rows*DrawBytes/4)
	c.buffer("Top", a.Top, 2*a.Rows*a.K)
	c.buffer("Sums", a.Sums, 2*a.Rows)
	if c.err != nil {
		return nil, c.err
	}
	partial, err := s.pipeline("topk_partial", nil, nil)
	if err != nil {
		return nil, err
	}
	name, grid := "topk_reduce", func(rows int) [3]uint32 { return gpu.Grid(rows, 1, s.limits.MaxWorkgroupsPerDim) }
	if s.tuning.BarrierFree {
		name, grid = "topk_reduce_serial", s.elementwise(1, 8)
	}
	reduce, err := s.pipeline(name, nil, nil)
	if err != nil {
		return nil, err
	}
	first := &dispatch{pipeline: partial, grid: s.elementwise(parts, elementWG)}
	second := &dispatch{pipeline: reduce, grid: grid}
	s.later(s.tuning.topKScratch(a.Rows, a.Limit), func(scratch gpu.Buffer) (err error) {
		params := topKParams{Vocab: uint32(a.Vocab), Limit: uint32(a.Limit), Parts: uint32(parts), K: uint32(a.K)}
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
