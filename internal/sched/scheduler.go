// Package sched decides what each step computes. It has no prefill and no decode phase: every running sequence catches
// up its computed tokens with its known tokens, under one budget of tokens per step, so that a long prompt is computed in
// chunks while others go on. The idea and the words are vLLM's (v1 scheduler).
//
// Blocks of the cache are taken as they are needed. When none are left, the last running sequence gives all of its own
// back, waits, and later computes again what the prefix cache has not kept; its generated tokens stay.
//
// Nobody starves:
//
//   - Every running sequence that is not preempted gets at least one token of every step, since a chunk leaves one token
//     and one row of logits to each sequence behind it.
//   - The first in order is never preempted: if it is also the last, it has the pool to itself, and Add has made sure
//     that this is enough. So under PolicyFCFS a sequence is done after at most as many steps as it and those that came
//     before it may have tokens (the sum of their MaxTokens), whatever comes later.
//   - Under PolicyPriority at most Config.MaxOvertakes later arrivals are admitted before a sequence that waits or runs;
//     then it counts as overdue and comes before all that are not. With n the number of earlier arrivals at the time of
//     its Add and M the largest MaxTokens, it is done after at most (3(n+MaxOvertakes)+1)M steps: between two events (one
//     of these sequences is admitted, becomes overdue or is done) the first of those that run goes on undisturbed.
//
// Steps that go the same way for all that run can be computed several at once (Steady, Extend, Computed): while nobody
// waits, or who waits could not run before one of them ends; and without that anybody gives way.
//
// The package knows no device and is used by one goroutine.
package sched

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/internal/kvcache"
)

// ErrQueueFull says that as many sequences wait as may.
var ErrQueueFull = errors.New("the waiting queue is full")

// SizeError says that a sequence would not fit the cache even if it were alone.
type SizeError struct {
	MaxTokens int // of the sequence
	Capacity  int // of the cache, in tokens
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("a sequence of up to %d tokens does not fit a cache of %d", e.MaxTokens, e.Capacity)
}

// Policy is the order of sequences.
type Policy string

// The policies. Whatever comes first in order is admitted first and preempted last.
const (
	PolicyFCFS     Policy = "fcfs"     // by arrival
	PolicyPriority Policy = "priority" // by Sequence.Priority, lowest first, then by arrival
)

// DefaultMaxOvertakes is Config.MaxOvertakes when it is 0.
const DefaultMaxOvertakes = 64

// Config bounds the scheduler.
type Config struct {
	MaxBatchedTokens int // most tokens in a step; at least MaxSeqs
	MaxLogits        int // most rows of logits in a step; at least MaxSeqs
	MaxSeqs          int // most sequences that run at once

	// MaxWaiting is how many sequences may wait, besides those that a free seat is there for; 0 means any number.
	MaxWaiting int
	// LongPrefillThreshold is the most tokens of one sequence in one step, so that one long prompt leaves room for others;
	// 0 means no such bound.
	LongPrefillThreshold int

	Policy       Policy // default PolicyFCFS
	MaxOvertakes int    // under PolicyPriority: see the package comment; 0 means DefaultMaxOvertakes
}

// Scheduler holds the waiting and the running sequences.
type Scheduler struct {
	cfg      Config
	pool     *kvcache.Pool
	waiting  []*Sequence // in order
	running  []*Sequence // in order
	arrivals uint64
	plan     Plan // reused from step to step
	ahead    bool // tables may have blocks that no computed token needs

	preemptions, recomputed int64
}

// Stats says what is now, and what has been since the scheduler was made.
type Stats struct {
	Running, Waiting int
	Preemptions      int64
	Recomputed       int64 // tokens computed again after a preemption
}

// New makes a scheduler over the blocks of pool.
func New(cfg Config, pool *kvcache.Pool) *Scheduler {
	if cfg.Policy == "" {
		cfg.Policy = PolicyFCFS
	}
	if cfg.MaxOvertakes == 0 {
		cfg.MaxOvertakes = DefaultMaxOvertakes
	}
	if cfg.MaxSeqs < 1 || cfg.MaxBatchedTokens < cfg.MaxSeqs || cfg.MaxLogits < cfg.MaxSeqs || cfg.MaxWaiting < 0 ||
		cfg.LongPrefillThreshold < 0 || cfg.MaxOvertakes < 0 || cfg.Policy != PolicyFCFS && cfg.Policy != PolicyPriority {
		panic(fmt.Sprintf("BUG: sched: config %+v", cfg))
	}
	return &Scheduler{cfg: cfg, pool: pool}
}

// MaxSequences is how many sequences there may be at once, running and waiting; 0 means any number.
func (s *Scheduler) MaxSequences() int {
	if s.cfg.MaxWaiting == 0 {
		return 0
	}
	return s.cfg.MaxWaiting + s.cfg.MaxSeqs
}

// Add queues a sequence, or returns ErrQueueFull or a *SizeError. It has at least one token and no more than MaxTokens.
func (s *Scheduler) Add(q *Sequence) error {
	if len(q.Tokens) == 0 || len(q.Tokens) > q.MaxTokens || q.LogitsFrom < 0 || q.MaxChunk < 0 || q.state != idle || q.admitted {
		panic(fmt.Sprintf("BUG: sched: sequence %s of %d tokens, at most %d, logits from %d, state %d",
			q.ID, len(q.Tokens), q.MaxTokens, q.LogitsFrom, q.state))
	}
	if s.pool.NumBlocksFor(q.MaxTokens) > s.pool.NumBlocks() {
		return &SizeError{MaxTokens: q.MaxTokens, Capacity: s.pool.NumBlocks() * s.pool.BlockSize()}
	}
	if most := s.MaxSequences(); most > 0 && len(s.waiting)+len(s.running) >= most {
		return ErrQueueFull
	}
	s.arrivals++
	q.arrival, q.chain.Salt = s.arrivals, q.Salt
	s.enqueue(q)
	return nil
}

// Remove takes a sequence out, whatever its state, and frees its blocks; what they hold can still be found. A sequence
// that is in no list is left alone. It may be called while a plan is being computed.
func (s *Scheduler) Remove(q *Sequence) {
	switch q.state {
	case waiting:
		s.waiting = remove(s.waiting, q)
	case running:
		s.running = remove(s.running, q)
		s.pool.Free(q.Table)
	}
	q.state, q.Table = idle, nil
}

// Running lists the sequences that hold blocks, in order; the slice is the scheduler's own.
func (s *Scheduler) Running() []*Sequence { return s.running }

// Waiting lists the sequences that were not admitted yet or were preempted, in order; the slice is the scheduler's own.
func (s *Scheduler) Waiting() []*Sequence { return s.waiting }

// Stats tells the state and the counters.
func (s *Scheduler) Stats() Stats {
	return Stats{Running: len(s.running), Waiting: len(s.waiting), Preemptions: s.preemptions, Recomputed: s.recomputed}
}

// Schedule plans the next step: first for the running sequences, then, if none of them had to give way, it admits waiting
// ones. The plan is empty only when there are no sequences. A plan that fails is dropped by not calling Done.
func (s *Scheduler) Schedule() *Plan {
	s.giveBack()
	p := &s.plan
	*p = Plan{Chunks: p.Chunks[:0], Admitted: p.Admitted[:0], Preempted: p.Preempted[:0]}
	for i, q := range s.running {
		if q.state != running {
			break // it gave way, and so did all behind it
		}
		n, rows := s.share(q, q.NumComputed, len(s.running)-i-1)
		if n == 0 {
			continue
		}
		if !s.reserve(q, s.pool.NumBlocksFor(q.NumComputed+n)-len(q.Table)) {
			break // q was the last, and gave way itself
		}
		p.add(q, n, rows)
	}
	if len(p.Preempted) == 0 {
		s.admit()
	}
	return p
}

// share is how many tokens from start on a sequence gets in this step, and how many of them want logits. It leaves one of
// each to every sequence behind it. The rows are the chunk's tail; a chunk ends early rather than ask for more rows than
// there are.
func (s *Scheduler) share(q *Sequence, start, behind int) (n, rows int) {
	if len(q.Tokens) > q.MaxTokens {
		panic(fmt.Sprintf("BUG: sched: sequence %s has %d tokens, at most %d", q.ID, len(q.Tokens), q.MaxTokens))
	}
	n = min(len(q.Tokens)-start, s.cfg.MaxBatchedTokens-s.plan.NumTokens-behind)
	if t := s.cfg.LongPrefillThreshold; t > 0 {
		n = min(n, t)
	}
	if q.MaxChunk > 0 {
		n = min(n, q.MaxChunk)
	}
	rows = max(0, start+n-max(start, q.LogitsFrom))
	if over := rows - (s.cfg.MaxLogits - s.plan.NumLogits - behind); over > 0 {
		n -= over
		rows -= over
	}
	if n <= 0 {
		return 0, 0
	}
	return n, rows
}

// reserve gets n more blocks for a running sequence. While there are too few, the last running sequence gives way; false
// means that it came to be q itself.
func (s *Scheduler) reserve(q *Sequence, n int) bool {
	for n > s.pool.NumFree() {
		last := s.running[len(s.running)-1]
		s.preempt(last)
		if last == q {
			return false
		}
	}
	if n > 0 {
		q.Table, _ = s.pool.Allocate(q.Table, n)
	}
	return true
}

// preempt sends the last running sequence back to wait, before all that come after it in order: under PolicyFCFS to the
// head of the queue. It is not part of the plan yet, since chunks are planned in order.
func (s *Scheduler) preempt(q *Sequence) {
	s.running = s.running[:len(s.running)-1]
	s.pool.Free(q.Table)
	q.Table, q.NumComputed = q.Table[:0], 0
	q.Preemptions++
	s.preemptions++
	s.enqueue(q)
	s.plan.Preempted = append(s.plan.Preempted, q)
}

// admit lets waiting sequences run, in order, while there are seats, tokens and blocks. One that must wait holds back
// those behind it.
//
// Blocks are taken chunk by chunk, but a sequence is admitted only if its whole prompt, and what the running ones still
// lack for theirs, would fit now. Otherwise prompts that cannot all fit would be computed side by side and then thrown
// out again. Nor is one whose prompt another is computing: see awaits.
func (s *Scheduler) admit() {
	room := s.room()
	p := &s.plan
	for len(s.waiting) > 0 && !s.Full() && room > 0 {
		q := s.waiting[0]
		found, fit, _ := s.fits(q, room)
		if !fit {
			return
		}
		cached := len(found) * s.pool.BlockSize()
		n, rows := s.share(q, cached, 0)
		if n == 0 {
			return
		}
		room -= s.pool.NumBlocksFor(len(q.Tokens)) - len(found) + s.pool.NumFreeOf(found)
		s.pool.Hold(found)
		q.Table, _ = s.pool.Allocate(found, s.pool.NumBlocksFor(cached+n)-len(found))

		p.Admitted = append(p.Admitted, Admission{Seq: q, Cached: cached, Resumed: q.admitted})
		s.seat(q, cached)
		p.add(q, n, rows)
	}
}

// room is how many blocks are there for those who wait: the free ones and those that were got ahead, less what the running
// sequences lack for the tokens that they have.
func (s *Scheduler) room() int {
	n := s.pool.NumFree()
	for _, q := range s.running {
		n += len(q.Table) - s.pool.NumBlocksFor(len(q.Tokens))
	}
	return n
}

// fits reports whether a waiting sequence could begin with so many blocks, those found in the cache included, or whether it had
// better wait for what another is about to compute.
func (s *Scheduler) fits(q *Sequence, room int) (found kvcache.Table, fit, awaits bool) {
	found = s.pool.Lookup(q.Table[:0], &q.chain, q.Tokens, q.LogitsFrom)
	q.Table = found[:0] // keeps what it grew to
	if s.awaits(q, len(found)) {
		return found, false, true
	}
	lack := s.pool.NumBlocksFor(len(q.Tokens)) - len(found)
	return found, lack+s.pool.NumFreeOf(found) <= room, false
}

// seat moves the head of the queue to the running sequences.
func (s *Scheduler) seat(q *Sequence, cached int) {
	s.waiting = slices.Delete(s.waiting, 0, 1)
	q.state, q.NumComputed = running, cached
	s.running = s.place(s.running, q)
	if q.admitted {
		return
	}
	q.admitted, q.NumCached = true, cached
	s.pool.Count(min(len(q.Tokens), q.LogitsFrom+1), cached)
	s.overtake(q)
}

// add plans a chunk.
func (p *Plan) add(q *Sequence, n, rows int) {
	p.Chunks = append(p.Chunks, Chunk{Seq: q, Tokens: q.Tokens[q.NumComputed : q.NumComputed+n], Start: q.NumComputed, Logits: rows})
	p.NumTokens += n
	p.NumLogits += rows
}

// Done books the last plan as computed: K and V of its tokens are in the cache, and the blocks that they filled can be
// found from now on. Sequences that were removed since Schedule are passed over.
func (s *Scheduler) Done(p *Plan) {
	for _, c := range p.Chunks {
		q := c.Seq
		if q.state != running {
			continue
		}
		if q.NumComputed != c.Start {
			panic(fmt.Sprintf("BUG: sched: sequence %s has %d tokens computed, its chunk begins at %d", q.ID, q.NumComputed, c.Start))
		}
		s.book(q, c.Start+len(c.Tokens))
	}
}

// book notes that a running sequence has end tokens computed.
func (s *Scheduler) book(q *Sequence, end int) {
	start := q.NumComputed
	q.NumComputed, q.LogitsFrom = end, max(q.LogitsFrom, end)
	s.recomputed += int64(max(0, min(end, q.computed)-start))
	q.computed = max(q.computed, end)
	size := s.pool.BlockSize()
	s.pool.Register(&q.chain, q.Tokens, q.Table, start/size, end/size)
}
