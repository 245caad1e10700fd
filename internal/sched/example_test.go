package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestWorkedExample is the example of docs/architecture.md, "Paged KV and prefix cache: a worked example", number by
// number. Change both or none.
func TestWorkedExample(t *testing.T) {
	pool := pool(6)
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 3, MaxSeqs: 3}, pool)

	text := seqTokens("t", 8) // what A, B, C and E begin with
	with := func(id string, own, maxTokens int) *Sequence {
		tokens := append(slices.Clone(text), seqTokens(id, own)...)
		return &Sequence{ID: id, Tokens: tokens, MaxTokens: maxTokens, LogitsFrom: len(tokens) - 1}
	}
	a, b, c, d, e := with("A", 2, 14), with("B", 1, 13), with("C", 0, 13), seq("D", 17, 18), with("E", 1, 10)

	for _, x := range []struct {
		arrive []*Sequence
		plan   string
		tables string // of those that run, after the step and before the finished ones are removed
		done   string
		free   string // after that, next one first
	}{
		{[]*Sequence{a}, "A 0+8/0", "A[0 1]", "", "2 3 4 5"},
		{nil, "A 8+2/1", "A[0 1 2]", "", "3 4 5"},
		{[]*Sequence{b, c}, "A 10+1/1, B(8) 8+1/1, C(4) 4+4/1", "A[0 1 2] B[0 1 3] C[0 4]", "", "5"},
		{nil, "A 11+1/1, B 9+1/1, C 8+1/1", "A[0 1 2] B[0 1 3] C[0 4 5]", "", ""},
		{nil, "-C, A 12+1/1, B 10+1/1", "A[0 1 2 5] B[0 1 3]", "A", "5 4 2"},
		{nil, "B 11+1/1, C(8) 8+2/1", "B[0 1 3] C[0 1 5]", "B", "4 2 3"},
		{nil, "C 10+1/1", "C[0 1 5]", "", "4 2 3"},
		{nil, "C 11+1/1", "C[0 1 5]", "C", "4 2 3 5 1 0"},
		{[]*Sequence{d, e}, "D 0+8/0", "D[4 2]", "", "3 5 1 0"},
		{nil, "D 8+8/0", "D[4 2 3 5]", "", "1 0"},
		{nil, "D 16+1/1", "D[4 2 3 5 1]", "D", "1 0 5 3 2 4"},
		{nil, "E(4) 4+5/1", "E[0 1 5]", "E", "5 3 2 4 1 0"},
	} {
		add(t, s, x.arrive...)
		step(t, s, x.plan)
		var tables, done []string
		for _, q := range slices.Clone(s.Running()) {
			tables = append(tables, fmt.Sprint(q.ID, q.Table))
			if len(q.Tokens) == q.MaxTokens {
				done = append(done, q.ID)
				s.Remove(q)
			}
		}
		if got := strings.Join(tables, " "); got != x.tables {
			t.Errorf("%s: tables = %s, want %s", x.plan, got, x.tables)
		}
		if got := strings.Join(done, " "); got != x.done {
			t.Errorf("%s: done = %q, want %q", x.plan, got, x.done)
		}
		if got := strings.Trim(fmt.Sprint(pool.FreeList()), "[]"); got != x.free {
			t.Errorf("%s: free = %s, want %s", x.plan, got, x.free)
		}
	}
	if st := pool.Stats(); st.Queries != 53 || st.Hits != 16 {
		t.Errorf("queries, hits = %d, %d; want 53, 16", st.Queries, st.Hits)
	}
	if st := s.Stats(); st.Preemptions != 1 || st.Recomputed != 1 {
		t.Errorf("stats = %+v, want 1 preemption and 1 token computed again", st)
	}
}
