package model

import (
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/weights"
)

// StepSlot is the distance in bytes between the two row counts in Forward.Step: uniform bindings start at multiples of it.
const StepSlot = 256

// TopK is the number of candidates of a row that Select finds.
const TopK = 64

// Shape bounds what one step holds.
type Shape struct {
	MaxTokens       int // rows through the transformer
	MaxLogits       int // rows through the LM head
	MaxSeqs         int
	MaxBlocksPerSeq int
	NumTokens       int // ids from here on are never picked; at most the vocabulary
}

// Forward is a model's forward pass as lists of ops, and the buffers through which a step goes in and comes out.
//
// The ops of Trunk run over the rows of tokens, those of Head, Pick and Select over the rows that want logits. All are recorded
// for a number of rows that may be larger than the true one, which they read from Step.
type Forward struct {
	Trunk  []kernels.Op // token ids -> hidden states
	Head   []kernels.Op // hidden states -> logits
	Pick   []kernels.Op // logits -> best ids
	Select []kernels.Op // logits -> candidates for a sampler

	MaxBlocksPerSeq int

	Step        gpu.Buffer // two slots of StepSlot bytes: {rows of tokens}, {rows of logits}
	Tokens      gpu.Buffer // [MaxTokens] vec4<u32>: id, position, slot, sequence
	BlockTables gpu.Buffer // [MaxSeqs, MaxBlocksPerSeq] u32
	LogitRows   gpu.Buffer // [MaxLogits] u32: rows of tokens that want logits
	Logits      gpu.Buffer // [MaxLogits, vocab] f32
	IDs         gpu.Buffer // [MaxLogits] u32
	Draws       gpu.Buffer // [MaxLogits] vec4<u32>: which candidates are wanted, see kernels.TopKArgs
	Top         gpu.Buffer // [MaxLogits, TopK] (f32 logit, u32 id)
	TopSums     gpu.Buffer // [MaxLogits] (f32 largest logit, f32 sum of exponentials)

	buffers []gpu.Buffer
}

// builder collects ops and buffers; the first error sticks.
type builder struct {
	*Forward
	dev gpu.Device
	set *kernels.Set
	cfg *weights.Config
	Shape
	rope gpu.Buffer  // [positions, headDim/2] (cos, sin)
	step gpu.Binding // of the rows that the ops under construction run over
	ops  *[]kernels.Op
	err  error
}

// NewForward builds the forward pass of a model over its weights and cache. The kernels are compiled afterwards by
// set.Compile.
func NewForward(dev gpu.Device, set *kernels.Set, cfg *weights.Config, w *Weights, c *Cache, s Shape) (*Forward, error) {
	b := &builder{Forward: &Forward{MaxBlocksPerSeq: s.MaxBlocksPerSeq}, dev: dev, set: set, cfg: cfg, Shape: s}
	b.inputs()
	if b.err == nil {
		switch cfg.Architecture {
		case "ernie4_5":
			b.dense(w, c)
		default:
			b.err = fmt.Errorf("model: no forward pass for architecture %q", cfg.Architecture)
		}
	}
	if b.err != nil {
		b.Release()
		return nil, b.err
	}
	return b.Forward, nil
}

// inputs makes the buffers that the host writes.
func (b *builder) inputs() {
	b.Step = b.buffer("step", 2*StepSlot, gpu.UsageUniform|gpu.UsageCopyDst)
	b.Tokens = b.buffer("tokens", 16*int64(b.MaxTokens), gpu.UsageStorage|gpu.UsageCopyDst)
	b.BlockTables = b.buffer("block_tables", 4*int64(b.MaxSeqs*b.Shape.MaxBlocksPerSeq), gpu.UsageStorage|gpu.UsageCopyDst)
	b.LogitRows = b.buffer("logit_rows", 4*int64(b.MaxLogits), gpu.UsageStorage|gpu.UsageCopyDst)
	positions := b.Shape.MaxBlocksPerSeq * blockSize
	b.rope = b.buffer("rope_table", ropeTableBytes(b.cfg, positions), gpu.UsageStorage|gpu.UsageCopyDst)
	table := newRopeTable(b.cfg)
	for from := 0; from < positions && b.err == nil; from += ropePiece {
		rows := table.rows(from, min(from+ropePiece, positions))
		b.err = b.dev.WriteBuffer(b.rope, int64(from)*ropeTableBytes(b.cfg, 1), gpu.Bytes(rows))
	}
}

// ropePiece is how many positions of the rotary table are computed and written at a time: a table of 131,072 positions has
// 64 MiB, which the Go heap need not hold.
const ropePiece = 2048

func ropeTableBytes(cfg *weights.Config, positions int) int64 {
	return 4 * int64(positions) * int64(cfg.HeadDim)
}

// ropeTable computes [positions, headDim/2] pairs (cos, sin) of position * theta^(-2i/headDim), in f64: WGSL's own sin and
// cos are too coarse.
type ropeTable struct {
	freqs []float64 // [headDim/2]
	buf   []float32
}

func newRopeTable(cfg *weights.Config) *ropeTable {
	freqs := make([]float64, cfg.HeadDim/2)
	for i := range freqs {
		// transformers computes these frequencies, and the angles, in f32; so must whoever wants its results at high positions.
		power := float32(math.Pow(cfg.RopeTheta, float64(float32(2*i)/float32(cfg.HeadDim))))
		freq := 1 / power
		if cfg.RopeFrequenciesBF16 {
			freq = roundBF16(freq)
		}
		freqs[i] = float64(freq)
	}
	return &ropeTable{freqs: freqs}
}

// rows is the rows of the positions from..to-1, valid until the next call.
func (t *ropeTable) rows(from, to int) []float32 {
	t.buf = t.buf[:0]
	for p := from; p < to; p++ {
		for _, f := range t.freqs {
			sin, cos := math.Sincos(float64(float32(float64(p) * f)))
			t.buf = append(t.buf, float32(cos), float32(sin))
		}
	}
	return t.buf
}

// roundBF16 rounds to the nearest bf16, ties to even.
func roundBF16(x float32) float32 {
	u := math.Float32bits(x)
	return math.Float32frombits((u + 0x7FFF + u>>16&1) &^ 0xFFFF)
}

// leastBuffer is the size of the smallest buffer, in bytes: kernels read 16 at a time.
const leastBuffer = 16

// scratch is an activation buffer of n f32.
func (b *builder) scratch(label string, n int) gpu.Buffer {
	return b.buffer(label, 4*int64(n), gpu.UsageStorage|gpu.UsageCopySrc|gpu.UsageCopyDst)
}

// input is an activation buffer of rows rows of n f32 that linear layers read, some of them as a uniform.
func (b *builder) input(label string, rows, n int) gpu.Buffer {
	size := 4 * int64(kernels.InputRows(rows, n)) * int64(n)
	return b.buffer(label, size, gpu.UsageStorage|gpu.UsageUniform|gpu.UsageCopySrc|gpu.UsageCopyDst)
}

func (b *builder) buffer(label string, size int64, usage gpu.Usage) gpu.Buffer {
	if b.err != nil {
		return nil
	}
	var buf gpu.Buffer
	if buf, b.err = b.dev.NewBuffer(label, max(size, leastBuffer), usage); b.err == nil {
		b.buffers = append(b.buffers, buf)
	}
	return buf
}

// over says which rows the ops that follow run over and where they go.
func (b *builder) over(ops *[]kernels.Op, slot int64) {
	b.ops, b.step = ops, gpu.Binding{Buffer: b.Step, Offset: slot * StepSlot, Size: 16}
}

// add takes a new op, or its error, with what it was for.
func (b *builder) add(op kernels.Op, err error) {
	if b.err != nil {
		return
	}
	if err != nil {
		b.err = fmt.Errorf("model: %w", err)
		return
	}
	*b.ops = append(*b.ops, op)
}

// Release frees the buffers; the ops belong to their kernels.Set.
func (f *Forward) Release() {
	for _, b := range f.buffers {
		b.Release()
	}
	f.buffers = nil
}

// ScratchBytes is the size of what NewForward allocates. largest is that of the largest buffer among it, which one binding
// has to show.
func ScratchBytes(cfg *weights.Config, s Shape) (sum, largest int64) {
	q, kv := cfg.NumHeads*cfg.HeadDim, cfg.NumKVHeads*cfg.HeadDim
	perToken := []int{cfg.HiddenSize, q + 2*kv, 2 * cfg.IntermediateSize, 4} // x, qkv, gate_up, tokens
	inputs := []int{cfg.HiddenSize, q, cfg.IntermediateSize}                 // h, attn, act
	// last, logits, ids, draws, top, top_sums, logit_rows
	perLogits := []int{cfg.HiddenSize, cfg.VocabSize, 1, 4, 2 * TopK, 2, 1}
	add := func(size int64) {
		size = max(size, leastBuffer)
		sum, largest = sum+size, max(largest, size)
	}
	for _, n := range perToken {
		add(4 * int64(n) * int64(s.MaxTokens))
	}
	for _, n := range inputs {
		add(4 * int64(n) * int64(kernels.InputRows(s.MaxTokens, n)))
	}
	for _, n := range perLogits {
		add(4 * int64(n) * int64(s.MaxLogits))
	}
	add(4 * int64(cfg.HiddenSize) * int64(kernels.InputRows(s.MaxLogits, cfg.HiddenSize))) // last_normed
	add(2 * StepSlot)
	add(4 * int64(s.MaxSeqs) * int64(s.MaxBlocksPerSeq))
	add(ropeTableBytes(cfg, s.MaxBlocksPerSeq*blockSize))
	return sum, largest
}
