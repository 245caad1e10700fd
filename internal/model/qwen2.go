package model

// qwen2 is the trunk of a Qwen2 or Qwen2.5 (transformers, models/qwen2): Llama's, with biases in q, k and v.
func (b *builder) qwen2(w *Weights, c *Cache) {
	b.embed(w.Embed, b.x)
	for i, l := range w.Layers {
		b.rmsNorm(b.x, l.InputNorm, b.h)
		b.linear(b.h, l.QKV, b.qkv)
		b.rope(b.qkv)
		b.kvStore(b.qkv, c, i)
		b.attention(b.qkv, c, i, b.attn)
		b.linearAdd(b.attn, l.O, b.x)

		b.rmsNorm(b.x, l.PostNorm, b.h)
		b.mlp(b.h, l.MLP, b.x)
	}
}
