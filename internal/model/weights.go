// Package model builds the forward pass of each architecture out of kernels, and puts its weights on the device.
//
// It knows nothing of scheduling, sampling or text.
package model

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Weights are a model's on a device.
type Weights struct {
	Embed     kernels.Weight // [vocab, hidden]
	Layers    []LayerWeights
	FinalNorm gpu.Buffer // [hidden] f32
	LMHead    Linear     // [vocab, hidden]; over the same matrix as Embed when tied

	Bytes   int64                  // uploaded so far
	formats map[quant.Format]int64 // bytes by format
	buffers []gpu.Buffer
	loader  *loader // what is left to upload; nil when nothing is
}

// LayerWeights are those of one transformer block.
type LayerWeights struct {
	InputNorm    gpu.Buffer // [hidden] f32
	QKV          Linear     // [(heads + 2*kvHeads)*headDim, hidden]: q, k and v stacked
	QNorm, KNorm gpu.Buffer // [headDim] f32, of each head of q and of k; nil without
	O            Linear     // [hidden, heads*headDim]
	PostNorm     gpu.Buffer // [hidden] f32
	MLP          MLP        // of layers that are no mixture of experts
	Experts      *Experts   // of those that are, else nil
}

// MLP is a SwiGLU layer.
type MLP struct {
	GateUp Linear // [2*intermediate, hidden]: gate and up stacked
	Down   Linear // [hidden, intermediate]
}

// LoadWeights puts a source's weights on a device. report is called as bytes arrive. When it fails nothing stays allocated.
func LoadWeights(ctx context.Context, dev gpu.Device, src weights.Source, report func(done int64, name string)) (*Weights, error) {
	w, err := NewWeights(ctx, dev, src, report)
	if err != nil {
		return nil, err
	}
	if err := w.Upload(ctx); err != nil {
		w.Release()
		return nil, err
	}
	return w, nil
}

// NewWeights makes the buffers of a source's weights, so that ops can be built over them while Upload fills them. report is called
// as bytes arrive. When it fails nothing stays allocated.
func NewWeights(ctx context.Context, dev gpu.Device, src weights.Source, report func(done int64, name string)) (_ *Weights, err error) {
	cfg := src.Config()
	l := &loader{dev: dev, src: src, cfg: cfg, formats: map[quant.Format]int64{}, report: report}
	w := &Weights{formats: l.formats, loader: l}
	defer func() {
		w.buffers = l.buffers
		if err != nil {
			w.Release()
		}
	}()
	const embed = "model.embed_tokens.weight"
	if err = l.inOrder(ctx, embed); err != nil {
		return nil, err
	}
	if w.Embed, err = l.matrix(ctx, embed); err != nil {
		return nil, err
	}
	for i := range cfg.NumLayers {
		lw, err := l.layer(ctx, i)
		if err != nil {
			return nil, err
		}
		w.Layers = append(w.Layers, lw)
	}
	if w.FinalNorm, err = l.vector(ctx, "model.norm.weight"); err != nil {
		return nil, err
	}
	if cfg.TieEmbeddings {
		w.LMHead = Linear{K: w.Embed.K, Pieces: []Piece{{W: w.Embed}}}
		return w, nil
	}
	w.LMHead, err = l.linear(ctx, false, "lm_head")
	return w, err
}

// Upload fills the buffers, in the order in which the source has them.
func (w *Weights) Upload(ctx context.Context) error {
	l := w.loader
	w.loader = nil
	for i, fill := range l.pending {
		if err := fill(ctx); err != nil {
			return err
		}
		l.pending[i] = nil
	}
	w.Bytes = l.loaded
	return nil
}

// layer loads one transformer block.
func (l *loader) layer(ctx context.Context, index int) (w LayerWeights, err error) {
	c, p := l.cfg, fmt.Sprintf("model.layers.%d.", index)
	vector := func(dst *gpu.Buffer, name string) {
		if err == nil {
			*dst, err = l.vector(ctx, p+name+".weight")
		}
	}
	vector(&w.InputNorm, "input_layernorm")
	if err == nil {
		w.QKV, err = l.linear(ctx, c.UseBias || c.QKVBias, p+"self_attn.q_proj", p+"self_attn.k_proj", p+"self_attn.v_proj")
	}
	if c.QKNorm {
		vector(&w.QNorm, "self_attn.q_norm")
		vector(&w.KNorm, "self_attn.k_norm")
	}
	if err == nil {
		w.O, err = l.linear(ctx, c.UseBias, p+"self_attn.o_proj")
	}
	vector(&w.PostNorm, "post_attention_layernorm")
	if err == nil {
		if c.Sparse(index) {
			w.Experts, err = l.experts(ctx, p+"mlp.")
		} else {
			w.MLP, err = l.mlp(ctx, p+"mlp.")
		}
	}
	return w, err
}

func (l *loader) mlp(ctx context.Context, p string) (w MLP, err error) {
	if w.GateUp, err = l.linear(ctx, l.cfg.UseBias, p+"gate_proj", p+"up_proj"); err == nil {
		w.Down, err = l.linear(ctx, l.cfg.UseBias, p+"down_proj")
	}
	return w, err
}

// Formats names the formats of the matrices, the one with the most bytes first.
func (w *Weights) Formats() string {
	var fs []quant.Format
	for f := range w.formats {
		fs = append(fs, f)
	}
	slices.SortFunc(fs, func(a, b quant.Format) int {
		return cmp.Or(cmp.Compare(w.formats[b], w.formats[a]), cmp.Compare(a.String(), b.String()))
	})
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.String()
	}
	return strings.Join(names, ", ")
}

// Release frees the weights.
func (w *Weights) Release() {
	for _, b := range w.buffers {
		b.Release()
	}
	w.buffers = nil
}
