package kernels

// ScratchShape bounds the ops of a model that work in memory of their Set's own.
type ScratchShape struct {
	Rows, Heads, HeadDim, MaxBlocks int // of Attention
	LogitRows, Limit                int // of Argmax, TopK and Sample
	Vocab                           int // of HeadArgmax
	Linears                         []LinearShape
}

// FixedBytes is what a Set allocates whatever its ops are: the first slots for Params, which no model so far outgrows
// unless its matrices are cut into many parts, and what stands for inputs that an op does not have.
const FixedBytes = slotsPerArena*slotBytes + dummyBytes

const dummyBytes = 16

// LinearShape bounds a Linear: most rows, outputs and inputs.
type LinearShape struct{ Rows, N, K int }

// ScratchBytes is the size of the scratch buffer that Compile makes for such ops, in bytes. Ops share it, so it is that of
// the one that needs most.
func (t Tuning) ScratchBytes(s ScratchShape) int64 {
	return max(
		t.attentionScratch(s),
		t.linearScratch(s.Linears),
		argmaxScratch(s.LogitRows, s.Limit),
		t.topKScratch(s.LogitRows, s.Limit),
		sampleScratch(s.LogitRows, s.Limit),
		t.headScratch(s.Vocab),
	)
}

// headScratch is the part of HeadArgmax, of one row.
func (t Tuning) headScratch(vocab int) int64 {
	if !t.Fuse || t.BarrierFree || t.Deterministic {
		return 0
	}
	return headScratch(1, vocab)
}

// attentionScratch is the part of Attention.
func (t Tuning) attentionScratch(s ScratchShape) int64 {
	if !t.BarrierFree {
		parts := func(rows int) int { return t.decodeParts(rows, s.Heads, s.MaxBlocks) }
		grouped := func(rows int) int { return t.groupedParts(rows, s.Heads, s.MaxBlocks) }
		return max(splitScratch(t.decodeMost(s.Rows), s.Heads, s.HeadDim, parts),
			splitScratch(t.groupedCut(s.Rows, s.Heads, s.MaxBlocks), s.Heads, s.HeadDim, grouped))
	}
	_, parts := t.serialParts(s.MaxBlocks)
	if parts == 1 {
		return 0
	}
	return splitScratch(s.Rows, s.Heads, s.HeadDim, func(int) int { return parts })
}

// linearScratch is the part of Linear.
func (t Tuning) linearScratch(list []LinearShape) (size int64) {
	if t.BarrierFree || t.Deterministic {
		return 0 // K is never cut
	}
	for _, l := range list {
		size = max(size, tilePartsMost(l.Rows, l.N, l.K))
	}
	return size
}
