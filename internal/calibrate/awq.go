package calibrate

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Fold is what scaling came to for matrices that share an input.
type Fold struct {
	Readers       []string // the matrices whose columns were to be multiplied
	Scaled        bool     // whether factors were found that help
	Before, After float64  // what the matrices lose on calibration text, see quant.Channels
}

// fold is a place where the inputs of matrices can be divided by factors: what makes them can be divided instead.
type fold struct {
	readers []string
	rows    []string // tensors whose rows, or elements, make the inputs
	repeat  int      // how many inputs in a run of blocks each row makes, see repeatHeads; 1 for one
}

// folds lists those of a layer.
func folds(c *weights.Config, layer int) []fold {
	p := "model.layers." + strconv.Itoa(layer) + "."
	w := func(names ...string) []string {
		for i, n := range names {
			names[i] = p + n + ".weight"
		}
		return names
	}
	value, up := w("self_attn.v_proj"), w("mlp.up_proj")
	if c.UseBias || c.QKVBias {
		value = append(value, p+"self_attn.v_proj.bias")
	}
	if c.UseBias {
		up = append(up, p+"mlp.up_proj.bias")
	}
	out := []fold{
		{w("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), w("input_layernorm"), 1},
		{w("self_attn.o_proj"), value, c.NumHeads / c.NumKVHeads},
	}
	if c.Sparse(layer) { // the router and every expert read the same input: it stays as it is
		return out
	}
	return append(out,
		fold{w("mlp.gate_proj", "mlp.up_proj"), w("post_attention_layernorm"), 1},
		fold{w("mlp.down_proj"), up, 1},
	)
}

// Channels searches factors for the channels of one layer, as AWQ does, and adds them to the scaling: the columns of matrices are
// multiplied, and what makes their inputs, the norm before them or the rows of v and up, is divided. format says what a matrix
// becomes; its second result is false for one that keeps its format, and nothing that touches it is scaled.
func Channels(ctx context.Context, src weights.Source, layer int, moments map[string]*Moment, format func(name string) (quant.Format, bool), by *weights.Scaling) ([]Fold, error) {
	c := src.Config()
	var report []Fold
	for _, f := range folds(c, layer) {
		m := moments[f.readers[0]]
		if m == nil || !searchable(f, format) {
			continue
		}
		metric, err := m.Metric()
		if err != nil {
			return nil, fmt.Errorf("calibrate: %s: %w", f.readers[0], err)
		}
		var matrices []quant.Matrix
		for _, name := range f.readers {
			to, _ := format(name)
			info, err := src.Info(name)
			if err != nil {
				return nil, err
			}
			w, err := weights.Floats(ctx, src, name, 0, info.Rows)
			if err != nil {
				return nil, err
			}
			matrices = append(matrices, quant.Matrix{W: w, Format: to})
		}
		magnitude := m.Magnitude
		if f.repeat > 1 {
			magnitude = repeatHeads(meanHeads(magnitude, c.HeadDim, f.repeat), c.HeadDim, f.repeat)
		}
		factors, before, after, err := quant.Channels(matrices, magnitude, metric)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %s: %w", f.readers[0], err)
		}
		report = append(report, Fold{Readers: f.readers, Scaled: factors != nil, Before: before, After: after})
		if factors != nil {
			apply(by, f, factors, c.HeadDim)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// searchable says whether all matrices that a fold touches are to be searched for: others would be widened for nothing.
func searchable(f fold, format func(name string) (quant.Format, bool)) bool {
	for _, name := range append(append([]string(nil), f.readers...), f.rows...) {
		if to, ok := format(name); isMatrix(name) && (!ok || !quant.Searched(to)) {
			return false
		}
	}
	return true
}

// isMatrix tells matrices from norms and biases.
func isMatrix(name string) bool {
	const end = "_proj.weight"
	return len(name) > len(end) && name[len(name)-len(end):] == end
}

// apply adds a fold's factors to a scaling.
func apply(by *weights.Scaling, f fold, factors []float32, headDim int) {
	for _, name := range f.readers {
		multiply(&by.Columns, name, factors)
	}
	inverse := make([]float32, len(factors))
	for i, v := range factors {
		inverse[i] = 1 / v
	}
	if f.repeat > 1 {
		inverse = firstHeads(inverse, headDim, f.repeat)
	}
	for _, name := range f.rows {
		multiply(&by.Rows, name, inverse)
	}
}

func multiply(to *map[string][]float32, name string, factors []float32) {
	if *to == nil {
		*to = map[string][]float32{}
	}
	(*to)[name] = factors
}

// Query heads share heads of keys and values: the attention's output has, for each KV head, repeat blocks of headDim, all made of the
// same rows of v.

// meanHeads is the mean over the blocks of each KV head.
func meanHeads(x []float64, headDim, repeat int) []float64 {
	out := make([]float64, len(x)/repeat)
	for i, v := range x {
		out[i/(headDim*repeat)*headDim+i%headDim] += v / float64(repeat)
	}
	return out
}

// repeatHeads gives every block what its KV head has.
func repeatHeads(x []float64, headDim, repeat int) []float64 {
	out := make([]float64, len(x)*repeat)
	for i := range out {
		out[i] = x[i/(headDim*repeat)*headDim+i%headDim]
	}
	return out
}

// firstHeads takes the first block of each KV head.
func firstHeads(x []float32, headDim, repeat int) []float32 {
	out := make([]float32, len(x)/repeat)
	for i := range out {
		out[i] = x[i/headDim*headDim*repeat+i%headDim]
	}
	return out
}
