package model

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// rows is how many rows the ops under construction may run over.
func (b *builder) rows() int {
	if b.step.Offset == 0 {
		return b.MaxTokens
	}
	return b.MaxLogits
}

// qkvStride is the width of a row that holds q, k and v side by side.
func (b *builder) qkvStride() int { return (b.cfg.NumHeads + 2*b.cfg.NumKVHeads) * b.cfg.HeadDim }

func (b *builder) embed(table kernels.Weight, x gpu.Buffer) {
	b.add(b.set.Embed(kernels.EmbedArgs{Rows: b.rows(), Tokens: b.Tokens, Table: table, X: x, Step: b.step}))
}

func (b *builder) rmsNorm(x, weight, y gpu.Buffer) {
	b.add(b.set.RMSNorm(kernels.RMSNormArgs{
		Rows: b.rows(), Dim: b.cfg.HiddenSize, Eps: float32(b.cfg.RMSNormEps), X: x, Weight: weight, Y: y, Step: b.step,
	}))
}

func (b *builder) linear(x gpu.Buffer, w kernels.Weight, bias, y gpu.Buffer) {
	b.add(b.set.Linear(kernels.LinearArgs{Rows: b.rows(), X: x, UniformX: true, W: w, Bias: bias, Y: y, Step: b.step}))
}

// linearAdd adds to y: a linear layer and the residual connection around its block.
func (b *builder) linearAdd(x gpu.Buffer, w kernels.Weight, bias, y gpu.Buffer) {
	b.add(b.set.Linear(kernels.LinearArgs{Rows: b.rows(), X: x, UniformX: true, W: w, Bias: bias, Y: y, Add: true, Step: b.step}))
}

func (b *builder) ropeQK(qkv gpu.Buffer) {
	b.add(b.set.Rope(kernels.RopeArgs{
		Rows: b.rows(), Heads: b.cfg.NumHeads + b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
		Tokens: b.Tokens, Table: b.rope, QKV: qkv, Step: b.step,
	}))
}

func (b *builder) kvStore(qkv gpu.Buffer, c *Cache, layer int) {
	q := b.cfg.NumHeads * b.cfg.HeadDim
	b.add(b.set.KVStore(kernels.KVStoreArgs{
		Rows: b.rows(), KVHeads: b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
		KOffset: q, VOffset: q + b.cfg.NumKVHeads*b.cfg.HeadDim, KV: c.KV,
		Tokens: b.Tokens, QKV: qkv, KCache: c.K[layer], VCache: c.V[layer], Step: b.step,
	}))
}

func (b *builder) attention(qkv gpu.Buffer, c *Cache, layer int, out gpu.Buffer) {
	b.add(b.set.Attention(kernels.AttentionArgs{
		Rows: b.rows(), Heads: b.cfg.NumHeads, KVHeads: b.cfg.NumKVHeads, HeadDim: b.cfg.HeadDim, RowStride: b.qkvStride(),
		MaxBlocks: b.Shape.MaxBlocksPerSeq, KV: c.KV, Tokens: b.Tokens, BlockTables: b.BlockTables, QKV: qkv,
		KCache: c.K[layer], VCache: c.V[layer], Out: out, Step: b.step,
	}))
}

func (b *builder) siluMul(gateUp, out gpu.Buffer) {
	b.add(b.set.SiLUMul(kernels.SiLUMulArgs{Rows: b.rows(), Dim: b.cfg.IntermediateSize, GateUp: gateUp, Out: out, Step: b.step}))
}

func (b *builder) gatherRows(x, out gpu.Buffer) {
	b.add(b.set.GatherRows(kernels.GatherRowsArgs{Rows: b.rows(), Dim: b.cfg.HiddenSize, Index: b.LogitRows, X: x, Out: out, Step: b.step}))
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
