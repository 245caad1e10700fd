package conformance

import (
	"math"
	"slices"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// penalizeCase changes logits of every size by penalties that make them larger and smaller; some rows have no flag, some no
// entries, and some are past their bans. The bits must be those of float32 arithmetic in Go.
func penalizeCase(b *bench) error {
	inf := float32(math.Inf(1))
	for _, s := range []struct{ rows, bucket, vocab, limit, entries int }{
		{1, 1, 1, 1, 1}, {1, 2, 65, 64, 3}, {9, 10, 1003, 1001, 40}, {24, 24, 4100, 4097, 700},
	} {
		a := ref.PenalizeArgs{
			Vocab: s.vocab, Limit: s.limit, Entries: s.entries, Tokens: make([]ref.Token, s.bucket), States: make([]ref.State, s.bucket),
			Penalties: make([]ref.Penalty, s.bucket), Listed: make([]ref.Entry, s.bucket*s.entries), Counts: make([]uint32, s.bucket*s.vocab),
			Logits: b.rowsOf(s.rows, s.bucket, s.vocab),
		}
		for m, r := range b.Perm(s.bucket)[:s.rows] {
			a.States[m].Flags = uint32(m+1)%4&1 | uint32(r<<8|b.IntN(2)<<1)
			a.Tokens[m].Position, a.Penalties[r].Until = 100, 99+uint32(b.IntN(3))
			p := &a.Penalties[r]
			p.Repetition = []float32{1, 1.1, 0.9, 1.7, 3, 1e-5, 1e6}[b.IntN(7)]
			p.Frequency, p.Presence = []float32{0, 0.1, -1.7, 2}[b.IntN(4)], []float32{0, 0.3, -2}[b.IntN(3)]
			counts, logits := a.Counts[r*s.vocab:][:s.vocab], a.Logits[m*s.vocab:][:s.vocab]
			for id := range logits {
				logits[id] *= []float32{1, 20, 1e-3, 1e9}[b.IntN(4)]
				counts[id] = []uint32{0, 0, ref.Seen, ref.Seen | b.Uint32N(9), ref.Seen | 1 + b.Uint32N(1<<20)}[b.IntN(5)]
				if b.IntN(30) == 0 {
					logits[id] = []float32{-inf, inf, 3e38, 0}[b.IntN(4)]
				}
			}
			p.Entries = uint32(b.IntN(min(s.entries, s.limit) + 1))
			ids := b.Perm(s.limit)[:p.Entries]
			slices.Sort(ids)
			for j, id := range ids {
				a.Listed[r*s.entries+j] = ref.Entry{
					ID: uint32(id) | []uint32{ref.Biased, ref.Banned, ref.Biased | ref.Banned}[b.IntN(3)], Bias: (b.Float32() - 0.5) * 200,
				}
				counts[id] |= ref.Listed
			}
		}
		before := slices.Clone(a.Logits)
		ref.Penalize(&a, 0, s.rows)
		var penalties, listed []uint32
		for _, p := range a.Penalties {
			penalties = append(penalties, math.Float32bits(p.Repetition), math.Float32bits(p.Frequency), math.Float32bits(p.Presence), p.Entries,
				p.Until, 0, 0, 0)
		}
		for _, e := range a.Listed {
			listed = append(listed, e.ID, math.Float32bits(e.Bias))
		}
		op, err := b.set.Penalize(kernels.PenalizeArgs{
			Rows: s.bucket, Records: s.bucket, Vocab: s.vocab, Limit: s.limit, Entries: s.entries, Tokens: b.input(tokenWords(a.Tokens)),
			States: b.input(stateWords(a.States)), Penalties: b.input(penalties), Listed: b.input(listed), Counts: b.input(a.Counts),
			Logits: b.output("penalize logits", words, exact, bitsOf(before), bitsOf(a.Logits)), Step: b.step(s.rows),
		})
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}
