package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// SampleArgs are the arguments of Sample. They follow a TopK of as many candidates, with the same rows, Draws, Top and Sums.
type SampleArgs struct {
	Rows  int        // most rows, M
	K     int        // candidates of a row, 2 to MaxSampled
	Limit int        // ids that took part in TopK
	Top   gpu.Buffer // [M, K] (f32 logit, u32 id), best first
	Sums  gpu.Buffer // [M] (f32, f32): the largest logit, the sum of exp((logit - largest) / temperature)
	// Samplers says how tokens are drawn: [M] (f32 1/temperature or 0, u32 top_k or 0, f32 top_p, f32 -log(min_p) or 1e30, u64 key,
	// u64 step), as sample.DeviceState has them. The step of a row counts up when its token is chosen.
	Samplers gpu.Buffer
	Draws    gpu.Buffer // [M] as TopKArgs; written when the token is chosen: those of the next step
	IDs      gpu.Buffer // [M] u32, written: the token, NoID where a logit is NaN or +infinity, or Undecided
	// Logits, [M, Vocab] f32, are looked at a second time for rows with top_p: then what top_p keeps need not be among K
	// candidates. nil leaves that out, for steps without such rows. What Draws want differs: sample.DeviceState.Draw gives the
	// first for either.
	Logits gpu.Buffer
	Vocab  int
	Step   gpu.Binding // holds the rows that a step really has
}

// MaxSampled is the most candidates that Sample looks at.
const MaxSampled = 64

// SamplerBytes is the size of an element of SampleArgs.Samplers.
const SamplerBytes = 32

type sampleParams struct{ K, Limit, Parts, Pad0 uint32 }

// What sample_mass leaves: sums for each part of a row.
const (
	massPart    = 2048 // ids
	massColumns = 15
)

// Sample chooses the token of each row as internal/sample would, or says that its candidates do not prove which one that is.
func (s *Set) Sample(a SampleArgs) (Op, error) {
	c := checker{op: "sample"}
	c.positive("Rows", a.Rows)
	c.want(a.K >= 2 && a.K <= MaxSampled, "K is %d, not 2 to %d", a.K, MaxSampled)
	c.positive("Limit", a.Limit)
	c.buffer("Top", a.Top, 2*a.Rows*a.K)
	c.buffer("Sums", a.Sums, 2*a.Rows)
	c.buffer("Samplers", a.Samplers, a.Rows*SamplerBytes/4)
	c.buffer("Draws", a.Draws, a.Rows*DrawBytes/4)
	c.buffer("IDs", a.IDs, a.Rows)
	if a.Logits != nil {
		c.positive("Vocab", a.Vocab)
		c.want(a.Limit <= a.Vocab, "Limit is %d of %d", a.Limit, a.Vocab)
		c.buffer("Logits", a.Logits, a.Rows*a.Vocab)
	}
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("sample", nil, nil)
	if err != nil {
		return nil, err
	}
	last := &dispatch{pipeline: p, grid: s.rowEach}
	if a.Logits == nil {
		last.group, err = s.bind(p, sampleParams{K: uint32(a.K), Limit: uint32(a.Limit)}, a.Step, a.Top, a.Sums, nil, a.Samplers, a.Draws, a.IDs)
		if err != nil {
			return nil, err
		}
		return &op{
			name: "sample", rows: a.Rows, choose: always(last),
			traffic: func(rows int) int64 { return int64(rows) * int64(8*a.K+40+36) },
		}, nil
	}
	sums, err := s.pipeline("sample_mass", nil, nil)
	if err != nil {
		return nil, err
	}
	parts := ceil(a.Limit, massPart)
	first := &dispatch{pipeline: sums, grid: func(rows int) [3]uint32 { return s.rowEach(rows * parts) }}
	s.later(sampleScratch(a.Rows, a.Limit), func(scratch gpu.Buffer) (err error) {
		params := topKParams{Vocab: uint32(a.Vocab), Limit: uint32(a.Limit), Parts: uint32(parts), K: uint32(a.K)}
		if first.group, err = s.bind(sums, params, a.Step, a.Top, a.Sums, a.Samplers, a.Draws, a.Logits, scratch); err != nil {
			return err
		}
		params2 := sampleParams{K: uint32(a.K), Limit: uint32(a.Limit), Parts: uint32(parts)}
		last.group, err = s.bind(p, params2, a.Step, a.Top, a.Sums, scratch, a.Samplers, a.Draws, a.IDs)
		return err
	})
	return &op{
		name: "sample", rows: a.Rows, choose: always(first, last),
		traffic: func(rows int) int64 { return int64(rows) * int64(4*a.Limit+2*4*massColumns*parts+8*a.K+40+36) },
	}, nil
}

// sampleScratch is the size of what sample_mass leaves of rows rows.
func sampleScratch(rows, limit int) int64 {
	return 4 * massColumns * int64(rows) * int64(ceil(limit, massPart))
}
