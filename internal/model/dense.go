package model

// dense is the trunk of the dense models: a pre-norm transformer with grouped queries, a rotary embedding and a SwiGLU MLP. In
// transformers' models/ they are
//
//	ernie4_5   as it stands here; the rotary embedding turns neighbouring pairs
//	llama      pairs half a head apart, and scaled frequencies for long contexts (rope.go)
//	qwen2      llama with biases in q, k and v
//	qwen3      llama with norms of each head of q and k before the rotary embedding
func (b *builder) dense(w *Weights, c *Cache) {
	b.embed(w.Embed, b.x)
	for i := range w.Layers {
		l := &w.Layers[i]
		b.selfAttention(l, c, i)
		b.rmsNorm(b.x, l.PostNorm, b.h)
		b.mlp(b.h, l.MLP, b.x)
	}
}

// selfAttention adds to the residual stream what layer i attends to.
func (b *builder) selfAttention(l *LayerWeights, c *Cache, i int) {
	b.rmsNorm(b.x, l.InputNorm, b.h)
	b.linear(b.h, l.QKV, b.qkv)
	if b.cfg.QKNorm {
		b.qkNorm(b.qkv, l.QNorm, l.KNorm)
	}
	b.rope(b.qkv)
	b.kvStore(b.qkv, c, i)
	b.attention(b.qkv, c, i, b.attn)
	b.linearAdd(b.attn, l.O, b.x)
}
