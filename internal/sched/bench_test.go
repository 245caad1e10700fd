package sched

import (
	"fmt"
	"testing"

	"github.com/pagelight/pagelight/internal/kvcache"
)

// decoding is a scheduler with n sequences that have their prompts behind them.
func decoding(tb testing.TB, n, blocks int) (*Scheduler, func()) {
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: blocks})
	s := New(Config{MaxBatchedTokens: 8192, MaxLogits: n, MaxSeqs: n}, pool)
	for i := range n {
		q := seq(fmt.Sprint(i), 40, blocks*kvcache.BlockSize)
		q.Salt = q.ID
		if err := s.Add(q); err != nil {
			tb.Fatal(err)
		}
	}
	step := func() {
		p := s.Schedule()
		s.Done(p)
		for _, c := range p.Chunks {
			if q := c.Seq; len(q.Tokens) == q.NumComputed {
				q.Tokens = append(q.Tokens, int32(q.NumComputed%1000))
			}
		}
	}
	for range 64 {
		step()
	}
	if len(s.Running()) != n {
		tb.Fatalf("%d of %d sequences run", len(s.Running()), n)
	}
	return s, step
}

// TestStepAllocatesNothing measures decode steps of 64 sequences, in which blocks are taken, filled, hashed and
// registered. Slices that grow by doubling are all there is.
func TestStepAllocatesNothing(t *testing.T) {
	_, step := decoding(t, 64, 64*64)
	if n := testing.AllocsPerRun(800, step); n > 1 {
		t.Errorf("%v allocations a step, want at most 1", n)
	}
}

// BenchmarkSchedule is one decode step of 256 sequences, booking included.
func BenchmarkSchedule(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			const blocks = 1 << 16
			s, step := decoding(b, n, blocks)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				step()
				if s.pool.NumFree() < n {
					b.StopTimer()
					s, step = decoding(b, n, blocks)
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkPrefixHit is the admission of a prompt of 4096 tokens that is cached but for its last block, and its removal.
func BenchmarkPrefixHit(b *testing.B) {
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: 1024})
	s := New(Config{MaxBatchedTokens: 8192, MaxLogits: 1, MaxSeqs: 1}, pool)
	b.ReportAllocs()
	for b.Loop() {
		q := seq("a", 4096, 4100)
		if err := s.Add(q); err != nil {
			b.Fatal(err)
		}
		s.Done(s.Schedule())
		s.Remove(q)
	}
}
