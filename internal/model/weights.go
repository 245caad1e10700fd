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

// Weights are a dense ERNIE-4.5 on a device. Biases are nil where the model has none.
type Weights struct {
	Embed     kernels.Weight // [vocab, hidden]
	Layers    []LayerWeights
	FinalNorm gpu.Buffer     // [hidden] f32
	LMHead    kernels.Weight // [vocab, hidden]; the same as Embed when tied

	Bytes      int64 // on the device
	Parameters int64
	formats    map[quant.Format]int64 // bytes by format
	buffers    []gpu.Buffer
}

// LayerWeights are those of one transformer block.
type LayerWeights struct {
	InputNorm  gpu.Buffer     // [hidden] f32
	QKV        kernels.Weight // [(heads + 2*kvHeads)*headDim, hidden]: q, k and v stacked
	QKVBias    gpu.Buffer     // [(heads + 2*kvHeads)*headDim] f32
	O          kernels.Weight // [hidden, heads*headDim]
	OBias      gpu.Buffer     // [hidden] f32
	PostNorm   gpu.Buffer     // [hidden] f32
	GateUp     kernels.Weight // [2*intermediate, hidden]: gate and up stacked
	GateUpBias gpu.Buffer     // [2*intermediate] f32
	Down       kernels.Weight // [hidden, intermediate]
	DownBias   gpu.Buffer     // [hidden] f32
}

// LoadWeights puts a source's weights on a device. report is called as bytes arrive. When it fails nothing stays allocated.
func LoadWeights(ctx context.Context, dev gpu.Device, src weights.Source, report func(done int64, name string)) (_ *Weights, err error) {
	cfg := src.Config()
	l := &loader{dev: dev, src: src, formats: map[quant.Format]int64{}, report: report}
	w := &Weights{formats: l.formats}
	defer func() {
		w.buffers, w.Bytes = l.buffers, l.loaded
		if err != nil {
			w.Release()
		}
	}()
	if w.Embed, err = l.matrix(ctx, "model.embed_tokens.weight"); err != nil {
		return nil, err
	}
	w.Parameters = int64(w.Embed.Rows) * int64(w.Embed.K)
	for i := range cfg.NumLayers {
		lw, err := l.layer(ctx, fmt.Sprintf("model.layers.%d.", i), cfg.UseBias)
		if err != nil {
			return nil, err
		}
		w.Layers = append(w.Layers, lw)
		for _, m := range []kernels.Weight{lw.QKV, lw.O, lw.GateUp, lw.Down} {
			w.Parameters += int64(m.Rows) * int64(m.K)
		}
		w.Parameters += 2 * int64(cfg.HiddenSize)
	}
	if w.FinalNorm, err = l.vector(ctx, "model.norm.weight"); err != nil {
		return nil, err
	}
	w.Parameters += int64(cfg.HiddenSize)
	if cfg.TieEmbeddings {
		w.LMHead = w.Embed
		return w, nil
	}
	if w.LMHead, err = l.matrix(ctx, "lm_head.weight"); err != nil {
		return nil, err
	}
	w.Parameters += int64(w.LMHead.Rows) * int64(w.LMHead.K)
	return w, nil
}

// layer loads one transformer block.
func (l *loader) layer(ctx context.Context, prefix string, bias bool) (w LayerWeights, err error) {
	vector := func(dst *gpu.Buffer, names ...string) {
		if err == nil {
			*dst, err = l.vector(ctx, prefixed(prefix, names, ".weight")...)
		}
	}
	linear := func(dst *kernels.Weight, dstBias *gpu.Buffer, names ...string) {
		if err == nil {
			*dst, err = l.matrix(ctx, prefixed(prefix, names, ".weight")...)
		}
		if err == nil && bias {
			*dstBias, err = l.vector(ctx, prefixed(prefix, names, ".bias")...)
		}
	}
	vector(&w.InputNorm, "input_layernorm")
	linear(&w.QKV, &w.QKVBias, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
	linear(&w.O, &w.OBias, "self_attn.o_proj")
	vector(&w.PostNorm, "post_attention_layernorm")
	linear(&w.GateUp, &w.GateUpBias, "mlp.gate_proj", "mlp.up_proj")
	linear(&w.Down, &w.DownBias, "mlp.down_proj")
	return w, err
}

func prefixed(prefix string, names []string, suffix string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = prefix + n + suffix
	}
	return out
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
