package sched

import (
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/kvcache"
)

// TestWhatAnotherComputesIsAwaited: prompts that begin alike and come together are computed once, unless what they share is
// little beside the rest, or cannot be found.
func TestWhatAnotherComputesIsAwaited(t *testing.T) {
	text := seqTokens("t", 12)
	with := func(id string, shared, own int) *Sequence {
		tokens := append(slices.Clone(text[:shared]), seqTokens(id, own)...)
		return &Sequence{ID: id, Tokens: tokens, MaxTokens: 40, LogitsFrom: len(tokens) - 1}
	}
	salted := with("B", 12, 2)
	salted.Salt = "s"
	scored := with("B", 12, 2)
	scored.LogitsFrom = 0
	uncached := kvcache.NewPool(kvcache.Config{NumBlocks: 40, BlockSize: 4, NoPrefixCache: true})
	for _, c := range []struct {
		name  string
		pool  *kvcache.Pool
		seqs  []*Sequence
		plans []string
	}{
		{"the same prompt three times", pool(40), []*Sequence{with("A", 12, 2), with("B", 12, 2), with("C", 12, 2)}, []string{
			"A 0+14/1", "A 14+1/1, B(12) 12+2/1, C(12) 12+2/1",
		}},
		{"in chunks", pool(40), []*Sequence{with("A", 12, 14), with("B", 12, 2)}, []string{
			"A 0+20/0", "A 20+6/1, B(12) 12+2/1",
		}},
		{"who comes behind waits too", pool(40), []*Sequence{with("A", 12, 2), with("B", 12, 2), seq("x", 3, 9)}, []string{
			"A 0+14/1", "A 14+1/1, B(12) 12+2/1, x 0+3/1",
		}},
		{"half is enough", pool(40), []*Sequence{with("A", 8, 2), with("B", 8, 8)}, []string{
			"A 0+10/1", "A 10+1/1, B(8) 8+8/1",
		}},
		{"less than half", pool(40), []*Sequence{with("A", 8, 2), with("B", 8, 9)}, []string{
			"A 0+10/1, B 0+10/0", "A 10+1/1, B 10+7/1",
		}},
		{"less than a block", pool(40), []*Sequence{with("A", 3, 2), with("B", 3, 2)}, []string{
			"A 0+5/1, B 0+5/1",
		}},
		{"another salt", pool(40), []*Sequence{with("A", 12, 0), salted}, []string{
			"A 0+12/1, B 0+8/0",
		}},
		{"whose logits are wanted", pool(40), []*Sequence{with("A", 12, 0), scored}, []string{
			"A 0+12/1, B 0+8/8",
		}},
		{"without a cache", uncached, []*Sequence{with("A", 12, 2), with("B", 12, 2)}, []string{
			"A 0+14/1, B 0+6/0",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Config{MaxBatchedTokens: 20, MaxLogits: 20, MaxSeqs: 4}, c.pool)
			add(t, s, c.seqs...)
			for _, plan := range c.plans {
				step(t, s, plan)
			}
		})
	}
}

// TestAwaitingEndsWithTheOther: who waited for a sequence that is removed computes itself.
func TestAwaitingEndsWithTheOther(t *testing.T) {
	s := New(Config{MaxBatchedTokens: 8, MaxLogits: 4, MaxSeqs: 4}, pool(20))
	tokens := seqTokens("t", 16)
	first := &Sequence{ID: "A", Tokens: slices.Clone(tokens), MaxTokens: 20, LogitsFrom: 15}
	second := &Sequence{ID: "B", Tokens: slices.Clone(tokens), MaxTokens: 20, LogitsFrom: 15}
	add(t, s, first, second)
	step(t, s, "A 0+8/0")
	s.Remove(first)
	step(t, s, "B(8) 8+8/1")
}
