package weights

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// family is an architecture: its names, what it always has, and what transformers assumes where config.json says nothing
// (the defaults of its configuration class). Sizes have no defaults here, but for those that the shapes of tensors check.
type family struct {
	name    string   // Config.Architecture, and model_type in config.json
	classes []string // in "architectures" of config.json

	maxPositions int
	eps          float64
	theta        float64
	tied         bool // the LM head is the embedding
	headDim      int  // 0: hidden size over heads

	halfSplit bool // the rotary embedding turns pairs half a head apart, not neighbours
	qkvBias   bool // in q, k and v alone
	qkNorm    bool // of each head of q and k
	moe       bool
	useBias   bool // may have a bias in every linear layer
}

// families are the architectures that are supported. ERNIE's have two class names: that of the checkpoints' own code, and
// that of transformers.
var families = []family{
	{
		name: "ernie4_5", classes: []string{"Ernie4_5_ForCausalLM", "Ernie4_5ForCausalLM"},
		maxPositions: 131072, eps: 1e-5, theta: 500000, tied: true, useBias: true,
	},
	{
		name: "ernie4_5_moe", classes: []string{"Ernie4_5_MoeForCausalLM", "Ernie4_5MoeForCausalLM"},
		maxPositions: 131072, eps: 1e-5, theta: 500000, tied: true, moe: true,
	},
	{
		name: "llama", classes: []string{"LlamaForCausalLM"},
		maxPositions: 2048, eps: 1e-6, theta: 10000, halfSplit: true, useBias: true,
	},
	{
		name: "qwen2", classes: []string{"Qwen2ForCausalLM"},
		maxPositions: 32768, eps: 1e-6, theta: 10000, halfSplit: true, qkvBias: true,
	},
	{
		name: "qwen3", classes: []string{"Qwen3ForCausalLM"},
		maxPositions: 32768, eps: 1e-6, theta: 10000, headDim: 128, halfSplit: true, qkNorm: true,
	},
}

// familyNamed is nil for a name that is not supported.
func familyNamed(name string) *family {
	if i := slices.IndexFunc(families, func(f family) bool { return f.name == name }); i >= 0 {
		return &families[i]
	}
	return nil
}

// familyNames lists what is supported.
func familyNames() string {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// family is the architecture that config.json names: by its class, or by model_type where it names no class.
func (h *hfConfig) family() (*family, error) {
	for i, f := range families {
		if slices.ContainsFunc(h.Architectures, func(a string) bool { return slices.Contains(f.classes, a) }) {
			return &families[i], nil
		}
	}
	var classes []string
	for _, f := range families {
		classes = append(classes, f.classes...)
	}
	known := "supported are " + strings.Join(classes, ", ") + "; as model_type " + familyNames()
	switch {
	case len(h.Architectures) > 0:
		return nil, fmt.Errorf("architecture %q is not supported; %s", strings.Join(h.Architectures, ", "), known)
	case h.ModelType == "":
		return nil, fmt.Errorf("names no architecture; %s", known)
	}
	if f := familyNamed(h.ModelType); f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("model_type %q is not supported; %s", h.ModelType, known)
}

func is(flag *bool) bool { return flag != nil && *flag }

// bias says whether every linear layer has a bias.
func (h *hfConfig) bias() bool {
	return is(h.UseBias) || is(h.AttentionBias) && is(h.MLPBias)
}

// biasSupported refuses biases of some linear layers that are not those of the architecture.
func (h *hfConfig) biasSupported(f *family) error {
	attention, mlp := is(h.AttentionBias), is(h.MLPBias)
	switch {
	case is(h.UseBias) && !f.useBias:
		return fmt.Errorf("use_bias true is not supported for %s; false is", f.name)
	case (attention || mlp) && !f.useBias:
		return fmt.Errorf("attention_bias %v with mlp_bias %v is not supported for %s; false is", attention, mlp, f.name)
	case attention != mlp:
		return fmt.Errorf("attention_bias %v with mlp_bias %v is not supported; both or none is", attention, mlp)
	}
	return nil
}

// windowSupported refuses attention over a sliding window that is shorter than the longest context. transformers looks at
// the window only where use_sliding_window is true.
func (h *hfConfig) windowSupported(f *family) error {
	if !is(h.UseSlidingWindow) || h.SlidingWindow == nil {
		return nil
	}
	positions := f.maxPositions
	set(&positions, h.MaxPositions)
	if *h.SlidingWindow < positions {
		return fmt.Errorf("sliding_window %d is not supported, for it is shorter than max_position_embeddings %d; use_sliding_window false is",
			*h.SlidingWindow, positions)
	}
	return nil
}

// hfRope is rope_scaling, or rope_parameters as newer versions of transformers call it.
type hfRope struct {
	Theta   *float64 `json:"rope_theta"`
	Type    *string  `json:"rope_type"`
	OldType *string  `json:"type"`
	Partial *float64 `json:"partial_rotary_factor"`

	Factor           *float64 `json:"factor"`
	LowFreqFactor    *float64 `json:"low_freq_factor"`
	HighFreqFactor   *float64 `json:"high_freq_factor"`
	OriginalPosition *int     `json:"original_max_position_embeddings"`
}

// ropeLlama3 is the one RopeScaling.Type.
const ropeLlama3 = "llama3"

// rope sets what the configuration says of the rotary embedding.
func (h *hfConfig) rope(c *Config) error {
	set(&c.RopeTheta, h.RopeTheta)
	for _, r := range []struct {
		field string
		*hfRope
	}{{"rope_scaling", h.RopeScaling}, {"rope_parameters", h.RopeParameters}} {
		if r.hfRope == nil {
			continue
		}
		set(&c.RopeTheta, r.Theta)
		if p := r.Partial; p != nil && *p != 1 {
			return fmt.Errorf("%s: partial_rotary_factor %v is not supported; 1 is", r.field, *p)
		}
		scaled := false
		for _, t := range []*string{r.Type, r.OldType} {
			switch {
			case t == nil, *t == "default":
			case *t == ropeLlama3:
				scaled = true
			default:
				return fmt.Errorf("%s: rope type %q is not supported; default and %s are", r.field, *t, ropeLlama3)
			}
		}
		if !scaled {
			continue
		}
		s := RopeScaling{Type: ropeLlama3, OriginalPosition: c.MaxPositions}
		for _, f := range []struct {
			name string
			from *float64
			to   *float64
		}{
			{"factor", r.Factor, &s.Factor},
			{"low_freq_factor", r.LowFreqFactor, &s.LowFreqFactor},
			{"high_freq_factor", r.HighFreqFactor, &s.HighFreqFactor},
		} {
			if f.from == nil {
				return fmt.Errorf("%s: rope type %q needs %s", r.field, ropeLlama3, f.name)
			}
			*f.to = *f.from
		}
		set(&s.OriginalPosition, r.OriginalPosition)
		c.RopeScaling = &s
	}
	return nil
}

// hfMoE is what config.json of ERNIE-4.5 MoE says beyond what dense models say.
type hfMoE struct {
	NumExperts    *int     `json:"moe_num_experts"`
	TopK          *int     `json:"moe_k"`
	ExpertSize    *int     `json:"moe_intermediate_size"`
	SharedExperts *int     `json:"moe_num_shared_experts"`
	FirstLayer    *int     `json:"moe_layer_start_index"`
	LastLayer     *int     `json:"moe_layer_end_index"`
	Interval      *int     `json:"moe_layer_interval"`
	NormMin       *float64 `json:"moe_norm_min"`
	Gate          *string  `json:"moe_gate"` // how experts are chosen, in the checkpoints' own code
}

// moe is the mixture of experts, with the defaults of transformers.
func (h *hfConfig) moe(c *Config) (*MoE, error) {
	if h.NumExperts == nil || h.ExpertSize == nil {
		return nil, errors.New("moe_num_experts or moe_intermediate_size is missing")
	}
	if h.Gate != nil && *h.Gate != "topk" {
		return nil, fmt.Errorf("moe_gate %q is not supported; topk is", *h.Gate)
	}
	m := &MoE{NumExperts: *h.NumExperts, ExpertSize: *h.ExpertSize, TopK: 6, FirstLayer: 1, LastLayer: -1, Interval: 1, NormMin: 1e-12}
	set(&m.TopK, h.TopK)
	set(&m.FirstLayer, h.FirstLayer)
	set(&m.LastLayer, h.LastLayer)
	set(&m.Interval, h.Interval)
	set(&m.NormMin, h.NormMin)
	if m.LastLayer == -1 || m.LastLayer >= c.NumLayers { // up to the last one, also where the file counts layers that are not there
		m.LastLayer = c.NumLayers - 1
	}
	shared := 2 // each as wide as one of the others; they are one MLP
	set(&shared, h.SharedExperts)
	if shared < 0 || shared > 1024 || m.ExpertSize < 0 || m.ExpertSize > 1<<20 {
		return nil, fmt.Errorf("moe_num_shared_experts is %d and moe_intermediate_size %d, want 0 to 1024 and at most %d", shared, m.ExpertSize, 1<<20)
	}
	m.SharedExpertSize = shared * m.ExpertSize
	return m, nil
}
