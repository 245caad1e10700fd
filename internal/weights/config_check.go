package weights

import (
	"fmt"
	"math"
)

// validate checks that the numbers make sense and that the kernels can work with them. Whatever it lets through cannot
// overflow an int when tensor sizes are computed.
func (c *Config) validate() error {
	if err := c.validateFamily(); err != nil {
		return err
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
	if err := c.validateRope(); err != nil {
		return err
	}
	if err := c.validateMoE(); err != nil {
		return err
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

// validateFamily checks the architecture and what belongs to it alone.
func (c *Config) validateFamily() error {
	f := familyNamed(c.Architecture)
	switch {
	case f == nil:
		return fmt.Errorf("architecture %q is not supported; supported are %s", c.Architecture, familyNames())
	case (c.MoE != nil) != f.moe:
		return fmt.Errorf("architecture %s with a mixture of experts: %v, want %v", f.name, c.MoE != nil, f.moe)
	case c.QKNorm != f.qkNorm:
		return fmt.Errorf("architecture %s with norms of q and k: %v, want %v", f.name, c.QKNorm, f.qkNorm)
	case c.QKVBias != f.qkvBias:
		return fmt.Errorf("architecture %s with biases of q, k and v alone: %v, want %v", f.name, c.QKVBias, f.qkvBias)
	case c.UseBias && !f.useBias:
		return fmt.Errorf("architecture %s with a bias in every linear layer is not supported", f.name)
	}
	return nil
}

func (c *Config) validateRope() error {
	if !(c.RopeTheta >= 1 && c.RopeTheta <= 1e12) {
		return fmt.Errorf("rope_theta is %v, want 1 to 1e12", c.RopeTheta)
	}
	if n := len(c.RopeFactors); n != 0 && n != c.HeadDim/2 {
		return fmt.Errorf("%d rope factors, want one for each of the %d frequencies", n, c.HeadDim/2)
	}
	for i, f := range c.RopeFactors {
		if !(f >= 1e-6 && f <= 1e6) {
			return fmt.Errorf("rope factor %d is %v, want 1e-6 to 1e6", i, f)
		}
	}
	s := c.RopeScaling
	if s == nil {
		return nil
	}
	switch {
	case s.Type != ropeLlama3:
		return fmt.Errorf("rope type %q is not supported; default and %s are", s.Type, ropeLlama3)
	case c.RopeFactors != nil:
		return fmt.Errorf("rope factors beside rope scaling of type %s: the frequencies would be scaled twice", s.Type)
	case !(s.Factor >= 1 && s.Factor <= 1e6):
		return fmt.Errorf("rope scaling: factor is %v, want 1 to 1e6", s.Factor)
	case !(s.LowFreqFactor >= 1e-3 && s.LowFreqFactor < s.HighFreqFactor && s.HighFreqFactor <= 1e6):
		return fmt.Errorf("rope scaling: low_freq_factor is %v and high_freq_factor %v, want the first smaller, and both 0.001 to 1e6",
			s.LowFreqFactor, s.HighFreqFactor)
	case s.OriginalPosition < 1 || s.OriginalPosition > 1<<24:
		return fmt.Errorf("rope scaling: original_max_position_embeddings is %d, want 1 to %d", s.OriginalPosition, 1<<24)
	}
	return nil
}

// maxExperts bounds the experts of a model, all layers together: each has three tensors, whose names are listed in memory.
const maxExperts = 1 << 14

func (c *Config) validateMoE() error {
	m := c.MoE
	if m == nil {
		return nil
	}
	for _, f := range []struct {
		name                   string
		value, min, max, every int
	}{
		{"moe_num_experts", m.NumExperts, 1, MaxExperts, 1},
		{"moe_k", m.TopK, 1, min(m.NumExperts, MaxTopK), 1},
		{"moe_intermediate_size", m.ExpertSize, 8, 1 << 20, 8},
		{"the width of the shared experts", m.SharedExpertSize, 0, 1 << 20, 8},
		{"moe_layer_interval", m.Interval, 1, 1024, 1},
		{"moe_layer_start_index", m.FirstLayer, 0, c.NumLayers, 1},
		{"moe_layer_end_index", m.LastLayer, 0, c.NumLayers - 1, 1},
	} {
		switch {
		case f.value < f.min || f.value > f.max:
			return fmt.Errorf("%s is %d, want %d to %d", f.name, f.value, f.min, f.max)
		case f.value%f.every != 0:
			return fmt.Errorf("%s is %d, want a multiple of %d", f.name, f.value, f.every)
		}
	}
	if !(m.NormMin >= 0 && m.NormMin <= 1) {
		return fmt.Errorf("moe_norm_min is %v, want 0 to 1", m.NormMin)
	}
	sparse := 0
	for l := range c.NumLayers {
		if c.Sparse(l) {
			sparse++
		}
	}
	if n := sparse * m.NumExperts; n > maxExperts {
		return fmt.Errorf("%d layers of moe_num_experts %d have %d experts, want at most %d together", sparse, m.NumExperts, n, maxExperts)
	}
	return nil
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
