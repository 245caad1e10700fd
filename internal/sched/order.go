package sched

import (
	"cmp"
	"slices"
)

// compare is the order of sequences: negative when a comes before b. It is total, since no two arrive at once.
func (s *Scheduler) compare(a, b *Sequence) int {
	if s.cfg.Policy == PolicyPriority {
		switch {
		case a.overdue && !b.overdue:
			return -1
		case b.overdue && !a.overdue:
			return 1
		case !a.overdue && a.Priority != b.Priority:
			return cmp.Compare(a.Priority, b.Priority)
		}
	}
	return cmp.Compare(a.arrival, b.arrival)
}

// place puts a sequence where it belongs in a list. Most belong near an end: the new ones at the back, the preempted ones
// at the front.
func (s *Scheduler) place(list []*Sequence, q *Sequence) []*Sequence {
	i, _ := slices.BinarySearchFunc(list, q, s.compare)
	return slices.Insert(list, i, q)
}

func (s *Scheduler) enqueue(q *Sequence) {
	q.state = waiting
	s.waiting = s.place(s.waiting, q)
}

// overtake books that a sequence was admitted for the first time: earlier arrivals that come after it in order were
// overtaken. Under PolicyFCFS there are none.
func (s *Scheduler) overtake(q *Sequence) {
	if s.cfg.Policy != PolicyPriority {
		return
	}
	changed := false
	for _, list := range [...][]*Sequence{s.waiting, s.running} {
		for _, x := range list {
			if x.arrival < q.arrival && s.compare(q, x) < 0 {
				x.overtaken++
				if x.overtaken == s.cfg.MaxOvertakes {
					x.overdue, changed = true, true
				}
			}
		}
	}
	if changed {
		slices.SortFunc(s.waiting, s.compare)
		slices.SortFunc(s.running, s.compare)
	}
}

func remove(list []*Sequence, q *Sequence) []*Sequence {
	i := slices.Index(list, q)
	return slices.Delete(list, i, i+1)
}
