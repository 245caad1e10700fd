package model

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/weights"
)

// MaxEntries is how many ids with a bias or a ban a row of a burst may have.
const MaxEntries = 1088

// Adjusted is what bursts need, beside a Forward, for rows whose logits are changed before a token is chosen from them: by
// penalties, biases and bans. Its buffers are those of the Forward.
type Adjusted struct {
	PickNext, DrawNext, NucleusNext []kernels.Op // as those of Forward, with the logits changed first and tokens counted

	// A row's record is where its State says.
	Penalties gpu.Buffer // [MaxSeqs] see kernels.PenalizeArgs
	Listed    gpu.Buffer // [MaxSeqs, MaxEntries] (u32, f32) likewise
	Counts    gpu.Buffer // [MaxSeqs, vocab] u32 likewise
}

// NewAdjusted makes it for a Forward of the same shape. The kernels are compiled afterwards by set.Compile. When it fails, it
// leaves nothing allocated.
func NewAdjusted(dev gpu.Device, set *kernels.Set, cfg *weights.Config, f *Forward, s Shape) (*Adjusted, error) {
	b := &builder{Forward: f, dev: dev, set: set, cfg: cfg, Shape: s}
	a, before := &Adjusted{}, len(f.buffers)
	words := adjustedWords(cfg, s)
	a.Penalties, a.Listed = b.scratch("penalties", words[0]), b.scratch("biases and bans", words[1])
	a.Counts = b.scratch("counts of tokens", words[2])
	b.counts = a.Counts
	for _, list := range []struct {
		ops  *[]kernels.Op
		next func()
	}{
		{&a.PickNext, b.pickNext},
		{&a.DrawNext, func() { b.sampleNext(nil) }},
		{&a.NucleusNext, func() { b.sampleNext(b.Logits) }},
	} {
		b.over(list.ops, 1)
		if b.err == nil {
			b.penalize(a)
			list.next()
		}
	}
	if b.err != nil {
		f.releaseFrom(before)
		return nil, b.err
	}
	return a, nil
}

// AdjustedBytes is the size of what NewAdjusted allocates.
func AdjustedBytes(cfg *weights.Config, s Shape) (sum int64) {
	for _, n := range adjustedWords(cfg, s) {
		sum += max(4*int64(n), leastBuffer)
	}
	return sum
}

func adjustedWords(cfg *weights.Config, s Shape) [3]int {
	return [3]int{kernels.PenaltyBytes / 4 * s.MaxSeqs, 2 * MaxEntries * s.MaxSeqs, cfg.VocabSize * s.MaxSeqs}
}

func (b *builder) penalize(a *Adjusted) {
	b.add(b.set.Penalize(kernels.PenalizeArgs{
		Rows: b.MaxSeqs, Records: b.MaxSeqs, Vocab: b.cfg.VocabSize, Limit: b.limit(), Entries: MaxEntries, Tokens: b.Tokens, States: b.States,
		Penalties: a.Penalties, Listed: a.Listed, Counts: a.Counts, Logits: b.Logits, Step: b.step,
	}))
}
