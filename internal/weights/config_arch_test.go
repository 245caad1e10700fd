package weights

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sizes are those that config.json of every architecture has to state.
const sizes = `"hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,"vocab_size":50`

func configOf(class, more string) string {
	return fmt.Sprintf(`{"architectures":[%q],%s%s}`, class, sizes, more)
}

// TestDefaultsOfFamilies: what transformers assumes (configuration_*.py of each model) where the file says nothing.
func TestDefaultsOfFamilies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class string
		want  Config
	}{
		{"Ernie4_5ForCausalLM", Config{Architecture: "ernie4_5", HeadDim: 16, MaxPositions: 131072, RMSNormEps: 1e-5, RopeTheta: 500000, TieEmbeddings: true}},
		{"Ernie4_5_MoeForCausalLM", Config{
			Architecture: "ernie4_5_moe", HeadDim: 16, MaxPositions: 131072, RMSNormEps: 1e-5, RopeTheta: 500000, TieEmbeddings: true,
			MoE: &MoE{NumExperts: 8, TopK: 6, ExpertSize: 24, SharedExpertSize: 48, NormMin: 1e-12, FirstLayer: 1, LastLayer: 3, Interval: 1},
		}},
		{"LlamaForCausalLM", Config{Architecture: "llama", HeadDim: 16, MaxPositions: 2048, RMSNormEps: 1e-6, RopeTheta: 10000, RopeHalfSplit: true}},
		{"Qwen2ForCausalLM", Config{
			Architecture: "qwen2", HeadDim: 16, MaxPositions: 32768, RMSNormEps: 1e-6, RopeTheta: 10000, RopeHalfSplit: true, QKVBias: true,
		}},
		{"Qwen3ForCausalLM", Config{
			Architecture: "qwen3", HeadDim: 128, MaxPositions: 32768, RMSNormEps: 1e-6, RopeTheta: 10000, RopeHalfSplit: true, QKNorm: true,
		}},
	} {
		more := ""
		if c.want.MoE != nil {
			more = `,"moe_num_experts":8,"moe_intermediate_size":24`
		}
		c.want.HiddenSize, c.want.IntermediateSize, c.want.NumLayers, c.want.VocabSize, c.want.BOS = 64, 96, 4, 50, -1
		c.want.NumHeads, c.want.NumKVHeads = 4, 4
		if got, want := mustJSON(t, mustConfig(t, configOf(c.class, more))), mustJSON(t, c.want); got != want {
			t.Errorf("%s: %s\nwant %s", c.class, got, want)
		}
	}
}

// TestFieldsOfFamilies changes one thing in a configuration and looks at one thing that comes of it.
func TestFieldsOfFamilies(t *testing.T) {
	t.Parallel()
	const moe = `,"moe_num_experts":8,"moe_intermediate_size":24`
	const llama3 = `"factor":8,"low_freq_factor":1,"high_freq_factor":4`
	scaling := func(c *Config) any { return *c.RopeScaling }
	for _, c := range []struct {
		class, more string
		of          func(c *Config) any
		want        any
	}{
		{
			"LlamaForCausalLM", `,"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","original_max_position_embeddings":8192,` + llama3 + `}`, scaling,
			RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalPosition: 8192},
		},
		{
			"LlamaForCausalLM", `,"max_position_embeddings":4096,"rope_parameters":{"rope_theta":5e5,"type":"llama3",` + llama3 + `}`, scaling,
			RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalPosition: 4096},
		},
		{"LlamaForCausalLM", `,"rope_parameters":{"rope_theta":5e5}`, func(c *Config) any { return c.RopeTheta }, 5e5},
		{"LlamaForCausalLM", `,"attention_bias":true,"mlp_bias":true`, func(c *Config) any { return c.UseBias }, true},
		{"Qwen2ForCausalLM", `,"use_sliding_window":false,"sliding_window":7`, func(c *Config) any { return c.MaxPositions }, 32768},
		{"Qwen2ForCausalLM", `,"sliding_window":7`, func(c *Config) any { return c.MaxPositions }, 32768},
		{"Qwen3ForCausalLM", `,"use_sliding_window":true,"sliding_window":40960`, func(c *Config) any { return c.MaxPositions }, 32768},
		{"Qwen3ForCausalLM", `,"attention_bias":false,"head_dim":64`, func(c *Config) any { return c.HeadDim }, 64},
		{"Ernie4_5_MoeForCausalLM", moe + `,"moe_layer_end_index":99`, func(c *Config) any { return c.MoE.LastLayer }, 3},
		{"Ernie4_5_MoeForCausalLM", moe + `,"moe_num_shared_experts":0`, func(c *Config) any { return c.MoE.SharedExpertSize }, 0},
		{
			"Ernie4_5_MoeForCausalLM", moe + `,"moe_layer_interval":2`,
			func(c *Config) any { return fmt.Sprint(c.Sparse(0), c.Sparse(1), c.Sparse(2), c.Sparse(3)) }, "false true false true",
		},
		{
			"Ernie4_5_MoeForCausalLM", moe + `,"moe_layer_start_index":1,"moe_layer_end_index":2`,
			func(c *Config) any { return fmt.Sprint(c.Sparse(0), c.Sparse(1), c.Sparse(2), c.Sparse(3)) }, "false true true false",
		},
	} {
		if got := c.of(mustConfig(t, configOf(c.class, c.more))); got != c.want {
			t.Errorf("%s%s: %v, want %v", c.class, c.more, got, c.want)
		}
	}
}

// TestRefusedOfFamilies: what would be computed wrongly is refused by name.
func TestRefusedOfFamilies(t *testing.T) {
	t.Parallel()
	const moe = `,"moe_num_experts":8,"moe_intermediate_size":24`
	const llama, qwen2, qwen3, ernie = "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Ernie4_5_MoeForCausalLM"
	for _, c := range []struct{ class, more, says string }{
		{llama, `,"rope_scaling":{"rope_type":"yarn","factor":4}`, `rope type "yarn" is not supported; default and llama3 are`},
		{llama, `,"rope_scaling":{"type":"linear","factor":4}`, `rope type "linear"`},
		{llama, `,"rope_scaling":{"rope_type":"longrope"}`, `rope type "longrope"`},
		{llama, `,"rope_scaling":{"rope_type":"llama3"}`, "needs factor"},
		{llama, `,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4}`, "low_freq_factor is 4"},
		{llama, `,"rope_scaling":{"rope_type":"llama3","factor":0,"low_freq_factor":1,"high_freq_factor":4}`, "factor is 0"},
		{llama, `,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":-1}`, "is -1"},
		{llama, `,"attention_bias":true`, "attention_bias true with mlp_bias false is not supported"},
		{llama, `,"mlp_bias":true`, "attention_bias false with mlp_bias true is not supported"},
		{llama, `,"partial_rotary_factor":0.5`, "partial_rotary_factor 0.5"},
		{qwen2, `,"use_sliding_window":true,"sliding_window":4096`, "sliding_window 4096 is not supported"},
		{qwen3, `,"attention_bias":true`, "attention_bias true with mlp_bias false is not supported for qwen3"},
		{ernie, ``, "moe_num_experts or moe_intermediate_size is missing"},
		{ernie, moe + `,"use_bias":true`, "use_bias true is not supported for ernie4_5_moe"},
		{ernie, moe + `,"moe_gate":"top2_fused"`, `moe_gate "top2_fused"`},
		{ernie, `,"moe_num_experts":[8,8],"moe_intermediate_size":24`, "config.json: moe_num_experts: an array does not fit here"},
		{ernie, moe + `,"moe_k":9`, "moe_k is 9, want 1 to 8"},
		{ernie, moe + `,"moe_k":0`, "moe_k is 0"},
		{ernie, moe + `,"moe_layer_interval":0`, "moe_layer_interval is 0"},
		{ernie, moe + `,"moe_layer_start_index":-1`, "moe_layer_start_index is -1"},
		{ernie, moe + `,"moe_layer_start_index":[1,1]`, "moe_layer_start_index"},
		{ernie, moe + `,"moe_layer_end_index":-2`, "moe_layer_end_index is -2"},
		{ernie, moe + `,"moe_norm_min":-1`, "moe_norm_min is -1"},
		{ernie, moe + `,"moe_num_shared_experts":4611686018427387904`, "moe_num_shared_experts is 4611686018427387904"},
		{ernie, `,"moe_num_experts":8,"moe_intermediate_size":4611686018427387904`, "moe_intermediate_size 4611686018427387904"},
		{ernie, `,"moe_num_experts":8,"moe_intermediate_size":25`, "moe_intermediate_size is 25, want a multiple of 8"},
		{ernie, `,"moe_num_experts":1000000,"moe_intermediate_size":24`, "moe_num_experts is 1000000"},
	} {
		_, err := parseConfig([]byte(configOf(c.class, c.more)), nil)
		wantWords(t, err, "config.json: ", c.says)
	}
	many := strings.Replace(configOf(ernie, `,"moe_num_experts":512,"moe_intermediate_size":24`), `"num_hidden_layers":4`, `"num_hidden_layers":1000`, 1)
	_, err := parseConfig([]byte(many), nil)
	wantWords(t, err, "at most 16384 together")
}

// TestValidateConfig: what other sources of configurations than config.json could state.
func TestValidateConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(c *Config)
		says   string
	}{
		{func(c *Config) { c.RopeFactors = []float32{1, 2} }, "2 rope factors, want one for each of the 8"},
		{func(c *Config) { c.RopeFactors = make([]float32, 8) }, "rope factor 0 is 0"},
		{func(c *Config) {
			c.RopeFactors = slices.Repeat([]float32{2}, 8)
			c.RopeScaling = &RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalPosition: 9}
		}, "scaled twice"},
		{func(c *Config) { c.RopeScaling = &RopeScaling{Type: "yarn"} }, `rope type "yarn"`},
		{func(c *Config) { c.MoE = &MoE{NumExperts: 2} }, "architecture llama with a mixture of experts: true, want false"},
		{func(c *Config) { c.Architecture = "ernie4_5_moe" }, "mixture of experts: false, want true"},
		{func(c *Config) { c.QKNorm = true }, "norms of q and k: true, want false"},
		{func(c *Config) { c.Architecture = "qwen2"; c.UseBias = true; c.QKVBias = true }, "bias in every linear layer"},
		{func(c *Config) { c.Architecture = "qwen2" }, "biases of q, k and v alone: false, want true"},
	} {
		cfg := mustConfig(t, configOf("LlamaForCausalLM", ""))
		c.change(cfg)
		wantWords(t, cfg.validate(), c.says)
	}
}

// TestTensorsAreThoseOfTheFile: the tensors that transformers writes for an architecture are those that are asked for, no more
// and no less, and their elements are the parameters.
func TestTensorsAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"ernie", "ernie-bias-untied", "ernie-moe", "llama", "qwen2", "qwen3"} {
		f, err := OpenSafetensors(filepath.Join(goldens, model, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { drop(f) })
		cfg := openDirTest(t, goldens+model).Config()
		var names []string
		for _, s := range Tensors(cfg) {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		if want := slices.Sorted(maps.Keys(f.tensors)); !slices.Equal(names, want) {
			t.Errorf("%s: tensors %q, want %q", model, names, want)
		}
		var elements int64
		for _, s := range f.tensors {
			n := int64(1)
			for _, d := range s.Shape {
				n *= int64(d)
			}
			elements += n
		}
		all, active := Parameters(cfg)
		if all != elements {
			t.Errorf("%s: %d parameters, the file has %d", model, all, elements)
		}
		idle := int64(0)
		if model == "ernie-moe" {
			idle = 2 * (8 - 3) * 3 * 96 * 128 // two layers, eight experts of which a token uses three, three matrices each
		}
		if active != all-idle {
			t.Errorf("%s: %d of %d parameters are active, want %d", model, active, all, all-idle)
		}
	}
}

// TestRouterIsNotQuantized: whatever a policy says.
func TestRouterIsNotQuantized(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie-moe")
	q := Quantized(src, PolicyQ4(nil))
	for name, want := range map[string]string{
		"model.layers.1.mlp.gate.weight": "bf16", "model.layers.1.mlp.experts.7.up_proj.weight": "q4g32", "model.layers.0.mlp.gate_proj.weight": "q4g32",
	} {
		info, err := q.Info(name)
		if err != nil || info.Format.String() != want {
			t.Errorf("%s is %v, %v, want %s", name, info.Format, err, want)
		}
	}
}
