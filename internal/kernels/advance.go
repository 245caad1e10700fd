package kernels

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/wgsl"
)

// What Advance finds in IDs and leaves in Ring where there is no token. Every id is below them, and NoID is another one.
const (
	NoToken   = 0xFFFFFFFD // the row had ended
	Undecided = 0xFFFFFFFE // Sample cannot prove which token it is
)

// Sizes of what a burst keeps of a row.
const (
	RingSlots  = 64 // steps that a ring holds
	MaxStops   = 8  // ids that end a row
	StateBytes = 16 // of an element of AdvanceArgs.States
)

// The flags of a State. From bit FlagRecord on they have the row's record in PenalizeArgs.Penalties, Listed and Counts: records stay
// where they are when rows move up.
const (
	FlagPenalized = 1 << 0 // Penalize changes its logits
	FlagCounted   = 1 << 1 // Advance counts its tokens
	FlagRecord    = 8
)

// AdvanceArgs are the arguments of Advance.
type AdvanceArgs struct {
	Rows      int // most rows, M
	MaxBlocks int // elements of a row of BlockTables
	RingRows  int // elements of a slot of Ring, at least M
	// IDs has what was chosen: [M] u32, an id, NoID or Undecided.
	IDs gpu.Buffer
	// States is how far each row is, written: [M] vec4<u32>, (steps so far, tokens that the row may still produce, stops that
	// count, flags). Step n since the count was 0 goes to slot n % RingSlots of the ring. A row that may produce nothing more
	// has ended, or waits for the host, which a code in the ring says.
	States gpu.Buffer
	Stops  gpu.Buffer // [M, MaxStops] u32: ids that end a row
	// BlockTables is [sequences, MaxBlocks] u32. It must have the blocks of all tokens that the states allow.
	BlockTables gpu.Buffer
	// Tokens is the step, written: [M] vec4<u32>, (id, position, slot, sequence). A row that has ended gets NoSlot and else
	// stays; one that waits stays, so that its logits are computed again.
	Tokens gpu.Buffer
	Ring   gpu.Buffer // [RingSlots, RingRows] u32, written: what each step chose, NoToken where the row had ended
	// Counts is that of PenalizeArgs, written, or nil: [records, Vocab] u32. Rows with FlagCounted count their tokens.
	Counts gpu.Buffer
	Vocab  int         // elements of a row of Counts
	Step   gpu.Binding // holds the rows that a step really has
}

type (
	advanceParams       struct{ MaxBlocks, RingRows, Vocab, Pad0 uint32 }
	argmaxAdvanceParams struct{ MaxBlocks, RingRows, Vocab, Parts uint32 }
)

// Advance makes of the chosen tokens of a step of one token a row the next such step.
func (s *Set) Advance(a AdvanceArgs) (Op, error) {
	c := checker{op: "advance"}
	c.positive("Rows", a.Rows)
	c.buffer("IDs", a.IDs, a.Rows)
	c.advance(&a)
	if c.err != nil {
		return nil, c.err
	}
	p, err := s.pipeline("advance", nil, a.consts())
	if err != nil {
		return nil, err
	}
	params := advanceParams{MaxBlocks: uint32(a.MaxBlocks), RingRows: uint32(a.RingRows), Vocab: uint32(a.Vocab)}
	group, err := s.bind(p, params, a.Step, a.IDs, a.Stops, a.BlockTables, a.States, a.Tokens, a.Ring, a.Counts)
	if err != nil {
		return nil, err
	}
	return &op{
		name: "advance", rows: a.Rows, choose: always(&dispatch{p, group, s.elementwise(1, elementWG)}), traffic: advanceTraffic,
	}, nil
}

// advanceTraffic is what Advance moves: a state, stops, a token, a block; a state, a token and a slot of the ring.
func advanceTraffic(rows int) int64 { return int64(rows) * (68 + 36) }

// consts are the constants of lib_advance.
func (a *AdvanceArgs) consts() wgsl.Consts {
	return wgsl.Consts{"COUNTS": bit(a.Counts != nil)}
}

// advance demands what all ops need that advance rows.
func (c *checker) advance(a *AdvanceArgs) {
	c.positive("MaxBlocks", a.MaxBlocks)
	c.want(a.RingRows >= a.Rows, "RingRows is %d, less than the %d rows", a.RingRows, a.Rows)
	c.positive("RingRows", a.RingRows)
	c.buffer("States", a.States, a.Rows*StateBytes/4)
	c.buffer("Stops", a.Stops, a.Rows*MaxStops)
	c.buffer("BlockTables", a.BlockTables, a.MaxBlocks)
	c.buffer("Tokens", a.Tokens, 4*a.Rows)
	c.buffer("Ring", a.Ring, RingSlots*a.RingRows)
	if a.Counts != nil {
		c.positive("Vocab", a.Vocab)
		c.buffer("Counts", a.Counts, a.Vocab)
	}
}
