package model

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// rows is how many rows the ops under construction may run over.
func (b *builder) rows() int {
	rows := b.MaxLogits
	if b.step.Offset == 0 {
		rows = b.MaxTokens
	}
	if b.ops == &b.few || b.ops == &b.fewShort || b.ops == &b.fewLong || b.ops == &b.fewHead {
		rows = min(rows, kernels.FusedRows)
	}
	return rows
}

// qkvStride is the width of a row that holds q, k and v side by side.
func (b *builder) qkvStride() int { return (b.cfg.NumHeads + 2*b.cfg.NumKVHeads) * b.cfg.HeadDim }

func (b *builder) embed(table kernels.Weight, x gpu.Buffer) {
	b.do(call{reads: b.Tokens, writes: x, emit: func() {
		b.add(b.set.Embed(kernels.EmbedArgs{Rows: b.rows(), Tokens: b.Tokens, Table: table, X: x, Step: b.step}))
	}})
}

func (b *builder) rmsNorm(x, weight, y gpu.Buffer) {
	b.do(call{what: callNorm, reads: x, writes: y, x: x, weight: weight, emit: func() {
		b.add(b.set.RMSNorm(kernels.RMSNormArgs{
			Rows: b.rows(), Dim: b.cfg.HiddenSize, Eps: float32(b.cfg.RMSNormEps), X: x, Weight: weight, Y: y, Step: b.step,
		}))
	}})
}

func (b *builder) linear(x gpu.Buffer, l Linear, y gpu.Buffer) { b.linearOf(x, l, y, false) }

// linearAdd adds to y: a linear layer and the residual connection around its block.
func (b *builder) linearAdd(x gpu.Buffer, l Linear, y gpu.Buffer) { b.linearOf(x, l, y, true) }

func (b *builder) linearOf(x gpu.Buffer, l Linear, y gpu.Buffer, add bool) {
	c := call{what: callLinear, reads: x, x: x, y: y, linear: l, add: add, emit: func() { b.plainLinear(x, l, y, add) }}
	if !add {
		c.writes = y
	}
	b.do(c)
}

// plainLinear makes the ops of a linear layer alone.
func (b *builder) plainLinear(x gpu.Buffer, l Linear, y gpu.Buffer, add bool) {
	b.tap(x, l)
	for _, p := range l.Pieces {
		in := x
		if p.Order != nil {
			in = b.gatherColumns(x, p.Order, l.K)
		}
		b.add(b.set.Linear(kernels.LinearArgs{
			Rows: b.rows(), X: in, UniformX: true, W: p.W, Bias: l.Bias, Y: y, YStride: l.rows(), YOffset: p.Row0, Add: add, Step: b.step,
		}))
	}
}

// tap notes where the linear layer reads whose op is made next.
func (b *builder) tap(x gpu.Buffer, l Linear) {
	if b.ops == &b.Trunk {
		b.Taps = append(b.Taps, Tap{Op: len(b.Trunk), X: x, K: l.K, Names: l.Names})
	}
}

// gatherColumns is x with its k columns in another order.
func (b *builder) gatherColumns(x, order gpu.Buffer, k int) gpu.Buffer {
	out, ok := b.ordered[k]
	if !ok {
		out = b.input(fmt.Sprintf("ordered %d", k), max(b.MaxTokens, b.MaxLogits), k)
		b.ordered[k] = out
	}
	b.add(b.set.GatherColumns(kernels.GatherColumnsArgs{Rows: b.rows(), K: k, Order: order, X: x, Out: out, Step: b.step}))
	return out
}

func (b *builder) qkNorm(qkv, q, k gpu.Buffer) {
	b.do(call{reads: qkv, emit: func() {
		b.add(b.set.QKNorm(kernels.QKNormArgs{
			Rows: b.rows(), Heads: b.cfg.NumHeads, KVHeads: b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
			Eps: float32(b.cfg.RMSNormEps), QWeight: q, KWeight: k, QKV: qkv, Step: b.step,
		}))
	}})
}

func (b *builder) rope(qkv gpu.Buffer) {
	b.do(call{what: callRope, reads: qkv, emit: func() {
		b.add(b.set.Rope(kernels.RopeArgs{
			Rows: b.rows(), Heads: b.cfg.NumHeads + b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
			HalfSplit: b.cfg.RopeHalfSplit, Tokens: b.Tokens, Table: b.ropeTable, QKV: qkv, Step: b.step,
		}))
	}})
}

// mlp adds a SwiGLU layer of x to y: down(silu(gate(x)) * up(x)).
func (b *builder) mlp(x gpu.Buffer, m MLP, y gpu.Buffer) {
	b.linear(x, m.GateUp, b.gateUp)
	b.siluMul(b.gateUp, m.Down.K, b.act)
	b.linearAdd(b.act, m.Down, y)
}

func (b *builder) kvStore(qkv gpu.Buffer, c *Cache, layer int) {
	q := b.cfg.NumHeads * b.cfg.HeadDim
	b.do(call{what: callStore, reads: qkv, cache: c, layer: layer, emit: func() {
		b.add(b.set.KVStore(kernels.KVStoreArgs{
			Rows: b.rows(), KVHeads: b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
			KOffset: q, VOffset: q + b.cfg.NumKVHeads*b.cfg.HeadDim, KV: c.KV,
			Tokens: b.Tokens, QKV: qkv, KCache: c.K[layer], VCache: c.V[layer], Step: b.step,
		}))
	}})
}

func (b *builder) attention(qkv gpu.Buffer, c *Cache, layer int, out gpu.Buffer) {
	args := kernels.AttentionArgs{
		Rows: b.rows(), Heads: b.cfg.NumHeads, KVHeads: b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
		MaxBlocks: b.Shape.MaxBlocksPerSeq, KV: c.KV, Tokens: b.Tokens, BlockTables: b.BlockTables, QKV: qkv,
		KCache: c.K[layer], VCache: c.V[layer], Out: out, Step: b.step,
	}
	b.do(call{what: callAttention, reads: qkv, writes: out, attend: args, emit: func() { b.add(b.set.Attention(args)) }})
}

func (b *builder) siluMul(gateUp gpu.Buffer, dim int, out gpu.Buffer) {
	b.do(call{what: callGate, reads: gateUp, writes: out, emit: func() {
		b.add(b.set.SiLUMul(kernels.SiLUMulArgs{Rows: b.rows(), Dim: dim, GateUp: gateUp, Out: out, Step: b.step}))
	}})
}

func (b *builder) gatherRows(x, out gpu.Buffer) {
	b.do(call{reads: x, writes: out, emit: func() {
		b.add(b.set.GatherRows(kernels.GatherRowsArgs{Rows: b.rows(), Dim: b.cfg.HiddenSize, Index: b.LogitRows, X: x, Out: out, Step: b.step}))
	}})
}

func (b *builder) argmax(logits, ids gpu.Buffer) {
	b.add(b.set.Argmax(kernels.ArgmaxArgs{Rows: b.rows(), Vocab: b.cfg.VocabSize, Limit: b.NumTokens, Logits: logits, IDs: ids, Step: b.step}))
}

func (b *builder) topK(logits gpu.Buffer) {
	b.add(b.set.TopK(kernels.TopKArgs{
		Rows: b.rows(), Vocab: b.cfg.VocabSize, Limit: b.NumTokens, K: TopK, Logits: logits, Draws: b.Draws, Top: b.Top, Sums: b.TopSums,
		Step: b.step,
	}))
}

// pickNext chooses the best ids and makes the next step of them.
func (b *builder) pickNext() {
	next := b.advance()
	b.add(b.set.Argmax(kernels.ArgmaxArgs{
		Rows: b.MaxSeqs, Vocab: b.cfg.VocabSize, Limit: b.NumTokens, Logits: b.Logits, IDs: b.IDs, Advance: &next, Step: b.step,
	}))
}

// sampleNext draws ids and makes the next step of them. again is what it looks at a second time for rows with top_p, or nil.
func (b *builder) sampleNext(again gpu.Buffer) {
	b.add(b.set.TopK(kernels.TopKArgs{
		Rows: b.MaxSeqs, Vocab: b.cfg.VocabSize, Limit: b.NumTokens, K: TopK, Logits: b.Logits, Draws: b.Draws, Top: b.Top, Sums: b.TopSums,
		Step: b.step,
	}))
	b.add(b.set.Sample(kernels.SampleArgs{
		Rows: b.MaxSeqs, K: TopK, Limit: b.limit(), Top: b.Top, Sums: b.TopSums, Samplers: b.Samplers, Draws: b.Draws, IDs: b.IDs,
		Logits: again, Vocab: b.cfg.VocabSize, Step: b.step,
	}))
	b.add(b.set.Advance(b.advance()))
}

// limit is the number of ids that can be chosen.
func (b *builder) limit() int {
	if b.NumTokens > 0 {
		return b.NumTokens
	}
	return b.cfg.VocabSize
}

func (b *builder) advance() kernels.AdvanceArgs {
	return kernels.AdvanceArgs{
		Rows: b.MaxSeqs, MaxBlocks: b.Shape.MaxBlocksPerSeq, RingRows: b.MaxSeqs, IDs: b.IDs, States: b.States, Stops: b.Stops,
		BlockTables: b.BlockTables, Tokens: b.Tokens, Ring: b.Ring, Counts: b.counts, Vocab: b.cfg.VocabSize, Step: b.step,
	}
}
