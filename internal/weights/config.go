package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// hfConfig is the part of config.json that matters. Pointers tell what is absent.
type hfConfig struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	HiddenAct     *string  `json:"hidden_act"`

	HiddenSize       *int     `json:"hidden_size"`
	IntermediateSize *int     `json:"intermediate_size"`
	NumLayers        *int     `json:"num_hidden_layers"`
	NumHeads         *int     `json:"num_attention_heads"`
	NumKVHeads       *int     `json:"num_key_value_heads"`
	HeadDim          *int     `json:"head_dim"`
	VocabSize        *int     `json:"vocab_size"`
	MaxPositions     *int     `json:"max_position_embeddings"`
	RMSNormEps       *float64 `json:"rms_norm_eps"`
	TieEmbeddings    *bool    `json:"tie_word_embeddings"`

	UseBias       *bool `json:"use_bias"`       // ERNIE: in every linear layer
	AttentionBias *bool `json:"attention_bias"` // llama, qwen3: in q, k, v and o
	MLPBias       *bool `json:"mlp_bias"`       // llama: in gate, up and down

	RopeTheta      *float64 `json:"rope_theta"`
	RopeScaling    *hfRope  `json:"rope_scaling"`
	RopeParameters *hfRope  `json:"rope_parameters"`
	Partial        *float64 `json:"partial_rotary_factor"`
	Compression    *float64 `json:"compression_ratio"` // of positions, in ERNIE's own code

	UseSlidingWindow *bool `json:"use_sliding_window"`
	SlidingWindow    *int  `json:"sliding_window"`

	hfMoE

	DType      json.RawMessage `json:"dtype"`
	TorchDType json.RawMessage `json:"torch_dtype"`

	EOS json.RawMessage `json:"eos_token_id"`
	BOS json.RawMessage `json:"bos_token_id"`
}

// hfGeneration is the part of generation_config.json that matters.
type hfGeneration struct {
	EOS json.RawMessage `json:"eos_token_id"`
	BOS json.RawMessage `json:"bos_token_id"`
	Sampling
}

// parseConfig makes a Config of config.json and of generation_config.json, which may be nil. Errors name the file.
func parseConfig(config, generation []byte) (*Config, error) {
	var h hfConfig
	if err := decodeJSON(config, &h); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	c, err := h.config()
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	var g hfGeneration
	if generation != nil {
		if err := decodeJSON(generation, &g); err != nil {
			return nil, fmt.Errorf("generation_config.json: %w", err)
		}
		if err := g.validate(); err != nil {
			return nil, fmt.Errorf("generation_config.json: %w", err)
		}
		c.Sampling = g.Sampling
	}
	for _, part := range []struct {
		file     string
		eos, bos json.RawMessage
	}{{"generation_config.json", g.EOS, g.BOS}, {"config.json", h.EOS, h.BOS}} {
		eos, err := tokenIDs(part.eos)
		if err != nil {
			return nil, fmt.Errorf("%s: eos_token_id %w", part.file, err)
		}
		for _, id := range eos {
			if id < 0 || int(id) >= c.VocabSize {
				return nil, fmt.Errorf("%s: eos_token_id %d is outside the vocabulary of %d", part.file, id, c.VocabSize)
			}
			if !slices.Contains(c.EOS, id) {
				c.EOS = append(c.EOS, id)
			}
		}
		bos, err := tokenIDs(part.bos)
		if err != nil {
			return nil, fmt.Errorf("%s: bos_token_id %w", part.file, err)
		}
		if c.BOS < 0 && len(bos) == 1 {
			c.BOS = bos[0]
		}
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}

func (h *hfConfig) config() (*Config, error) {
	f, err := h.family()
	if err != nil {
		return nil, err
	}
	if err := h.supported(f); err != nil {
		return nil, err
	}
	c := &Config{
		Architecture: f.name, BOS: -1,
		MaxPositions: f.maxPositions, RMSNormEps: f.eps, RopeTheta: f.theta, TieEmbeddings: f.tied,
		RopeHalfSplit: f.halfSplit, QKVBias: f.qkvBias, QKNorm: f.qkNorm,
	}
	for _, size := range []struct {
		name string
		from *int
		to   *int
	}{
		{"hidden_size", h.HiddenSize, &c.HiddenSize},
		{"intermediate_size", h.IntermediateSize, &c.IntermediateSize},
		{"num_hidden_layers", h.NumLayers, &c.NumLayers},
		{"num_attention_heads", h.NumHeads, &c.NumHeads},
		{"vocab_size", h.VocabSize, &c.VocabSize},
	} {
		if size.from == nil {
			return nil, fmt.Errorf("%s is missing", size.name)
		}
		*size.to = *size.from
	}
	set(&c.MaxPositions, h.MaxPositions)
	set(&c.RMSNormEps, h.RMSNormEps)
	c.UseBias = h.bias()
	set(&c.TieEmbeddings, h.TieEmbeddings)
	c.NumKVHeads = c.NumHeads
	set(&c.NumKVHeads, h.NumKVHeads)
	switch {
	case h.HeadDim != nil:
		c.HeadDim = *h.HeadDim
	case f.headDim != 0:
		c.HeadDim = f.headDim
	case c.NumHeads > 0:
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	if err := h.rope(c); err != nil {
		return nil, err
	}
	if f.moe {
		if c.MoE, err = h.moe(c); err != nil {
			return nil, err
		}
	}
	c.RopeFrequenciesBF16 = h.castWhole()
	return c, nil
}

// castWhole says whether the checkpoint was written from a model object that was cast to bf16 as a whole, its rotary
// frequencies included. Loading and saving a model writes its "dtype" (or only the older "torch_dtype") and keeps the
// frequencies in f32; a "dtype" that is there and null comes from dumping the configuration of an object that was never
// loaded (docs/adr/0011-rotary-frequencies.md).
func (h *hfConfig) castWhole() bool {
	return string(h.DType) == "null" && string(h.TorchDType) == `"bfloat16"`
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// supported refuses, by name, what would be computed wrongly.
func (h *hfConfig) supported(f *family) error {
	if h.HiddenAct != nil && *h.HiddenAct != "silu" {
		return fmt.Errorf("hidden_act %q is not supported; silu is", *h.HiddenAct)
	}
	if h.Compression != nil && *h.Compression != 1 {
		return fmt.Errorf("compression_ratio %v is not supported; 1 is", *h.Compression)
	}
	if h.Partial != nil && *h.Partial != 1 {
		return fmt.Errorf("partial_rotary_factor %v is not supported; 1 is", *h.Partial)
	}
	if err := h.biasSupported(f); err != nil {
		return err
	}
	return h.windowSupported(f)
}

// tokenIDs reads one id or a list of ids; null and nothing give none.
func tokenIDs(raw json.RawMessage) ([]int32, error) {
	if isNull(raw) {
		return nil, nil
	}
	var one int32
	if json.Unmarshal(raw, &one) == nil {
		return []int32{one}, nil
	}
	var many []int32
	if err := json.Unmarshal(raw, &many); err != nil {
		return nil, errors.New("is neither a token id nor a list of them")
	}
	if len(many) > 1024 {
		return nil, fmt.Errorf("lists %d ids", len(many))
	}
	return many, nil
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// decodeJSON reads one JSON value, with a byte order mark before it allowed as some editors leave one.
func decodeJSON(raw []byte, to any) error {
	if err := json.Unmarshal(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")), to); err != nil {
		return jsonError(err)
	}
	return nil
}
