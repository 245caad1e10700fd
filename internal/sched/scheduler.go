// Package sched decides what each step computes. It has no prefill and no decode phase: every running sequence catches
// up its computed tokens with its known tokens, under one budget of tokens per step, so that a long prompt is computed in
// chunks while others go on. The idea and the words are vLLM's (v1 scheduler).
//
// It knows no device and is used by one goroutine. A sequence is admitted when the blocks for all tokens that it may ever
// have are free, so that nothing that runs can run out of cache.
package sched

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/kvcache"
)

// Sequence is one request inside the scheduler.
type Sequence struct {
	ID        string
	Tokens    []int32 // prompt and answer so far
	MaxTokens int     // most tokens that Tokens may ever have

	// LogitsFrom is the first position whose logits are wanted; everything from there on gets a row.
	LogitsFrom int

	NumComputed int           // tokens whose K and V are in the cache
	Table       kvcache.Table // blocks; all that MaxTokens needs, from admission on
}

// Chunk is what a plan does for one sequence: compute the tokens Start to Start+len(Tokens)-1.
type Chunk struct {
	Seq    *Sequence
	Tokens []int32 // part of Seq.Tokens
	Start  int     // position of the first
	Logits int     // how many of the last tokens want logits
}

// Plan is what one step does; plain data.
type Plan struct {
	Chunks    []Chunk
	NumTokens int
	NumLogits int
}

// Config bounds the scheduler.
type Config struct {
	MaxBatchedTokens int // most tokens in a step
	MaxLogits        int // most rows of logits in a step
	MaxSeqs          int // most sequences that run at once
}

// Scheduler holds the waiting and the running sequences.
type Scheduler struct {
	cfg     Config
	pool    *kvcache.Pool
	waiting []*Sequence
	running []*Sequence // in order of admission
	plan    Plan        // reused from step to step
}

// New makes a scheduler over the blocks of pool.
func New(cfg Config, pool *kvcache.Pool) *Scheduler {
	if cfg.MaxBatchedTokens < 1 || cfg.MaxSeqs < 1 || cfg.MaxLogits < cfg.MaxSeqs {
		panic(fmt.Sprintf("BUG: sched: config %+v", cfg))
	}
	return &Scheduler{cfg: cfg, pool: pool}
}

// Add queues a sequence. It has at least one token, no more than MaxTokens, and MaxTokens fits the pool.
func (s *Scheduler) Add(q *Sequence) {
	if len(q.Tokens) == 0 || len(q.Tokens) > q.MaxTokens || kvcache.NumBlocksFor(q.MaxTokens) > s.pool.NumBlocks() {
		panic(fmt.Sprintf("BUG: sched: sequence %s of %d tokens, at most %d, in a pool of %d blocks",
			q.ID, len(q.Tokens), q.MaxTokens, s.pool.NumBlocks()))
	}
	s.waiting = append(s.waiting, q)
}

// Remove takes a sequence out, whatever its state, and frees its blocks.
func (s *Scheduler) Remove(q *Sequence) {
	s.waiting = remove(s.waiting, q)
	s.running = remove(s.running, q)
	if q.Table != nil {
		s.pool.Free(q.Table)
		q.Table = nil
	}
}

func remove(list []*Sequence, q *Sequence) []*Sequence {
	for i, x := range list {
		if x == q {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// Running and Waiting list the sequences in order; the slices are the scheduler's own.
func (s *Scheduler) Running() []*Sequence { return s.running }

// Waiting lists the sequences that were not admitted yet.
func (s *Scheduler) Waiting() []*Sequence { return s.waiting }

// Schedule admits what fits and plans the next step. The plan is valid until the next call and empty when there is
// nothing to do. First come, first served: a sequence that does not fit holds back those behind it.
func (s *Scheduler) Schedule() *Plan {
	for len(s.waiting) > 0 && len(s.running) < s.cfg.MaxSeqs {
		q := s.waiting[0]
		blocks, ok := s.pool.Allocate(kvcache.NumBlocksFor(q.MaxTokens))
		if !ok {
			break
		}
		q.Table = blocks
		s.waiting = s.waiting[1:]
		s.running = append(s.running, q)
	}

	p := &s.plan
	*p = Plan{Chunks: p.Chunks[:0]}
	for _, q := range s.running {
		n := min(len(q.Tokens)-q.NumComputed, s.cfg.MaxBatchedTokens-p.NumTokens)
		if n <= 0 {
			continue
		}
		// The rows of logits are the chunk's tail from LogitsFrom on; a chunk ends early rather than ask for more rows than fit.
		first := max(q.LogitsFrom, q.NumComputed)
		rows := max(0, q.NumComputed+n-first)
		if room := s.cfg.MaxLogits - p.NumLogits; rows > room {
			n -= rows - room
			rows = room
			if n <= 0 {
				continue
			}
		}
		p.Chunks = append(p.Chunks, Chunk{Seq: q, Tokens: q.Tokens[q.NumComputed : q.NumComputed+n], Start: q.NumComputed, Logits: rows})
		p.NumTokens += n
		p.NumLogits += rows
	}
	return p
}

// Done books a plan as computed.
func (s *Scheduler) Done(p *Plan) {
	for _, c := range p.Chunks {
		c.Seq.NumComputed += len(c.Tokens)
	}
}
