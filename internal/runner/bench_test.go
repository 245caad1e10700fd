package runner

import (
	"context"
	"fmt"
	"testing"

	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// eachDevice runs a benchmark on the processor and on the native adapter.
func eachDevice(b *testing.B, run func(b *testing.B, dev gpu.Device)) {
	b.Run("cpu", func(b *testing.B) {
		dev, err := cpu.Open(cpu.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer dev.Close()
		run(b, dev)
	})
	b.Run("gpu", func(b *testing.B) { run(b, gputest.Open(b)) })
}

// openBuiltin opens the built-in model for up to 64 sequences.
func openBuiltin(b *testing.B, dev gpu.Device, c Config) *Runner {
	src, err := builtin.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	return open(b, dev, src, c)
}

// open opens a model with what is left of c.
func open(t testing.TB, dev gpu.Device, src weights.Source, c Config) *Runner {
	t.Helper()
	if c.Budget == 0 {
		c.Budget = 2 << 30
	}
	if c.NumTokens == 0 {
		c.NumTokens = src.Config().VocabSize
	}
	c.Progress = func(string, int64, int64, string) {}
	r, err := Open(context.Background(), dev, src, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// sequences are n sequences of length tokens each, with blocks of their own.
func sequences(n, length int) []*sched.Sequence {
	blocks := kvcache.NumBlocksFor(length)
	list := make([]*sched.Sequence, n)
	for s := range list {
		q := &sched.Sequence{ID: fmt.Sprint(s), Tokens: make([]int32, length), Table: make(kvcache.Table, blocks)}
		for i := range q.Tokens {
			q.Tokens[i] = int32(5 + (s*31+i*37)%400) // ids that every model has
		}
		for i := range q.Table {
			q.Table[i] = kvcache.BlockID(s*blocks + i)
		}
		list[s] = q
	}
	return list
}

// BenchmarkStep decodes one token of each of several sequences of the built-in model, from context 128 on.
func BenchmarkStep(b *testing.B) {
	const from, to = 128, 256
	eachDevice(b, func(b *testing.B, dev gpu.Device) {
		r := openBuiltin(b, dev, Config{KV: quant.KVF16, MaxModelLen: to, MaxTokens: 64, MaxLogits: 64, MaxSeqs: 64})
		for _, n := range []int{1, 2, 4, 5, 8, 16, 32, 64} {
			b.Run(fmt.Sprintf("seqs=%d", n), func(b *testing.B) {
				seqs := sequences(n, to)
				p := &sched.Plan{NumTokens: n, NumLogits: n}
				for _, q := range seqs {
					p.Chunks = append(p.Chunks, sched.Chunk{Seq: q, Logits: 1})
				}
				for i := 0; b.Loop(); i++ {
					for s := range p.Chunks {
						c := &p.Chunks[s]
						c.Start = from + i%(to-from)
						c.Tokens = c.Seq.Tokens[c.Start : c.Start+1]
					}
					if _, err := r.Step(context.Background(), p, WantIDs); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
			})
		}
	})
}
