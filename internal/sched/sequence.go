package sched

import "github.com/pagelight/pagelight/internal/kvcache"

// Sequence is one request inside the scheduler. Whoever adds it sets the first group of fields and, after a step that
// gave logits for its last token, appends one token or removes it: a running sequence always has something to compute.
type Sequence struct {
	ID        string
	Tokens    []int32 // prompt and answer so far; only grows
	MaxTokens int     // most tokens that Tokens may have while it is scheduled
	Priority  int     // lower comes first; only PolicyPriority looks at it
	Salt      string  // only sequences with the same salt share cached blocks
	// LogitsFrom is the first position whose logits are wanted and were not given yet; everything from there on gets a
	// row. Done moves it. No position from it on is taken from the prefix cache.
	LogitsFrom int
	MaxChunk   int // most tokens of it in one step; 0: as many as Config allows

	// The scheduler's own, for others to read.

	NumComputed int           // tokens whose K and V are in the blocks of Table
	Table       kvcache.Table // blocks held, for NumComputed and the chunk that is planned, or see Extend; empty while waiting
	NumCached   int           // tokens that the prefix cache had when the sequence was first admitted
	Preemptions int           // how often it had to give its blocks back

	chain     kvcache.Chain
	state     state
	arrival   uint64 // order of Add
	admitted  bool   // at least once
	computed  int    // most tokens that it ever had computed
	overtaken int    // later arrivals that were admitted before it was done
	overdue   bool   // has been overtaken often enough
}

type state uint8

const (
	idle state = iota // not added, or removed
	waiting
	running
)

// Chunk is what a plan does for one sequence: compute the tokens Start to Start+len(Tokens)-1.
type Chunk struct {
	Seq    *Sequence
	Tokens []int32 // part of Seq.Tokens
	Start  int     // position of the first
	Logits int     // how many of the last tokens want logits
}

// Admission is a sequence that begins to run with a step, or runs again.
type Admission struct {
	Seq     *Sequence
	Cached  int  // tokens that the prefix cache had
	Resumed bool // it ran before and was preempted
}

// Plan is what one step does; plain data, valid until the next call of Schedule.
type Plan struct {
	Chunks    []Chunk
	NumTokens int // of all chunks
	NumLogits int // rows of all chunks

	Admitted  []Admission
	Preempted []*Sequence // gave their blocks back for this step and wait
}
