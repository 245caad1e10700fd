package sched

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/kvcache"
)

func seq(id string, prompt, maxTokens int) *Sequence {
	return &Sequence{ID: id, Tokens: make([]int32, prompt), MaxTokens: maxTokens, LogitsFrom: prompt - 1}
}

// show writes a plan as "id start+tokens/logits ...".
func show(p *Plan) string {
	var out []string
	for _, c := range p.Chunks {
		out = append(out, fmt.Sprintf("%s %d+%d/%d", c.Seq.ID, c.Start, len(c.Tokens), c.Logits))
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
		if c.Start+len(c.Tokens) == len(c.Seq.Tokens) {
			c.Seq.Tokens = append(c.Seq.Tokens, 0)
		}
	}
}

func TestPromptIsComputedInChunksThenTokenByToken(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 1, MaxSeqs: 1}, kvcache.NewPool(8))
	s.Add(seq("a", 19, 30))
	step(t, s, "a 0+8/0")
	step(t, s, "a 8+8/0")
	step(t, s, "a 16+3/1")
	step(t, s, "a 19+1/1")
	step(t, s, "a 20+1/1")
}

func TestSecondSequenceWaitsForASeatThenRuns(t *testing.T) {
	pool := kvcache.NewPool(8)
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 1, MaxSeqs: 1}, pool)
	a, b := seq("a", 2, 10), seq("b", 3, 10)
	s.Add(a)
	s.Add(b)
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
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 4, MaxSeqs: 4}, kvcache.NewPool(16))
	s.Add(seq("a", 3, 40))
	step(t, s, "a 0+3/1")
	s.Add(seq("b", 12, 40))
	step(t, s, "a 3+1/1, b 0+7/0")
	step(t, s, "a 4+1/1, b 7+5/1")
	step(t, s, "a 5+1/1, b 12+1/1")
}

func TestAdmissionWaitsForBlocksInOrder(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 4}, kvcache.NewPool(4))
	a, b, c := seq("a", 1, 33), seq("b", 1, 32), seq("c", 1, 1)
	s.Add(a) // three blocks
	s.Add(b) // two: does not fit, and c behind it waits although it would
	s.Add(c)
	step(t, s, "a 0+1/1")
	s.Remove(a)
	step(t, s, "b 0+1/1, c 0+1/1")
}

func TestRowsOfLogitsBoundAChunk(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 1}, kvcache.NewPool(4))
	q := seq("a", 10, 12)
	q.LogitsFrom = 3
	s.Add(q)
	step(t, s, "a 0+7/4")
	step(t, s, "a 7+3/3")
}

func TestRemoveWhileWaiting(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 64, MaxLogits: 4, MaxSeqs: 1}, kvcache.NewPool(4))
	a, b := seq("a", 1, 1), seq("b", 1, 1)
	s.Add(a)
	s.Add(b)
	s.Remove(a)
	step(t, s, "b 0+1/1")
}
