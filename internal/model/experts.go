package model

import (
	"context"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/weights"
)

// Experts are a mixture of experts on a device. Each stack has the matrices of all experts one below the other.
type Experts struct {
	Router     Linear         // [experts, hidden]
	Correction gpu.Buffer     // [experts] f32, for the choice of experts alone
	Gate, Up   kernels.Weight // [experts*size, hidden]
	Down       kernels.Weight // [experts*hidden, size]
	Shared     *MLP           // what every token passes, nil without
}

// experts loads the mixture of experts of one layer.
func (l *loader) experts(ctx context.Context, p string) (*Experts, error) {
	w, m := &Experts{}, l.cfg.MoE
	var err error
	if w.Router, err = l.linear(ctx, false, p+"gate"); err != nil {
		return nil, err
	}
	if w.Correction, err = l.vector(ctx, p+"moe_statics.e_score_correction_bias"); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		to   *kernels.Weight
		name string
		rows int
	}{{&w.Gate, "gate_proj", m.ExpertSize}, {&w.Up, "up_proj", m.ExpertSize}, {&w.Down, "down_proj", l.cfg.HiddenSize}} {
		names := make([]string, m.NumExperts)
		for e := range names {
			names[e] = fmt.Sprintf("%sexperts.%d.%s.weight", p, e, s.name)
			if err := l.inOrder(ctx, names[e]); err != nil {
				return nil, err
			}
		}
		if *s.to, err = l.stack(ctx, s.rows, names...); err != nil {
			return nil, err
		}
	}
	if m.SharedExpertSize == 0 {
		return w, nil
	}
	shared, err := l.mlp(ctx, p+"shared_experts.")
	w.Shared = &shared
	return w, err
}

// mixture are the buffers between the ops of a mixture of experts. A pair is a token and an expert that it is sent to.
type mixture struct {
	routing gpu.Buffer // [MaxTokens, experts] f32: what the router says
	chosen  gpu.Buffer // [MaxTokens, topK] u32: the experts of each token
	shares  gpu.Buffer // [MaxTokens, topK] f32: how much each counts
	groups  gpu.Buffer // pairs by expert, see kernels.GroupWords
	gateUp  gpu.Buffer // [MaxTokens, 2, topK, size] f32: gates of a token's experts, then ups
	act     gpu.Buffer // [MaxTokens, topK, size] f32: silu(gate)*up
	found   gpu.Buffer // [MaxTokens, topK, hidden] f32: outputs of the experts
}

// mixtureWords are the sizes of these buffers in words, in their order.
func mixtureWords(cfg *weights.Config, tokens int) [7]int {
	m := cfg.MoE
	pairs := tokens * m.TopK
	return [7]int{
		tokens * m.NumExperts, pairs, pairs, kernels.GroupWords(tokens, m.NumExperts, m.TopK),
		2 * pairs * m.ExpertSize, pairs * m.ExpertSize, pairs * cfg.HiddenSize,
	}
}

func (b *builder) mixtureBuffers() {
	if b.cfg.MoE == nil {
		return
	}
	n, m := mixtureWords(b.cfg, b.MaxTokens), &b.mixture
	for i, buf := range []struct {
		label string
		to    *gpu.Buffer
	}{
		{"routing", &m.routing},
		{"chosen", &m.chosen},
		{"shares", &m.shares},
		{"groups", &m.groups},
		{"experts gate_up", &m.gateUp},
		{"experts act", &m.act},
		{"experts found", &m.found},
	} {
		*buf.to = b.scratch(buf.label, n[i])
	}
}

// route chooses the experts of each token.
func (b *builder) route(x gpu.Buffer, e *Experts) {
	m := b.cfg.MoE
	b.linear(x, e.Router, b.mixture.routing)
	b.add(b.set.Route(kernels.RouteArgs{
		Rows: b.rows(), Experts: m.NumExperts, TopK: m.TopK, NormMin: float32(m.NormMin), Logits: b.mixture.routing, Bias: e.Correction,
		Chosen: b.mixture.chosen, Shares: b.mixture.shares, Step: b.step,
	}))
	b.add(b.set.GroupExperts(kernels.GroupExpertsArgs{
		Rows: b.rows(), Experts: m.NumExperts, TopK: m.TopK, Chosen: b.mixture.chosen, Groups: b.mixture.groups, Step: b.step,
	}))
}

// experts adds to y what the chosen experts make of x, by their shares: sum of share * down(silu(gate(x)) * up(x)).
func (b *builder) experts(x gpu.Buffer, e *Experts, y gpu.Buffer) {
	m, mix := b.cfg.MoE, &b.mixture
	width := m.TopK * m.ExpertSize
	linear := func(a kernels.ExpertLinearArgs) {
		a.Rows, a.Experts, a.TopK, a.Chosen, a.Groups, a.Step = b.rows(), m.NumExperts, m.TopK, mix.chosen, mix.groups, b.step
		b.add(b.set.ExpertLinear(a))
	}
	linear(kernels.ExpertLinearArgs{X: x, W: e.Gate, Y: mix.gateUp, YStride: 2 * width})
	linear(kernels.ExpertLinearArgs{X: x, W: e.Up, Y: mix.gateUp, YStride: 2 * width, YOffset: width})
	b.siluMul(mix.gateUp, width, mix.act)
	linear(kernels.ExpertLinearArgs{
		X: mix.act, XStride: width, XSlot: m.ExpertSize, W: e.Down, Y: mix.found, YStride: m.TopK * b.cfg.HiddenSize,
	})
	b.add(b.set.CombineExperts(kernels.CombineExpertsArgs{
		Rows: b.rows(), TopK: m.TopK, Dim: b.cfg.HiddenSize, Shares: mix.shares, Parts: mix.found, Y: y, Step: b.step,
	}))
}
