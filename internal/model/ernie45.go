package model

// dense is the forward pass of a dense ERNIE-4.5 (transformers, models/ernie4_5): a pre-norm transformer with grouped
// queries, rotary embedding on interleaved pairs, and a SwiGLU MLP.
func (b *builder) dense(w *Weights, c *Cache) {
	cfg := b.cfg
	q, kv := cfg.NumHeads*cfg.HeadDim, cfg.NumKVHeads*cfg.HeadDim
	x := b.scratch("x", b.MaxTokens*cfg.HiddenSize)                    // residual stream
	h := b.input("h", b.MaxTokens, cfg.HiddenSize)                     // normed
	qkv := b.scratch("qkv", b.MaxTokens*(q+2*kv))                      // q, k, v side by side
	attn := b.input("attn", b.MaxTokens, q)                            // heads' outputs
	gateUp := b.scratch("gate_up", b.MaxTokens*2*cfg.IntermediateSize) // gate, up side by side
	act := b.input("act", b.MaxTokens, cfg.IntermediateSize)           // silu(gate)*up
	last := b.scratch("last", b.MaxLogits*cfg.HiddenSize)              // rows that want logits
	lastNormed := b.input("last_normed", b.MaxLogits, cfg.HiddenSize)
	b.Logits = b.scratch("logits", b.MaxLogits*cfg.VocabSize)
	b.IDs = b.scratch("ids", b.MaxLogits)
	b.Draws = b.scratch("draws", 4*b.MaxLogits)
	b.Top = b.scratch("top", 2*TopK*b.MaxLogits)
	b.TopSums = b.scratch("top_sums", 2*b.MaxLogits)
	if b.err != nil {
		return
	}

	b.over(&b.Trunk, 0)
	b.embed(w.Embed, x)
	for i, l := range w.Layers {
		b.rmsNorm(x, l.InputNorm, h)
		b.linear(h, l.QKV, l.QKVBias, qkv)
		b.ropeQK(qkv)
		b.kvStore(qkv, c, i)
		b.attention(qkv, c, i, attn)
		b.linearAdd(attn, l.O, l.OBias, x)

		b.rmsNorm(x, l.PostNorm, h)
		b.linear(h, l.GateUp, l.GateUpBias, gateUp)
		b.siluMul(gateUp, act)
		b.linearAdd(act, l.Down, l.DownBias, x)
	}

	b.over(&b.Head, 1)
	b.gatherRows(x, last)
	b.rmsNorm(last, w.FinalNorm, lastNormed)
	b.linear(lastNormed, w.LMHead, nil, b.Logits)

	b.over(&b.Pick, 1)
	b.argmax(b.Logits, b.IDs)

	b.over(&b.Select, 1)
	b.topK(b.Logits)
}
