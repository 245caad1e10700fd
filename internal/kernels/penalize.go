package kernels

import "github.com/pagelight/pagelight/internal/gpu"

// PenalizeArgs are the arguments of Penalize.
type PenalizeArgs struct {
	Rows    int // most rows, M
	Records int // most records, R: see FlagRecord
	Vocab   int // elements of a row of Logits and of Counts
	Limit   int // only ids below this one are changed
	Entries int // elements of a row of Listed
	// Tokens has the positions until which bans hold, States the flags: rows without FlagPenalized are left alone, and nothing
	// else of theirs is read.
	Tokens gpu.Buffer // [M] vec4<u32>
	States gpu.Buffer // [M] vec4<u32>, as AdvanceArgs
	// Penalties is [R] (f32 repetition, f32 frequency, f32 presence, u32 entries of Listed; u32 position of the first token for
	// which bans do not hold, 3 times 0).
	Penalties gpu.Buffer
	Listed    gpu.Buffer // [R, Entries] (u32 id with EntryBiased and EntryBanned, f32 bias), in the order of the ids
	// Counts says what has been seen: [R, Vocab] u32, CountSeen for ids of prompt and output, CountListed for those of Listed, and
	// how many times the output has the id. AdvanceArgs.Counts is the same buffer.
	Counts gpu.Buffer
	Logits gpu.Buffer  // [M, Vocab] f32, changed
	Step   gpu.Binding // holds the rows that a step really has
}

// PenaltyBytes is the size of an element of PenalizeArgs.Penalties.
const PenaltyBytes = 32

// The bits of an element of PenalizeArgs.Counts beside the number, which is below CountListed.
const (
	CountSeen   = 1 << 31
	CountListed = 1 << 30
)

// The bits of an id in PenalizeArgs.Listed.
const (
	EntryBiased = 1 << 30
	EntryBanned = 1 << 31
)

type penalizeParams struct{ Vocab, Limit, Entries, Zero uint32 }

// Penalize changes logits by the biases and penalties of their rows, bit for bit as internal/sample does.
func (s *Set) Penalize(a PenalizeArgs) (Op, error) {
	c := checker{op: "penalize"}
	c.positive("Rows", a.Rows)
	c.positive("Records", a.Records)
	c.positive("Vocab", a.Vocab)
	c.positive("Entries", a.Entries)
	c.want(a.Limit >= 1 && a.Limit <= a.Vocab && a.Vocab < EntryBiased, "Limit is %d of %d", a.Limit, a.Vocab)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("States", a.States, a.Rows*StateBytes/4)
	c.buffer("Penalties", a.Penalties, a.Records*PenaltyBytes/4)
	c.buffer("Listed", a.Listed, 2*a.Records*a.Entries)
	c.buffer("Counts", a.Counts, a.Records*a.Vocab)
	c.buffer("Logits", a.Logits, a.Rows*a.Vocab)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("penalize", nil, nil)
	if err != nil {
		return nil, err
	}
	params := penalizeParams{Vocab: uint32(a.Vocab), Limit: uint32(a.Limit), Entries: uint32(a.Entries)}
	group, err := s.bind(p, params, a.Step, a.Tokens, a.States, a.Penalties, a.Listed, a.Counts, a.Logits)
	if err != nil {
		return nil, err
	}
	const ids = 4 // of an invocation
	return &op{
		name: "penalize", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(ceil(a.Limit, ids), elementWG)}),
		traffic: func(rows int) int64 { return int64(rows) * int64(4*a.Limit+PenaltyBytes+StateBytes) },
	}, nil
}
