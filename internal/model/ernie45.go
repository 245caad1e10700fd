package model

// ernie45 is the trunk of a dense ERNIE-4.5 (transformers, models/ernie4_5): a pre-norm transformer with grouped queries, rotary
// embedding on neighbouring pairs, and a SwiGLU MLP.
func (b *builder) ernie45(w *Weights, c *Cache) {
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
