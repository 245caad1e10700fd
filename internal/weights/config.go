package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// architecture is the one architecture that is supported, as Config.Architecture names it.
const architecture = "ernie4_5"

// architectures are its names in config.json: the first of the checkpoints' own code, the second of transformers.
var architectures = []string{"Ernie4_5_ForCausalLM", "Ernie4_5ForCausalLM"}

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
	UseBias          *bool    `json:"use_bias"`
	TieEmbeddings    *bool    `json:"tie_word_embeddings"`

	RopeTheta      *float64 `json:"rope_theta"`
	RopeScaling    *hfRope  `json:"rope_scaling"`
	RopeParameters *hfRope  `json:"rope_parameters"`
	Compression    *float64 `json:"compression_ratio"` // of positions, in the checkpoints' own code

	DType      json.RawMessage `json:"dtype"`
	TorchDType json.RawMessage `json:"torch_dtype"`

	EOS json.RawMessage `json:"eos_token_id"`
	BOS json.RawMessage `json:"bos_token_id"`

	Quantization json.RawMessage `json:"quantization_config"`
	Compressed   json.RawMessage `json:"compression_config"`
}

type hfRope struct {
	Theta   *float64 `json:"rope_theta"`
	Type    *string  `json:"rope_type"`
	OldType *string  `json:"type"`
	Partial *float64 `json:"partial_rotary_factor"`
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
	if err := h.supported(); err != nil {
		return nil, err
	}
	c := &Config{
		Architecture: architecture, BOS: -1,
		// What transformers assumes when the file says nothing.
		MaxPositions: 131072, RMSNormEps: 1e-5, RopeTheta: 500000, TieEmbeddings: true,
	}
	for _, f := range []struct {
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
		if f.from == nil {
			return nil, fmt.Errorf("%s is missing", f.name)
		}
		*f.to = *f.from
	}
	set(&c.MaxPositions, h.MaxPositions)
	set(&c.RMSNormEps, h.RMSNormEps)
	set(&c.UseBias, h.UseBias)
	set(&c.TieEmbeddings, h.TieEmbeddings)
	c.NumKVHeads = c.NumHeads
	set(&c.NumKVHeads, h.NumKVHeads)
	if h.HeadDim != nil {
		c.HeadDim = *h.HeadDim
	} else if c.NumHeads > 0 {
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	set(&c.RopeTheta, h.RopeTheta)
	for _, r := range []*hfRope{h.RopeScaling, h.RopeParameters} {
		if r != nil {
			set(&c.RopeTheta, r.Theta)
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
func (h *hfConfig) supported() error {
	known := "supported is ERNIE-4.5 dense: " + strings.Join(architectures, " or ") + ", model_type " + architecture
	switch {
	case len(h.Architectures) == 0 && h.ModelType == "":
		return fmt.Errorf("names no architecture; %s", known)
	case len(h.Architectures) == 0 && h.ModelType != architecture:
		return fmt.Errorf("model_type %q is not supported; %s", h.ModelType, known)
	case len(h.Architectures) > 0 && !slices.ContainsFunc(h.Architectures, func(a string) bool { return slices.Contains(architectures, a) }):
		return fmt.Errorf("architecture %q is not supported; %s", strings.Join(h.Architectures, ", "), known)
	}
	if !isNull(h.Quantization) {
		var q struct {
			Method string `json:"quant_method"`
		}
		if json.Unmarshal(h.Quantization, &q) != nil || q.Method == "" {
			q.Method = "of an unnamed method"
		}
		return fmt.Errorf("quantization_config: weights quantized by another tool (%s) are not supported; open the f32, f16 or bf16 checkpoint and let it be quantized here", q.Method)
	}
	if !isNull(h.Compressed) {
		return errors.New("compression_config: compressed weights are not supported; f32, f16 and bf16 are")
	}
	if h.HiddenAct != nil && *h.HiddenAct != "silu" {
		return fmt.Errorf("hidden_act %q is not supported; silu is", *h.HiddenAct)
	}
	if h.Compression != nil && *h.Compression != 1 {
		return fmt.Errorf("compression_ratio %v is not supported; 1 is", *h.Compression)
	}
	for _, r := range []struct {
		field string
		rope  *hfRope
	}{{"rope_scaling", h.RopeScaling}, {"rope_parameters", h.RopeParameters}} {
		if r.rope == nil {
			continue
		}
		for _, t := range []*string{r.rope.Type, r.rope.OldType} {
			if t != nil && *t != "default" {
				return fmt.Errorf("%s: rope type %q is not supported; default is", r.field, *t)
			}
		}
		if p := r.rope.Partial; p != nil && *p != 1 {
			return fmt.Errorf("%s: partial_rotary_factor %v is not supported; 1 is", r.field, *p)
		}
	}
	return nil
}

// validate checks that the numbers make sense and that the kernels can work with them. Whatever it lets through cannot
// overflow an int when tensor sizes are computed.
func (c *Config) validate() error {
	if c.Architecture != architecture {
		return fmt.Errorf("architecture %q is not supported; %s is", c.Architecture, architecture)
	}
	for _, f := range []struct {
		name              string
		value, max, every int
	}{
		{"hidden_size", c.HiddenSize, 1 << 16, 8},
		{"intermediate_size", c.IntermediateSize, 1 << 20, 8},
		{"num_hidden_layers", c.NumLayers, 1024, 1},
		{"num_attention_heads", c.NumHeads, 1024, 1},
		{"num_key_value_heads", c.NumKVHeads, 1024, 1},
		{"head_dim", c.HeadDim, 256, 16},
		{"vocab_size", c.VocabSize, 1 << 24, 1},
		{"max_position_embeddings", c.MaxPositions, 1 << 24, 1},
	} {
		switch {
		case f.value < 1 || f.value > f.max:
			return fmt.Errorf("%s is %d, want 1 to %d", f.name, f.value, f.max)
		case f.value%f.every != 0:
			return fmt.Errorf("%s is %d, want a multiple of %d", f.name, f.value, f.every)
		}
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		return fmt.Errorf("num_attention_heads %d is no multiple of num_key_value_heads %d", c.NumHeads, c.NumKVHeads)
	}
	if q := c.NumHeads * c.HeadDim; q > 1<<17 {
		return fmt.Errorf("num_attention_heads %d times head_dim %d is %d, want at most %d", c.NumHeads, c.HeadDim, q, 1<<17)
	}
	if !(c.RMSNormEps > 0 && c.RMSNormEps < 1) {
		return fmt.Errorf("rms_norm_eps is %v, want more than 0 and less than 1", c.RMSNormEps)
	}
	if !(c.RopeTheta >= 1 && c.RopeTheta <= 1e12) {
		return fmt.Errorf("rope_theta is %v, want 1 to 1e12", c.RopeTheta)
	}
	for _, id := range c.EOS {
		if id < 0 || int(id) >= c.VocabSize {
			return fmt.Errorf("eos_token_id %d is outside the vocabulary of %d", id, c.VocabSize)
		}
	}
	if c.BOS < -1 || int(c.BOS) >= c.VocabSize {
		return fmt.Errorf("bos_token_id %d is outside the vocabulary of %d", c.BOS, c.VocabSize)
	}
	return c.Sampling.validate()
}

func (s *Sampling) validate() error {
	for _, f := range []struct {
		name     string
		value    *float64
		min, max float64
	}{
		{"temperature", s.Temperature, 0, 100},
		{"top_p", s.TopP, math.SmallestNonzeroFloat64, 1},
		{"min_p", s.MinP, 0, 1},
		{"repetition_penalty", s.RepetitionPenalty, math.SmallestNonzeroFloat64, 100},
	} {
		if f.value != nil && !(*f.value >= f.min && *f.value <= f.max) {
			return fmt.Errorf("sampling default %s is %v, want %v to %v", f.name, *f.value, f.min, f.max)
		}
	}
	if s.TopK != nil && *s.TopK < -1 {
		return fmt.Errorf("sampling default top_k is %d, want -1 or more", *s.TopK)
	}
	if s.MaxNewTokens != nil && *s.MaxNewTokens < 1 {
		return fmt.Errorf("sampling default max_new_tokens is %d, want 1 or more", *s.MaxNewTokens)
	}
	return nil
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
