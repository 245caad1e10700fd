package model

// llama is the trunk of a Llama (transformers, models/llama): ERNIE-4.5's, but that the rotary embedding turns pairs half a head
// apart, and that long contexts scale its frequencies (rope.go).
func (b *builder) llama(w *Weights, c *Cache) {
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
