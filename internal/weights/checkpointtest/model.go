package checkpointtest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing/fstest"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Layout is a tool's layout, for whole models.
type Layout struct {
	Method string // awq, gptq, gptq_v2, compressed-tensors (pack-quantized), int-quantized, fp8 (in blocks of Group)
	Options
}

// Config is the layout's quantization_config.
func (l Layout) Config() map[string]any {
	group := l.Group
	if group == 0 {
		group = -1
	}
	switch l.Method {
	case "awq":
		return map[string]any{"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": true, "version": "gemm"}
	case "gptq", "gptq_v2":
		return map[string]any{
			"quant_method": "gptq", "bits": l.Bits, "group_size": group, "sym": l.Sym, "desc_act": l.Spread, "checkpoint_format": l.Method,
		}
	}
	if l.Method == "fp8" {
		return map[string]any{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": []int{l.Group, l.Group}}
	}
	strategy := "group"
	if group == -1 {
		strategy = "channel"
	}
	format := "pack-quantized"
	if l.Method != "compressed-tensors" {
		format = l.Method
	}
	return map[string]any{
		"quant_method": "compressed-tensors", "format": format, "ignore": []string{"lm_head"},
		"config_groups": map[string]any{"group_0": map[string]any{
			"targets": []string{"Linear"},
			"weights": map[string]any{"num_bits": l.Bits, "type": "int", "symmetric": l.Sym, "strategy": strategy, "group_size": l.Group},
		}},
	}
}

// Weights is a quantized matrix.
type Weights interface {
	// At is the weight of an output and an input.
	At(row, col int) float32
}

// Module quantizes the weights [rows, k] of a module and gives its tensors.
func (l Layout) Module(w []float32, k int, module string) (Weights, []Tensor) {
	if l.Method == "fp8" {
		m := QuantizeFloats(w, k, l.Group)
		return m, m.FP8(module)
	}
	m := Quantize(w, k, l.Options)
	switch l.Method {
	case "awq":
		return m, m.AWQ(module)
	case "gptq":
		return m, m.GPTQ(module, false)
	case "gptq_v2":
		return m, m.GPTQ(module, true)
	case "compressed-tensors":
		return m, m.Packed(module, l.Sym, l.Spread)
	case "int-quantized":
		return m, m.Bytes(module, l.Sym)
	}
	panic("BUG: unknown layout " + l.Method)
}

// Model quantizes the linear layers of a model of floats and gives the checkpoint's files. Embedding, LM head, norms and
// biases stay as they are. Each quantized matrix goes to keep, which may be nil.
func Model(ctx context.Context, src weights.Source, l Layout, keep func(name string, m Weights)) (fstest.MapFS, error) {
	tensors, err := ModelTensors(ctx, src, l, keep)
	if err != nil {
		return nil, err
	}
	return Files(src.Config(), l.Config(), tensors)
}

// Files are config.json and model.safetensors.
func Files(c *weights.Config, quantization any, tensors []Tensor) (fstest.MapFS, error) {
	config, err := Config(c, quantization)
	if err != nil {
		return nil, err
	}
	return fstest.MapFS{"config.json": {Data: config}, "model.safetensors": {Data: Safetensors(tensors)}}, nil
}

// ModelTensors are the tensors of Model.
func ModelTensors(ctx context.Context, src weights.Source, l Layout, keep func(name string, m Weights)) ([]Tensor, error) {
	var tensors []Tensor
	for _, s := range weights.Tensors(src.Config()) {
		info, err := src.Info(s.Name)
		if err != nil {
			return nil, err
		}
		rows, err := src.Rows(ctx, s.Name, 0, s.Rows)
		if err != nil {
			return nil, err
		}
		raw, err := rows.Data.Load(nil)
		if err != nil {
			return nil, err
		}
		module, ok := strings.CutSuffix(s.Name, "_proj.weight")
		if !ok {
			shape := []int{s.Rows, s.K}
			if s.Vector {
				shape = shape[1:]
			}
			tensors = append(tensors, Tensor{s.Name, strings.ToUpper(info.Format.String()), shape, append([]byte(nil), raw...)})
			continue
		}
		m, parts := l.Module(Floats(info.Format.Kind, raw), s.K, module+"_proj")
		if keep != nil {
			keep(s.Name, m)
		}
		tensors = append(tensors, parts...)
	}
	return tensors, nil
}

// Floats widens stored values.
func Floats(kind quant.Kind, raw []byte) []float32 {
	var out []float32
	switch kind {
	case quant.F32:
		for ; len(raw) > 0; raw = raw[4:] {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
	case quant.BF16:
		for ; len(raw) > 0; raw = raw[2:] {
			out = append(out, quant.BF16ToF32(binary.LittleEndian.Uint16(raw)))
		}
	default:
		panic(fmt.Sprintf("BUG: Floats of kind %d", kind))
	}
	return out
}

// Config is the config.json of a dense ERNIE 4.5 model, with a quantization_config unless that is nil.
func Config(c *weights.Config, quantization any) ([]byte, error) {
	m := map[string]any{
		"architectures": []string{"Ernie4_5_ForCausalLM"}, "model_type": "ernie4_5", "hidden_act": "silu",
		"hidden_size": c.HiddenSize, "intermediate_size": c.IntermediateSize, "num_hidden_layers": c.NumLayers,
		"num_attention_heads": c.NumHeads, "num_key_value_heads": c.NumKVHeads, "head_dim": c.HeadDim, "vocab_size": c.VocabSize,
		"max_position_embeddings": c.MaxPositions, "rms_norm_eps": c.RMSNormEps, "rope_theta": c.RopeTheta, "use_bias": c.UseBias,
		"tie_word_embeddings": c.TieEmbeddings, "eos_token_id": c.EOS, "bos_token_id": c.BOS,
	}
	if c.RopeFrequenciesBF16 {
		m["dtype"], m["torch_dtype"] = nil, "bfloat16"
	}
	if quantization != nil {
		m["quantization_config"] = quantization
	}
	return json.MarshalIndent(m, "", " ")
}

// Safetensors is a file of tensors.
func Safetensors(tensors []Tensor) []byte {
	head := []byte{'{'}
	size := 0
	for i, t := range tensors {
		if i > 0 {
			head = append(head, ',')
		}
		shape := strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ",")
		head = fmt.Appendf(head, `%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, t.Name, t.DType, shape, size, size+len(t.Data))
		size += len(t.Data)
	}
	head = append(head, '}')
	out := make([]byte, 0, 8+len(head)+size)
	out = append(binary.LittleEndian.AppendUint64(out, uint64(len(head))), head...)
	for _, t := range tensors {
		out = append(out, t.Data...)
	}
	return out
}

// Shorter is a model with fewer layers and a smaller vocabulary: the first of each.
func Shorter(src weights.Source, layers, vocab int) weights.Source {
	c := *src.Config()
	c.NumLayers, c.VocabSize = layers, vocab
	return &shorter{src, &c}
}

type shorter struct {
	weights.Source
	cfg *weights.Config
}

func (s *shorter) Config() *weights.Config { return s.cfg }

func (s *shorter) Info(name string) (weights.Info, error) {
	info, err := s.Source.Info(name)
	if info.Rows == s.Source.Config().VocabSize {
		info.Rows = s.cfg.VocabSize
	}
	return info, err
}
