package runner

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// TestGoldensAsGGUF turns the golden checkpoints into GGUF files, as llama.cpp's converter does, and holds these against
// transformers' logits: architectures and details of which there is no GGUF fixture.
func TestGoldensAsGGUF(t *testing.T) {
	for _, model := range ggufGoldens {
		t.Run(model, func(t *testing.T) {
			dev := devices(t)["cpu"]() // TestGoldens has the others
			defer dev.Close()
			dir := filepath.Join(goldens, model)
			src, err := weights.OpenGGUF(t.Context(), model+".gguf", memBlob(convertToGGUF(t, dir)))
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			// The goldens come of models that were cast as a whole (docs/adr/0011), for which GGUF has no key.
			src.Config().RopeFrequenciesBF16 = true
			checkSource(t, dev, src, dir, quant.KVF32, 5e-4)
		})
	}
}

// ggufGoldens have plain weights.
var ggufGoldens = []string{"ernie", "ernie-bias-untied", "ernie-moe", "llama", "qwen2", "qwen3"}

// memBlob is a file in memory.
type memBlob []byte

func (b memBlob) Size() int64 { return int64(len(b)) }

func (b memBlob) ReadAt(p []byte, off int64) (int, error) {
	if n := copy(p, b[min(off, b.Size()):]); n < len(p) {
		return n, io.EOF
	}
	return len(p), nil
}

// ggufWriter collects keys and tensors of F32.
type ggufWriter struct {
	keys, infos, data   []byte
	numKeys, numTensors uint64
}

func ggufText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func (w *ggufWriter) key(name string, value any) {
	le := binary.LittleEndian
	w.keys = ggufText(w.keys, name)
	switch v := value.(type) {
	case int:
		w.keys = le.AppendUint32(le.AppendUint32(w.keys, 4), uint32(v))
	case float64:
		w.keys = le.AppendUint32(le.AppendUint32(w.keys, 6), math.Float32bits(float32(v)))
	case string:
		w.keys = ggufText(le.AppendUint32(w.keys, 8), v)
	default:
		panic(fmt.Sprintf("BUG: a key of type %T", value))
	}
	w.numKeys++
}

func (w *ggufWriter) tensor(name string, shape []int, values []float32) {
	le := binary.LittleEndian
	w.infos = le.AppendUint32(ggufText(w.infos, name), uint32(len(shape)))
	for _, n := range slices.Backward(shape) {
		w.infos = le.AppendUint64(w.infos, uint64(n))
	}
	w.infos = le.AppendUint64(le.AppendUint32(w.infos, 0), uint64(len(w.data)))
	for _, v := range values {
		w.data = le.AppendUint32(w.data, math.Float32bits(v))
	}
	w.data = append(w.data, make([]byte, -len(w.data)&31)...)
	w.numTensors++
}

func (w *ggufWriter) file() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(le.AppendUint64(le.AppendUint32([]byte("GGUF"), 3), w.numTensors), w.numKeys)
	b = slices.Concat(b, w.keys, w.infos)
	return slices.Concat(b, make([]byte, -len(b)&31), w.data)
}

// ggufNames are the names of llama.cpp's converter.
var ggufNames = strings.NewReplacer(
	"model.embed_tokens.", "token_embd.", "model.norm.", "output_norm.", "lm_head.", "output.", "model.layers.", "blk.",
	"input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm",
	"self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output",
	"self_attn.q_norm", "attn_q_norm", "self_attn.k_norm", "attn_k_norm",
	"mlp.shared_experts.gate_proj", "ffn_gate_shexp", "mlp.shared_experts.up_proj", "ffn_up_shexp", "mlp.shared_experts.down_proj", "ffn_down_shexp",
	"mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down",
	"mlp.gate.", "ffn_gate_inp.", "mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias",
)

type hfGolden struct {
	Type         string  `json:"model_type"`
	Hidden       int     `json:"hidden_size"`
	Intermediate int     `json:"intermediate_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	KVHeads      int     `json:"num_key_value_heads"`
	HeadDim      int     `json:"head_dim"`
	Positions    int     `json:"max_position_embeddings"`
	RMSNormEps   float64 `json:"rms_norm_eps"`
	Rope         struct {
		Theta    float64 `json:"rope_theta"`
		Type     string  `json:"rope_type"`
		Factor   float64 `json:"factor"`
		Low      float64 `json:"low_freq_factor"`
		High     float64 `json:"high_freq_factor"`
		Original float64 `json:"original_max_position_embeddings"`
	} `json:"rope_parameters"`
	RopeTheta  float64 `json:"rope_theta"`
	Experts    int     `json:"moe_num_experts"`
	TopK       int     `json:"moe_k"`
	ExpertSize int     `json:"moe_intermediate_size"`
	Shared     int     `json:"moe_num_shared_experts"`
	First      int     `json:"moe_layer_start_index"`
	Interval   int     `json:"moe_layer_interval"`
}

// convertToGGUF writes a checkpoint as a GGUF file in F32.
func convertToGGUF(t *testing.T, dir string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c hfGolden
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	var w ggufWriter
	c.keys(&w)
	st, err := weights.OpenSafetensors(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	experts := regexp.MustCompile(`^(model\.layers\.\d+)\.mlp\.experts\.0\.(gate|up|down)_proj\.weight$`)
	for _, name := range st.Names() {
		info, err := st.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		values, err := st.Float32s(name)
		if err != nil {
			t.Fatal(err)
		}
		as, shape := ggufNames.Replace(name), info.Shape
		switch m := experts.FindStringSubmatch(name); {
		case m != nil:
			for e := 1; e < c.Experts; e++ {
				more, err := st.Float32s(strings.Replace(name, "experts.0.", fmt.Sprintf("experts.%d.", e), 1))
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, more...)
			}
			as, shape = ggufNames.Replace(m[1])+".ffn_"+m[2]+"_exps.weight", append([]int{c.Experts}, shape...)
		case strings.Contains(name, ".experts."):
			continue // in the stack that the first of them began
		case strings.HasSuffix(name, "e_score_correction_bias"):
			shape = []int{c.Experts} // [1, E] in the checkpoint
		case c.Type == "llama" && strings.HasSuffix(name, "self_attn.q_proj.weight"):
			values = permuteHeads(values, c.Heads, c.HeadDim)
		case c.Type == "llama" && strings.HasSuffix(name, "self_attn.k_proj.weight"):
			values = permuteHeads(values, c.KVHeads, c.HeadDim)
		}
		w.tensor(as, shape, values)
	}
	if c.Rope.Type == "llama3" {
		w.tensor("rope_freqs.weight", []int{c.HeadDim / 2}, c.ropeFactors())
	}
	return w.file()
}

func (c *hfGolden) keys(w *ggufWriter) {
	arch := map[string]string{"ernie4_5_moe": "ernie4_5-moe"}[c.Type]
	if arch == "" {
		arch = c.Type
	}
	w.key("general.architecture", arch)
	for _, k := range []struct {
		name  string
		value int
	}{
		{"block_count", c.Layers},
		{"context_length", c.Positions},
		{"embedding_length", c.Hidden},
		{"feed_forward_length", c.Intermediate},
		{"attention.head_count", c.Heads},
		{"attention.head_count_kv", c.KVHeads},
		{"attention.key_length", c.HeadDim},
		{"attention.value_length", c.HeadDim},
		{"rope.dimension_count", c.HeadDim},
	} {
		w.key(arch+"."+k.name, k.value)
	}
	w.key(arch+".attention.layer_norm_rms_epsilon", c.RMSNormEps)
	w.key(arch+".rope.freq_base", max(c.Rope.Theta, c.RopeTheta))
	if c.Experts > 0 {
		for _, k := range []struct {
			name  string
			value int
		}{
			{"expert_count", c.Experts},
			{"expert_used_count", c.TopK},
			{"expert_feed_forward_length", c.ExpertSize},
			{"expert_shared_count", c.Shared},
			{"expert_shared_feed_forward_length", c.Intermediate / c.KVHeads}, // as the converter has it
			{"leading_dense_block_count", c.First},
			{"interleave_moe_layer_step", c.Interval},
		} {
			w.key(arch+"."+k.name, k.value)
		}
	}
}

// permuteHeads brings the rows of each head from halves into pairs: rows i and i+D/2 become 2i and 2i+1.
func permuteHeads(values []float32, heads, headDim int) []float32 {
	k := len(values) / (heads * headDim)
	out := make([]float32, 0, len(values))
	for h := range heads {
		for i := range headDim / 2 {
			for _, row := range []int{h*headDim + i, h*headDim + headDim/2 + i} {
				out = append(out, values[row*k:(row+1)*k]...)
			}
		}
	}
	return out
}

// ropeFactors are by how much llama 3 slows each frequency down.
func (c *hfGolden) ropeFactors() []float32 {
	out := make([]float32, c.HeadDim/2)
	for i := range out {
		turns := c.Rope.Original * math.Pow(c.Rope.Theta, -float64(2*i)/float64(c.HeadDim)) / (2 * math.Pi) // within the original context
		smooth := min(1, max(0, (turns-c.Rope.Low)/(c.Rope.High-c.Rope.Low)))
		out[i] = float32(1 / ((1-smooth)/c.Rope.Factor + smooth))
	}
	return out
}
