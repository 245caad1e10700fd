package sched

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/kvcache"
)

// seqTokens makes sequences of different names differ from their first token on.
func seqTokens(id string, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(id[0])<<16 + int32(i)
	}
	return tokens
}

func seq(id string, prompt, maxTokens int) *Sequence {
	return &Sequence{ID: id, Tokens: seqTokens(id, prompt), MaxTokens: maxTokens, LogitsFrom: prompt - 1}
}

// pool has blocks of 4 tokens.
func pool(blocks int) *kvcache.Pool {
	return kvcache.NewPool(kvcache.Config{NumBlocks: blocks, BlockSize: 4})
}

func add(t *testing.T, s *Scheduler, seqs ...*Sequence) {
	t.Helper()
	for _, q := range seqs {
		if err := s.Add(q); err != nil {
			t.Fatal(err)
		}
	}
}

// show writes a plan as "a 0+8/1": sequence, first position, tokens, rows of logits. A sequence that was preempted is
// "-a", one that was admitted with tokens from the cache "a(4) 4+1/1".
func show(p *Plan) string {
	var out []string
	for _, q := range p.Preempted {
		out = append(out, "-"+q.ID)
	}
	for _, c := range p.Chunks {
		cached := ""
		for _, a := range p.Admitted {
			if a.Seq == c.Seq && a.Cached > 0 {
				cached = fmt.Sprintf("(%d)", a.Cached)
			}
		}
		out = append(out, fmt.Sprintf("%s%s %d+%d/%d", c.Seq.ID, cached, c.Start, len(c.Tokens), c.Logits))
	}
	return strings.Join(out, ", ")
}

// step schedules, checks, books, and gives every sequence that got its last row of logits one more token.
func step(t *testing.T, s *Scheduler, want string) {
	t.Helper()
	p := s.Schedule()
	if got := show(p); got != want {
		t.Fatalf("plan = %q, want %q", got, want)
	}
	s.Done(p)
	for _, c := range p.Chunks {
		if q := c.Seq; c.Start+len(c.Tokens) == len(q.Tokens) {
			q.Tokens = append(q.Tokens, int32(q.ID[0])<<16+int32(len(q.Tokens)))
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

func ids(list []*Sequence) string {
	var out []string
	for _, q := range list {
		out = append(out, q.ID)
	}
	return strings.Join(out, " ")
}

func TestPromptIsComputedInChunksThenTokenByToken(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 1, MaxSeqs: 1}, pool(8))
	add(t, s, seq("a", 19, 30))
	step(t, s, "a 0+8/0")
	step(t, s, "a 8+8/0")
	step(t, s, "a 16+3/1")
	step(t, s, "a 19+1/1")
	step(t, s, "a 20+1/1")
}

func TestBlocksAreTakenAsTheyAreNeeded(t *testing.T) {
	pool := pool(8)
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 1, MaxSeqs: 1}, pool)
	a := seq("a", 11, 30)
	add(t, s, a)
	for i, want := range []int{2, 3, 3, 4, 4, 4, 4, 5} {
		s.Done(s.Schedule())
		if a.NumComputed == len(a.Tokens) {
			a.Tokens = append(a.Tokens, 7)
		}
		if len(a.Table) != want || pool.NumFree() != 8-want {
			t.Errorf("after step %d: %d blocks and %d free, want %d", i, len(a.Table), pool.NumFree(), want)
		}
	}
}

func TestSecondSequenceWaitsForASeatThenRuns(t *testing.T) {
	pool := pool(8)
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 1, MaxSeqs: 1}, pool)
	a, b := seq("a", 2, 10), seq("b", 3, 10)
	add(t, s, a, b)
	step(t, s, "a 0+2/1")
	step(t, s, "a 2+1/1")
	s.Remove(a)
	step(t, s, "b 0+3/1")
	s.Remove(b)
	step(t, s, "")
	if pool.NumFree() != 8 {
		t.Errorf("%d blocks free at the end, want 8", pool.NumFree())
	}
}

func TestDecodeAndPrefillShareAStep(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 4, MaxSeqs: 4}, pool(16))
	add(t, s, seq("a", 3, 40))
	step(t, s, "a 0+3/1")
	add(t, s, seq("b", 12, 40))
	step(t, s, "a 3+1/1, b 0+7/0")
	step(t, s, "a 4+1/1, b 7+5/1")
	step(t, s, "a 5+1/1, b 12+1/1")
}

func TestLongPromptLeavesATokenToThoseBehindIt(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 3, MaxSeqs: 3, Policy: PolicyPriority}, pool(32))
	b, c := seq("b", 3, 40), seq("c", 3, 40)
	b.Priority, c.Priority = 1, 1
	add(t, s, b, c)
	step(t, s, "b 0+3/1, c 0+3/1")
	add(t, s, seq("a", 20, 40)) // comes first in order
	step(t, s, "b 3+1/1, c 3+1/1, a 0+6/0")
	step(t, s, "a 6+6/0, b 4+1/1, c 4+1/1")
	step(t, s, "a 12+6/0, b 5+1/1, c 5+1/1")
	step(t, s, "a 18+2/1, b 6+1/1, c 6+1/1")
}

func TestLongPrefillThresholdLeavesRoomForOthers(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 12, MaxLogits: 4, MaxSeqs: 4, LongPrefillThreshold: 5}, pool(16))
	add(t, s, seq("a", 12, 20), seq("b", 4, 20), seq("c", 9, 20))
	step(t, s, "a 0+5/0, b 0+4/1, c 0+3/0")
	step(t, s, "a 5+5/0, b 4+1/1, c 3+5/0")
	step(t, s, "a 10+2/1, b 5+1/1, c 8+1/1")
}

func TestMaxChunkBoundsOneSequence(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 12, MaxLogits: 4, MaxSeqs: 4, LongPrefillThreshold: 5}, pool(16))
	a, b := seq("a", 3, 5), seq("b", 7, 9)
	a.MaxChunk, b.MaxChunk = 1, 9
	add(t, s, a, b)
	step(t, s, "a 0+1/0, b 0+5/0")
	step(t, s, "a 1+1/0, b 5+2/1")
	step(t, s, "a 2+1/1, b 7+1/1")
}

func TestAdmissionWaitsForThePromptsBlocksInOrder(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 16, MaxLogits: 4, MaxSeqs: 4, LongPrefillThreshold: 8}, pool(6))
	a, b, c := seq("a", 12, 16), seq("b", 16, 24), seq("c", 1, 4)
	add(t, s, a, b, c) // three blocks, four, and one
	// Four blocks are free, and one of them is still to be a's, so that b lacks one. c waits behind it although it would fit.
	step(t, s, "a 0+8/0")
	step(t, s, "a 8+4/1")
	step(t, s, "a 12+1/1")
	s.Remove(a)
	step(t, s, "b 0+8/0, c 0+1/1")
	step(t, s, "b 8+8/1, c 1+1/1")
}

func TestRowsOfLogitsBoundAChunk(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 2}, pool(16))
	q := seq("a", 10, 12)
	q.LogitsFrom = 3
	add(t, s, q)
	step(t, s, "a 0+7/4")
	add(t, s, seq("b", 2, 8))
	step(t, s, "a 7+3/3, b 0+2/1")
	step(t, s, "a 10+1/1, b 2+1/1")
}

func TestRowsOfLogitsLeaveOneToThoseBehind(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 3, Policy: PolicyPriority}, pool(16))
	b, c, a := seq("b", 3, 9), seq("c", 3, 9), seq("a", 10, 12)
	b.Priority, c.Priority, a.LogitsFrom = 1, 1, 0
	add(t, s, b, c)
	step(t, s, "b 0+3/1, c 0+3/1")
	add(t, s, a)
	step(t, s, "b 3+1/1, c 3+1/1, a 0+2/2")
	step(t, s, "a 2+2/2, b 4+1/1, c 4+1/1")
}

func TestLogitsThatAreWantedAreNotSkippedByTheCache(t *testing.T) {
	pool := pool(16)
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 16, MaxSeqs: 1}, pool)
	a, b, c := seq("a", 14, 20), seq("b", 14, 20), seq("c", 14, 20)
	b.Tokens, c.Tokens = slices.Clone(a.Tokens), slices.Clone(a.Tokens)
	b.LogitsFrom, c.LogitsFrom = 9, 0
	add(t, s, a, b, c)
	step(t, s, "a 0+14/1")
	s.Remove(a)
	step(t, s, "b(8) 8+6/5")
	s.Remove(b)
	step(t, s, "c 0+14/14")
	s.Remove(c)
	// a asks for 14 tokens; b could use the 9 before its rows and the one whose row comes first; c only that one.
	if got := pool.Stats(); got.Queries != 14+10+1 || got.Hits != 8 {
		t.Errorf("queries, hits = %d, %d; want 25, 8", got.Queries, got.Hits)
	}
}

func TestPreemptedRowsAreNotGivenTwice(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 8, MaxSeqs: 2}, pool(5))
	a, b := seq("a", 8, 20), seq("b", 8, 12)
	b.LogitsFrom = 2
	add(t, s, a, b)
	step(t, s, "a 0+8/1, b 0+8/6")
	step(t, s, "-b, a 8+1/1") // the fifth block goes to a; b lacks one for itself and gives its two back
	if b.LogitsFrom != 8 || len(b.Tokens) != 9 {
		t.Fatalf("b wants logits from %d and has %d tokens, want 8 and 9", b.LogitsFrom, len(b.Tokens))
	}
	s.Remove(a)
	step(t, s, "b(8) 8+1/1")
}

func TestPreemptionTakesTheLastAndResumesItFirst(t *testing.T) {
	pool := pool(6)
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 3}, pool)
	a, b, c, d := seq("a", 7, 24), seq("b", 7, 24), seq("c", 7, 24), seq("d", 1, 4)
	add(t, s, a, b, c)
	step(t, s, "a 0+7/1, b 0+7/1, c 0+7/1")
	step(t, s, "a 7+1/1, b 7+1/1, c 7+1/1")
	add(t, s, d)
	step(t, s, "-c, a 8+1/1, b 8+1/1")
	if got := ids(s.Running()) + " | " + ids(s.Waiting()); got != "a b | c d" {
		t.Errorf("running | waiting = %s, want a b | c d", got)
	}
	if len(c.Tokens) != 9 || c.NumComputed != 0 || c.Preemptions != 1 || s.Stats().Preemptions != 1 {
		t.Errorf("c has %d tokens, %d computed, %d preemptions", len(c.Tokens), c.NumComputed, c.Preemptions)
	}
	for range 3 {
		step(t, s, fmt.Sprintf("a %d+1/1, b %d+1/1", len(a.Tokens)-1, len(b.Tokens)-1))
	}
	step(t, s, "-b, a 12+1/1")
	if got := ids(s.Running()) + " | " + ids(s.Waiting()); got != "a | b c d" {
		t.Errorf("running | waiting = %s, want a | b c d", got)
	}
	s.Remove(a)
	// b's last full block was given to a; the two before it are still there. c then does not fit, and d waits behind it.
	step(t, s, "b(8) 8+5/1")
	s.Remove(b)
	// c's blocks were all given to others.
	step(t, s, "c 0+9/1, d 0+1/1")
	if got := s.Stats(); got.Preemptions != 2 || got.Recomputed != 4+8 {
		t.Errorf("stats = %+v, want 2 preemptions and 12 tokens computed again", got)
	}
}

func TestSequenceGivesWayToThoseBeforeItAndNotToThoseBehind(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 2}, pool(4))
	a, b := seq("a", 6, 16), seq("b", 7, 16)
	add(t, s, a, b)
	step(t, s, "a 0+6/1, b 0+7/1")
	step(t, s, "a 6+1/1, b 7+1/1")
	step(t, s, "-b, a 7+1/1") // b is the one that lacks a block: it is the last, and gives way itself
	step(t, s, "a 8+1/1")
}

func TestPriorityOrdersAdmissionAndPreemption(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 3, Policy: PolicyPriority}, pool(6))
	a, b, c, d := seq("a", 7, 24), seq("b", 7, 24), seq("c", 7, 24), seq("d", 7, 24)
	a.Priority, b.Priority, c.Priority, d.Priority = 5, 1, 5, 3
	add(t, s, a, b, c, d)
	step(t, s, "b 0+7/1, d 0+7/1, a 0+7/1")
	step(t, s, "b 7+1/1, d 7+1/1, a 7+1/1")
	// a is the worst that runs, though it came first. It waits before c, which came later.
	step(t, s, "-a, b 8+1/1, d 8+1/1")
	if got := ids(s.Running()) + " | " + ids(s.Waiting()); got != "b d | a c" {
		t.Errorf("running | waiting = %s, want b d | a c", got)
	}
	e := seq("e", 1, 4)
	e.Priority = -1
	add(t, s, e)
	if got := ids(s.Waiting()); got != "e a c" {
		t.Errorf("waiting = %s, want e a c", got)
	}
}

func TestOvertakenSequenceBecomesOverdue(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 1, Policy: PolicyPriority, MaxOvertakes: 3}, pool(4))
	low, low2 := seq("l", 2, 4), seq("m", 2, 4)
	low.Priority, low2.Priority = 9, 9
	first := seq("0", 2, 4)
	add(t, s, first, low, low2)
	step(t, s, "0 0+2/1") // came before them: overtakes nobody
	var order []string
	running := first
	for i := range 8 {
		q := seq(fmt.Sprint(i+1), 2, 4)
		add(t, s, q) // there is always one with a better priority
		s.Remove(running)
		p := s.Schedule()
		if len(p.Chunks) != 1 {
			t.Fatalf("plan = %s", show(p))
		}
		s.Done(p)
		running = p.Chunks[0].Seq
		order = append(order, running.ID)
		running.Tokens = append(running.Tokens, 1)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(order, " "); got != "1 2 3 l m 4 5 6" {
		t.Errorf("order of admission = %s, want 1 2 3 l m 4 5 6", got)
	}
}

func TestRunningSequenceIsOvertakenToo(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 2, Policy: PolicyPriority, MaxOvertakes: 2}, pool(8))
	low := seq("l", 2, 16)
	low.Priority = 9
	add(t, s, low)
	step(t, s, "l 0+2/1")
	for i, want := range []string{"0 l", "l 1", "l 2"} {
		q := seq(fmt.Sprint(i), 2, 4)
		add(t, s, q)
		s.Done(s.Schedule())
		low.Tokens = append(low.Tokens, 1)
		if got := ids(s.Running()); got != want {
			t.Errorf("running = %s, want %s", got, want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Remove(q)
	}
}

func TestAddRefusesWhenFullOrTooLarge(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 2, MaxWaiting: 1}, pool(4))
	add(t, s, seq("a", 1, 4), seq("b", 1, 4), seq("c", 1, 4)) // two seats are free, one may wait
	if err := s.Add(seq("d", 1, 4)); !errors.Is(err, ErrQueueFull) {
		t.Errorf("fourth Add: %v, want ErrQueueFull", err)
	}
	step(t, s, "a 0+1/1, b 0+1/1")
	d := seq("d", 1, 4)
	if err := s.Add(d); !errors.Is(err, ErrQueueFull) {
		t.Errorf("Add with one waiting: %v, want ErrQueueFull", err)
	}
	s.Remove(s.Running()[0])
	add(t, s, d) // what was refused can be added later
	var size *SizeError
	if err := s.Add(seq("e", 3, 17)); !errors.As(err, &size) || *size != (SizeError{MaxTokens: 17, Capacity: 16}) {
		t.Errorf("Add of a sequence of 17 tokens: %v, want a SizeError with 17 and 16", err)
	}
}

func TestRemoveWhateverTheState(t *testing.T) {
	pool := pool(4)
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 2}, pool)
	a, b, c := seq("a", 7, 16), seq("b", 7, 16), seq("c", 1, 4)
	s.Remove(seq("d", 1, 4)) // never added
	add(t, s, c)
	s.Remove(c) // waiting
	add(t, s, a, b)
	step(t, s, "a 0+7/1, b 0+7/1")
	step(t, s, "a 7+1/1, b 7+1/1")
	step(t, s, "-b, a 8+1/1")
	s.Remove(b) // preempted
	s.Remove(b) // twice
	step(t, s, "a 9+1/1")
	step(t, s, "a 10+1/1")
	p := s.Schedule()
	if got := show(p); got != "a 11+1/1" {
		t.Fatalf("plan = %s", got)
	}
	s.Remove(a) // while its third block is being filled
	s.Done(p)
	step(t, s, "")
	if pool.NumFree() != 4 {
		t.Errorf("%d blocks free at the end, want 4", pool.NumFree())
	}
}

func TestFailedStepRegistersNothing(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 2}, pool(4))
	a := seq("a", 9, 16)
	add(t, s, a)
	if got := show(s.Schedule()); got != "a 0+9/1" {
		t.Fatalf("plan = %s", got)
	}
	step(t, s, "a 0+9/1") // the plan was dropped: the same again
	s.Remove(a)
	b := seq("b", 9, 16)
	b.Tokens = slices.Clone(a.Tokens[:9])
	add(t, s, b)
	s.Schedule()
	s.Remove(b) // its third block was not computed
	c := seq("c", 13, 16)
	c.Tokens = append(slices.Clone(b.Tokens), 1, 2, 3, 4)
	add(t, s, c)
	step(t, s, "c(8) 8+5/1")
}
