package sched

import "slices"

// awaits reports whether a sequence that could be admitted had better wait for a running one that is about to compute what
// both begin with: then it finds that in the cache. found is how many blocks it would find now.
//
// It waits only if it will find at least half of what it lacks, so that waiting costs no more than it saves; and as there is
// always a running sequence that it waits for, the bounds of the package comment hold.
func (s *Scheduler) awaits(q *Sequence, found int) bool {
	if !s.pool.Caches() {
		return false
	}
	size := s.pool.BlockSize()
	findable := min(q.LogitsFrom, len(q.Tokens)-1) / size
	least := max(1, (s.pool.NumBlocksFor(len(q.Tokens))-found+1)/2) // blocks that are worth it
	for _, r := range s.running {
		ready := max(found, r.NumComputed/size)
		if r.Salt != q.Salt || min(findable, len(r.Tokens)/size)-ready < least {
			continue
		}
		if end := (ready + least) * size; slices.Equal(q.Tokens[:end], r.Tokens[:end]) {
			return true
		}
	}
	return false
}
