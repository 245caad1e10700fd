package model

import (
	"fmt"
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/weights"
)

// StepSlot is the distance in bytes between the two row counts in Forward.Step: uniform bindings start at multiples of it.
const StepSlot = 256

// TopK is the number of candidates of a row that Select finds.
const TopK = 64

// A burst is a number of steps of one token a sequence that the device does by itself.
const (
	MaxBurst = 16 // steps of a burst; all that are under way fit the ring
	Flights  = 3  // bursts that may be under way
)

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
// TrunkFor and HeadOf choose among ops for few and for many rows. The ops of Trunk run over the rows of tokens, those of Head, Pick and
// Select over the rows that want logits. All are recorded for a number of rows that may be larger than the true one, which they read
// from Step.
type Forward struct {
	Trunk  []kernels.Op // token ids -> hidden states
	Head   []kernels.Op // hidden states -> logits
	Pick   []kernels.Op // logits -> best ids
	Select []kernels.Op // logits -> candidates for a sampler

	// For steps of one token a sequence that go on by themselves, see kernels.Advance.
	PickNext    []kernels.Op // logits -> best ids -> Tokens of the next step
	DrawNext    []kernels.Op // logits -> ids as Samplers say, if none has a top_p -> Tokens of the next step
	NucleusNext []kernels.Op // logits -> ids as Samplers say -> Tokens of the next step

	// Trunk, also for short and for long contexts, and Head for kernels.FusedRows rows; nil where the device has no use for them.
	few, fewShort, fewLong, fewHead []kernels.Op

	// Head with Pick and with PickNext, for one row, where one kernel can compute logits and look for the best of them; else nil.
	headPick, headPickNext []kernels.Op

	shortContext int // positions of the longest context that fewShort serves

	Taps []Tap // where linear layers of Trunk read, in order

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
	States      gpu.Buffer // [MaxSeqs] vec4<u32>: see kernels.AdvanceArgs
	Stops       gpu.Buffer // [MaxSeqs, kernels.MaxStops] u32
	Samplers    gpu.Buffer // [MaxSeqs] see kernels.SampleArgs
	Ring        gpu.Buffer // [kernels.RingSlots, MaxSeqs] u32: the tokens that steps have chosen

	buffers []gpu.Buffer
}

// Tap is a place of the trunk where a linear layer reads its input: when the first Op ops have run, and no more, X holds [rows, K].
type Tap struct {
	Op    int
	X     gpu.Buffer // f32
	K     int
	Names []string // the matrices that read it
}

// builder collects ops and buffers; the first error sticks.
type builder struct {
	*Forward
	dev gpu.Device
	set *kernels.Set
	cfg *weights.Config
	Shape
	ropeTable gpu.Buffer // [positions, headDim/2] (cos, sin)
	activations
	counts gpu.Buffer  // of tokens, if steps count them
	step   gpu.Binding // of the rows that the ops under construction run over
	ops    *[]kernels.Op
	err    error

	collect bool // calls are collected
	calls   []call
	context contextKind
	short   bool // there is an op for short contexts
}

// activations are the buffers between ops. All are f32.
type activations struct {
	x          gpu.Buffer // [MaxTokens, hidden]: residual stream
	h          gpu.Buffer // [MaxTokens, hidden]: normed
	qkv        gpu.Buffer // [MaxTokens, (heads + 2*kvHeads)*headDim]: q, k, v side by side
	attn       gpu.Buffer // [MaxTokens, heads*headDim]: heads' outputs
	gateUp     gpu.Buffer // [MaxTokens, 2*widest]: gate, up side by side
	act        gpu.Buffer // [MaxTokens, widest]: silu(gate)*up
	shares     gpu.Buffer // [kernels.FusedRows, kernels.MaxShares, hidden]: what sets of heads add to x, see kernels.ShortBlock
	last       gpu.Buffer // [MaxLogits, hidden]: rows that want logits
	lastNormed gpu.Buffer // [MaxLogits, hidden]

	mixture mixture            // of models with experts
	ordered map[int]gpu.Buffer // [rows, K] by K: inputs in the order of a matrix's columns
}

// NewForward builds the forward pass of a model over its weights and cache. The kernels are compiled afterwards by
// set.Compile.
func NewForward(dev gpu.Device, set *kernels.Set, cfg *weights.Config, w *Weights, c *Cache, s Shape) (*Forward, error) {
	b := &builder{Forward: &Forward{MaxBlocksPerSeq: s.MaxBlocksPerSeq}, dev: dev, set: set, cfg: cfg, Shape: s}
	b.inputs()
	b.buffersBetween()
	if b.err == nil {
		b.build(w, c)
	}
	if b.err != nil {
		b.Release()
		return nil, b.err
	}
	return b.Forward, nil
}

// build appends the ops of the model's architecture.
func (b *builder) build(w *Weights, c *Cache) {
	b.over(&b.Trunk, 0)
	b.joined(func() { b.trunk(w, c) })
	b.over(&b.Head, 1)
	b.head(w)
	if b.set.Fuses() {
		b.over(&b.few, 0)
		b.fused(func() { b.trunk(w, c) })
		if b.shortContext = b.set.ShortContext(); b.shortContext > 0 {
			b.over(&b.fewShort, 0)
			b.context = shortContext
			b.fused(func() { b.trunk(w, c) })
			if !b.short {
				b.fewShort = nil
			}
		}
		if b.Shape.MaxBlocksPerSeq*blockSize >= kernels.LongContext {
			b.over(&b.fewLong, 0)
			b.context = longContext
			b.fused(func() { b.trunk(w, c) })
		}
		b.fewHeads(w)
	}

	b.over(&b.Pick, 1)
	b.argmax(b.Logits, b.IDs)

	b.over(&b.Select, 1)
	b.topK(b.Logits)

	b.over(&b.PickNext, 1)
	b.pickNext()
	b.over(&b.DrawNext, 1)
	b.sampleNext(nil)
	b.over(&b.NucleusNext, 1)
	b.sampleNext(b.Logits)
}

// trunk is everything up to the last norm, by architecture.
func (b *builder) trunk(w *Weights, c *Cache) {
	switch b.cfg.Architecture {
	case "ernie4_5", "llama", "qwen2", "qwen3":
		b.dense(w, c)
	case "ernie4_5_moe":
		b.ernie45MoE(w, c)
	default:
		b.err = fmt.Errorf("model: no forward pass for architecture %q", b.cfg.Architecture)
	}
}

// head is the logits of the rows that want them.
func (b *builder) head(w *Weights) {
	b.gatherRows(b.x, b.last)
	b.rmsNorm(b.last, w.FinalNorm, b.lastNormed)
	b.linear(b.lastNormed, w.LMHead, b.Logits)
}

// buffersBetween makes the buffers that ops write.
func (b *builder) buffersBetween() {
	cfg := b.cfg
	q := cfg.NumHeads * cfg.HeadDim
	b.x = b.scratch("x", b.MaxTokens*cfg.HiddenSize)
	b.h = b.input("h", b.MaxTokens, cfg.HiddenSize)
	b.qkv = b.scratch("qkv", b.MaxTokens*b.qkvStride())
	b.attn = b.input("attn", b.MaxTokens, q)
	b.gateUp = b.scratch("gate_up", b.MaxTokens*2*slices.Max(widths(cfg)))
	b.act = b.buffer("act", inputBytes(b.MaxTokens, widths(cfg)...), inputUsage)
	b.shares = b.scratch("shares", kernels.FusedRows*kernels.MaxShares*cfg.HiddenSize)
	b.last = b.scratch("last", b.MaxLogits*cfg.HiddenSize)
	b.lastNormed = b.input("last_normed", b.MaxLogits, cfg.HiddenSize)
	b.Logits = b.scratch("logits", b.MaxLogits*cfg.VocabSize)
	b.IDs = b.scratch("ids", b.MaxLogits)
	b.Draws = b.scratch("draws", 4*b.MaxLogits)
	b.Top = b.scratch("top", 2*TopK*b.MaxLogits)
	b.TopSums = b.scratch("top_sums", 2*b.MaxLogits)
	b.States = b.scratch("states", kernels.StateBytes/4*b.MaxSeqs)
	b.Stops = b.scratch("stops", kernels.MaxStops*b.MaxSeqs)
	b.Samplers = b.scratch("samplers", kernels.SamplerBytes/4*b.MaxSeqs)
	b.Ring = b.scratch("ring", kernels.RingSlots*b.MaxSeqs)
	b.ordered = map[int]gpu.Buffer{}
	b.mixtureBuffers()
}

// inputs makes the buffers that the host writes.
func (b *builder) inputs() {
	b.Step = b.buffer("step", 2*StepSlot, gpu.UsageUniform|gpu.UsageCopyDst)
	b.Tokens = b.buffer("tokens", 16*int64(max(b.MaxTokens, kernels.FusedRows)), gpu.UsageStorage|gpu.UsageUniform|gpu.UsageCopyDst)
	b.BlockTables = b.buffer("block_tables", 4*int64(b.MaxSeqs*b.Shape.MaxBlocksPerSeq), gpu.UsageStorage|gpu.UsageCopyDst)
	b.LogitRows = b.buffer("logit_rows", 4*int64(max(b.MaxLogits, kernels.FusedRows)), gpu.UsageStorage|gpu.UsageUniform|gpu.UsageCopyDst)
	positions := b.Shape.MaxBlocksPerSeq * blockSize
	b.ropeTable = b.buffer("rope_table", ropeTableBytes(b.cfg, positions), gpu.UsageStorage|gpu.UsageCopyDst)
	table := newRopeTable(b.cfg, b.set.Breathe)
	for from := 0; from < positions && b.err == nil; from += ropePiece {
		rows := table.rows(from, min(from+ropePiece, positions))
		b.err = b.dev.WriteBuffer(b.ropeTable, int64(from)*ropeTableBytes(b.cfg, 1), gpu.Bytes(rows))
	}
}

// leastBuffer is the size of the smallest buffer, in bytes: kernels read 16 at a time.
const leastBuffer = 16

// scratch is an activation buffer of n f32.
func (b *builder) scratch(label string, n int) gpu.Buffer {
	return b.buffer(label, 4*int64(n), gpu.UsageStorage|gpu.UsageCopySrc|gpu.UsageCopyDst)
}

// input is an activation buffer of rows rows of n f32 that linear layers read, some of them as a uniform.
func (b *builder) input(label string, rows, n int) gpu.Buffer {
	return b.buffer(label, inputBytes(rows, n), inputUsage)
}

const inputUsage = gpu.UsageStorage | gpu.UsageUniform | gpu.UsageCopySrc | gpu.UsageCopyDst

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
	if b.collect {
		b.calls = append(b.calls, call{emit: func() { b.add(op, err) }})
		return
	}
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
func (f *Forward) Release() { f.releaseFrom(0) }

// releaseFrom frees the buffers from the first on.
func (f *Forward) releaseFrom(first int) {
	for _, b := range f.buffers[first:] {
		b.Release()
	}
	f.buffers = f.buffers[:first]
}
