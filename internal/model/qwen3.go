package model

// qwen3 is the trunk of a dense Qwen3 (transformers, models/qwen3): Llama's, with norms of each head of q and k before the rotary
// embedding.
func (b *builder) qwen3(w *Weights, c *Cache) {
	b.embed(w.Embed, b.x)
	for i, l := range w.Layers {
		b.rmsNorm(b.x, l.InputNorm, b.h)
		b.linear(b.h, l.QKV, b.qkv)
		b.qkNorm(b.qkv, l.QNorm, l.KNorm)
		b.rope(b.qkv)
		b.kvStore(b.qkv, c, i)
		b.attention(b.qkv, c, i, b.attn)
		b.linearAdd(b.attn, l.O, b.x)

		b.rmsNorm(b.x, l.PostNorm, b.h)
		b.mlp(b.h, l.MLP, b.x)
	}
}
