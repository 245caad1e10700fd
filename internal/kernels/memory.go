package kernels

// ScratchShape bounds the ops of a model that work in memory of their Set's own.
type ScratchShape struct {
	Rows, Heads, HeadDim, MaxBlocks int // of Attention
	LogitRows, Limit                int // of Argmax and TopK
}

// FixedBytes is what a Set allocates whatever its ops are: the first slots for Params, which no model so far outgrows
// unless its matrices are cut into many parts, and what stands for inputs that an op does not have.
const FixedBytes = slotsPerArena*slotBytes + dummyBytes

const dummyBytes = 16

// ScratchBytes is the size of the scratch buffer that Compile makes for such ops, in bytes. Ops share it, so it is that of
// the one that needs most.
func (t Tuning) ScratchBytes(s ScratchShape) int64 {
	return max(
		t.decodeScratch(t.decodeMost(s.Rows), s.Heads, s.HeadDim, s.MaxBlocks),
		t.attnSerialScratch(s.Rows, s.Heads, s.HeadDim, s.MaxBlocks),
		argmaxScratch(s.LogitRows, s.Limit),
		t.topKScratch(s.LogitRows, s.Limit),
	)
}
