package sched

import (
	"slices"
	"testing"
)

// burst computes up to n steps ahead where the scheduler says that nothing else is to be done. The device goes on by itself:
// in each step it writes the slot of the token that it has just found. next decides who stalls, and who is aborted while what
// was computed is booked.
func (m *sim) burst(n int, next func(int) int) {
	if !m.s.Steady() {
		return
	}
	if len(m.s.Waiting()) > 0 {
		n = min(n, m.s.Left())
		m.queued++
	}
	free, tables := m.pool.NumFree(), 0
	for _, q := range m.s.Running() {
		tables += len(q.Table)
	}
	for ; n > 0 && !m.s.Extend(n); n /= 2 {
		if after := m.pool.NumFree(); after != free {
			m.t.Fatalf("Extend that fails took %d blocks", free-after)
		}
		m.short++
	}
	m.check()
	if n == 0 {
		return
	}
	running := slices.Clone(m.s.Running())
	found := make([][]int32, len(running)) // what the device has found for each
	for i, q := range running {
		c := m.seqs[q]
		steps := n
		if next(8) == 0 {
			steps = 1 + next(n)
		}
		before, prints := c.Tokens, c.prints
		for range min(steps, c.MaxTokens-len(c.Tokens)) {
			chunk := Chunk{Seq: q, Tokens: c.Tokens[len(c.Tokens)-1:], Start: len(c.Tokens) - 1, Logits: 1}
			m.compute(c, chunk, false)
			id := c.nextToken()
			found[i] = append(found[i], id)
			c.Tokens = append(slices.Clone(c.Tokens), id)
			c.push(id)
		}
		c.Tokens, c.prints = before, prints // the host knows nothing of it yet
	}
	least := 0
	for _, ids := range found {
		least = max(least, len(ids))
	}
	for i, ids := range found {
		if q := running[i]; len(q.Tokens)+len(ids) < q.MaxTokens {
			least = min(least, len(ids))
		}
	}
	start := m.steps
	m.bursts += least
	for i, q := range running {
		if next(24) == 0 {
			m.remove(m.seqs[q])
		}
		for j, id := range found[i] {
			m.steps = start + j + 1
			c := m.seqs[q]
			m.s.Computed(q, 1)
			if c == nil {
				break
			}
			if id != c.nextToken() {
				m.t.Fatalf("%s: the device found %d, the host %d", c.ID, id, c.nextToken())
			}
			m.answer(c)
			m.check()
		}
	}
	m.steps = start + least
}

// TestSteady names what keeps steps from following each other without plans.
func TestSteady(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 2, MaxSeqs: 2}, pool(6))
	want := func(want bool, when string) {
		t.Helper()
		if got := s.Steady(); got != want {
			t.Errorf("%s: steady %v, want %v", when, got, want)
		}
	}
	want(false, "nobody runs")
	a := &Sequence{ID: "a", Tokens: make([]int32, 9), MaxTokens: 20, LogitsFrom: 8}
	add(t, s, a)
	want(false, "one waits")
	s.Done(s.Schedule())
	want(true, "one token of the prompt is left")
	s.Done(s.Schedule())
	want(false, "the next token is not known")
	a.Tokens = append(a.Tokens, 1)
	want(true, "one token to compute")

	b := &Sequence{ID: "b", Tokens: make([]int32, 20), MaxTokens: 24, LogitsFrom: 19, Salt: "b"}
	add(t, s, b)
	want(true, "somebody came for whom there is no room")
	s.Done(s.Schedule())
	a.Tokens = append(a.Tokens, 1)
	want(true, "somebody waits for room")
	d := &Sequence{ID: "d", Tokens: make([]int32, 5), MaxTokens: 9, LogitsFrom: 4, Salt: "d"}
	add(t, s, d)
	want(true, "there is room for one who is behind")
	s.Remove(b)
	want(false, "there is room for the first")
	if !s.Extend(1000) || len(a.Table) != 5 {
		t.Fatalf("a sequence of at most 20 tokens got %d blocks", len(a.Table))
	}
	want(false, "there is room if what was got ahead is given back")
	s.Done(s.Schedule())
	a.Tokens, d.Tokens = append(a.Tokens, 1), append(d.Tokens, 1)
	b = &Sequence{ID: "b", Tokens: make([]int32, 2), MaxTokens: 4, LogitsFrom: 1, Salt: "b"}
	add(t, s, b)
	want(true, "no seat is free")
	if n := s.Left(); n != 3 {
		t.Errorf("%d steps until one is full, want 3", n)
	}
	s.Remove(b)
	s.Remove(d)
	want(true, "nobody waits")
	if !s.Extend(5) || len(a.Table) != 4 {
		t.Fatalf("11 tokens and the next 5 have %d blocks", len(a.Table))
	}
	if s.Extend(1000); len(a.Table) != 5 {
		t.Errorf("a sequence of at most 20 tokens got %d blocks", len(a.Table))
	}
	c := &Sequence{ID: "c", Tokens: make([]int32, 8), MaxTokens: 9, LogitsFrom: 7, Salt: "c"}
	add(t, s, c)
	p := s.Schedule()
	if len(p.Admitted) != 1 || len(a.Table) != 3 {
		t.Errorf("%d admitted; %d blocks for %d tokens", len(p.Admitted), len(a.Table), len(a.Tokens))
	}
}

// TestSomebodyWaitsForAPrompt has one wait for what another computes in the next step, and then finds.
func TestSomebodyWaitsForAPrompt(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 7, MaxLogits: 2, MaxSeqs: 2}, pool(9))
	a := &Sequence{ID: "a", Tokens: make([]int32, 8), MaxTokens: 20, LogitsFrom: 7}
	b := &Sequence{ID: "b", Tokens: make([]int32, 9), MaxTokens: 20, LogitsFrom: 8}
	add(t, s, a, b)
	s.Done(s.Schedule())
	if a.NumComputed != 7 || len(s.Waiting()) != 1 || s.Steady() {
		t.Errorf("%d tokens computed, %d wait, steady %v", a.NumComputed, len(s.Waiting()), s.Steady())
	}
}

// TestExtendMakesNobodyGiveWay fills a pool.
func TestExtendMakesNobodyGiveWay(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 2, MaxSeqs: 2}, pool(5))
	a := &Sequence{ID: "a", Tokens: make([]int32, 7), MaxTokens: 20, LogitsFrom: 6}
	b := &Sequence{ID: "b", Tokens: make([]int32, 7), MaxTokens: 20, LogitsFrom: 6, Salt: "b"}
	add(t, s, a, b)
	s.Done(s.Schedule())
	a.Tokens, b.Tokens = append(a.Tokens, 1), append(b.Tokens, 1)
	if s.Extend(6) || len(a.Table) != 2 || len(b.Table) != 2 {
		t.Errorf("two sequences of 2 blocks got %d and %d of 5", len(a.Table), len(b.Table))
	}
	if !s.Extend(1) || len(s.Running()) != 2 {
		t.Errorf("no room for the tokens that there are; %d run", len(s.Running()))
	}
}
