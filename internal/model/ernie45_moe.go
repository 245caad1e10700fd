package model

// ernie45MoE is the trunk of an ERNIE-4.5 with mixtures of experts (transformers, models/ernie4_5_moe): the dense model's, where
// all but some layers send each token to a few of many small MLPs, and to one shared by all.
func (b *builder) ernie45MoE(w *Weights, c *Cache) {
	b.embed(w.Embed, b.x)
	for i := range w.Layers {
		l := &w.Layers[i]
		b.selfAttention(l, c, i)
		b.rmsNorm(b.x, l.PostNorm, b.h)
		if l.Experts == nil {
			b.mlp(b.h, l.MLP, b.x)
			continue
		}
		b.route(b.h, l.Experts)
		b.experts(b.h, l.Experts, b.x)
		if l.Experts.Shared != nil {
			b.mlp(b.h, *l.Experts.Shared, b.x)
		}
	}
}
