package sched

import (
	"fmt"
	"math"
)

// Steady reports whether steps can follow each other without a plan for each: every running sequence has just its last
// token to compute and wants the logits of that, and nobody who waits could run before one of them ends.
//
// Several such steps may be computed at once: Extend gets the blocks, Computed books what each sequence got of them. While somebody
// waits, there may be no more of them than Left: then the promises of the package comment hold.
func (s *Scheduler) Steady() bool {
	for _, q := range s.running {
		if q.NumComputed != len(q.Tokens)-1 || q.LogitsFrom > q.NumComputed {
			return false
		}
	}
	return len(s.running) > 0 && !s.next()
}

// next reports whether the first that waits could run in the next step, or in the one after it.
func (s *Scheduler) next() bool {
	if len(s.waiting) == 0 || s.Full() {
		return false
	}
	room := s.room()
	if room <= 0 {
		return false
	}
	_, fit, awaits := s.fits(s.waiting[0], room)
	return fit || awaits
}

// Full reports whether as many sequences run as may.
func (s *Scheduler) Full() bool { return len(s.running) >= s.cfg.MaxSeqs }

// Left is how many more tokens each running sequence may get before one of them is full. In as many steps none of them ends by its
// length, and one that ends otherwise leaves its seat empty for no longer than it might have had it.
func (s *Scheduler) Left() int {
	least := math.MaxInt
	for _, q := range s.running {
		least = min(least, q.MaxTokens-len(q.Tokens))
	}
	return least
}

// Extend gets blocks for the next n tokens of every running sequence, those it does not have yet included, but for no more
// than MaxTokens. Nobody gives way for that: when there are too few free blocks it changes nothing and returns false.
//
// Blocks that no computed token needs are given back by the next Schedule: until then nothing may be computed ahead any more.
func (s *Scheduler) Extend(n int) bool {
	lack := 0
	for _, q := range s.running {
		lack += max(0, s.blocksAhead(q, n)-len(q.Table))
	}
	if lack > s.pool.NumFree() {
		return false
	}
	for _, q := range s.running {
		if n := s.blocksAhead(q, n) - len(q.Table); n > 0 {
			q.Table, _ = s.pool.Allocate(q.Table, n)
			s.ahead = true
		}
	}
	return true
}

func (s *Scheduler) blocksAhead(q *Sequence, n int) int {
	return s.pool.NumBlocksFor(min(q.NumComputed+n, q.MaxTokens))
}

// giveBack frees the blocks that Extend got and nobody came to need.
func (s *Scheduler) giveBack() {
	if !s.ahead {
		return
	}
	s.ahead = false
	for _, q := range s.running {
		if n := s.pool.NumBlocksFor(q.NumComputed); n < len(q.Table) {
			s.pool.Free(q.Table[n:])
			q.Table = q.Table[:n]
		}
	}
}

// Computed books n more tokens of a sequence as computed, without a plan: see Done. It has these tokens, and blocks for them.
// One that was removed is passed over.
func (s *Scheduler) Computed(q *Sequence, n int) {
	if q.state != running {
		return
	}
	end := q.NumComputed + n
	if n < 1 || end > len(q.Tokens) || s.pool.NumBlocksFor(end) > len(q.Table) {
		panic(fmt.Sprintf("BUG: sched: sequence %s of %d tokens has %d computed in %d blocks, and %d more",
			q.ID, len(q.Tokens), q.NumComputed, len(q.Table), n))
	}
	s.book(q, end)
}
