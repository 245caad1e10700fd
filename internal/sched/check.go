package sched

import (
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/internal/kvcache"
)

// Check reports the first inconsistency of the scheduler and its pool: among others, that every block has as many
// references as tables that name it. It looks at everything: it is for tests and for when nothing runs.
func (s *Scheduler) Check() error {
	if err := s.pool.Check(); err != nil {
		return err
	}
	if len(s.running) > s.cfg.MaxSeqs {
		return fmt.Errorf("sched: %d sequences run, at most %d may", len(s.running), s.cfg.MaxSeqs)
	}
	if !slices.IsSortedFunc(s.waiting, s.compare) || !slices.IsSortedFunc(s.running, s.compare) {
		return fmt.Errorf("sched: sequences are not in the order of policy %s", s.cfg.Policy)
	}
	for _, q := range s.waiting {
		if q.state != waiting || len(q.Table) > 0 || q.NumComputed > 0 {
			return fmt.Errorf("sched: sequence %s waits in state %d with %d blocks and %d tokens computed", q.ID, q.state, len(q.Table), q.NumComputed)
		}
	}
	refs := make([]int, s.pool.NumBlocks())
	used := 0
	for _, q := range s.running {
		if q.state != running || q.NumComputed > len(q.Tokens) || s.pool.NumBlocksFor(q.NumComputed) > len(q.Table) {
			return fmt.Errorf("sched: sequence %s runs in state %d with %d of %d tokens computed in %d blocks",
				q.ID, q.state, q.NumComputed, len(q.Tokens), len(q.Table))
		}
		if most := s.pool.NumBlocksFor(q.MaxTokens); len(q.Table) > most {
			return fmt.Errorf("sched: sequence %s holds %d blocks and can need %d", q.ID, len(q.Table), most)
		}
		for _, b := range q.Table {
			if refs[b]++; refs[b] == 1 {
				used++
			}
		}
	}
	for b, n := range refs {
		if got := s.pool.Refs(kvcache.BlockID(b)); got != n {
			return fmt.Errorf("sched: block %d has %d references, %d tables name it", b, got, n)
		}
	}
	if free := s.pool.NumFree(); free+used != s.pool.NumBlocks() {
		return fmt.Errorf("sched: %d blocks free and %d used of %d", free, used, s.pool.NumBlocks())
	}
	return nil
}
