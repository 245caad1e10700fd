package weights

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// ggufArchitectures are the values of general.architecture that can be read, and the names of Hugging Face for them.
var ggufArchitectures = map[string]string{
	"ernie4_5": "ernie4_5", "ernie4_5-moe": "ernie4_5_moe", "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
}

// ggufEndTexts are control tokens that end an answer whatever the keys say: many files name there the end of a text or that of
// a turn, and not both, as a generation_config.json does.
var ggufEndTexts = []string{
	"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_sentence|>", "<end_of_turn>", "<|end|>",
}

// ggufControl is the type of a control token in tokenizer.ggml.token_type.
const ggufControl = 3

// ggufKeys reads the keys of one architecture and keeps the first error.
type ggufKeys struct {
	kv   metadata
	arch string
	err  error
}

func (k *ggufKeys) note(err error) {
	if k.err == nil {
		k.err = err
	}
}

// size reads a whole number of the architecture; absent -1 says that it must be there. Some files have one number a layer:
// these must all be the same.
func (k *ggufKeys) size(key string, absent int) int {
	key = k.arch + "." + key
	v, ok := k.kv[key]
	switch {
	case !ok && absent < 0:
		k.note(fmt.Errorf("%s is missing", key))
		return 0
	case ok && v.array:
		each, err := k.kv.integers(key)
		k.note(err)
		if len(each) == 0 || slices.Min(each) != slices.Max(each) {
			k.note(fmt.Errorf("%s differs from layer to layer, which is not supported", key))
			return 0
		}
		return int(each[0])
	}
	n, err := k.kv.integer(key, int64(absent))
	k.note(err)
	if n < 0 || n > math.MaxInt32 {
		k.note(fmt.Errorf("%s is %d", key, n))
		return 0
	}
	return int(n)
}

// float reads a number. One of 32 bits becomes the shortest decimal that it stands for, as the original configuration had it:
// 1e-5, not 9.99999974737875e-06.
func (k *ggufKeys) float(key string, absent float64) float64 {
	x, err := k.kv.number(key, absent)
	k.note(err)
	if k.kv[key].kind == ggufF32 {
		if short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, 32), 64); err == nil {
			return short
		}
	}
	return x
}

func (k *ggufKeys) text(key, absent string) string {
	s, err := k.kv.text(key, absent)
	k.note(err)
	return s
}

// ggufConfig makes a Config of metadata and of the shapes of tensors, which are found by their names in the file.
func ggufConfig(kv metadata, tensor func(name string) (ggufTensor, bool)) (*Config, error) {
	arch, err := ggufArchitecture(kv)
	if err != nil {
		return nil, err
	}
	k := &ggufKeys{kv: kv, arch: arch}
	f := familyNamed(ggufArchitectures[arch])
	embedding, ok := tensor("token_embd.weight")
	if !ok || len(embedding.dims) != 2 {
		return nil, errors.New("there is no matrix token_embd.weight: the file holds no whole model")
	}
	_, untied := tensor("output.weight")
	_, bias := tensor("blk.0.attn_q.bias")
	c := &Config{
		Architecture: f.name, Name: k.text("general.name", ""),
		HiddenSize: k.size("embedding_length", -1), IntermediateSize: k.size("feed_forward_length", -1),
		NumLayers: k.size("block_count", -1), NumHeads: k.size("attention.head_count", -1),
		VocabSize: embedding.dims[1], MaxPositions: k.size("context_length", -1),
		RMSNormEps: k.float(arch+".attention.layer_norm_rms_epsilon", 0), RopeTheta: k.float(arch+".rope.freq_base", 10000),
		// The rows of q and k of a llama file are permuted so that neighbours turn together.
		RopeHalfSplit: f.halfSplit && arch != "llama",
		UseBias:       bias && !f.qkvBias, QKVBias: f.qkvBias, QKNorm: f.qkNorm, TieEmbeddings: !untied,
		BOS: k.token("bos"), EOS: k.ends(),
	}
	c.NumKVHeads = k.size("attention.head_count_kv", c.NumHeads)
	k.heads(c)
	k.rope(c)
	if f.moe {
		c.MoE = k.moe(c, tensor)
	} else if n := k.size("expert_count", 0); n > 0 {
		k.note(fmt.Errorf("%s.expert_count is %d: a mixture of experts is supported in ernie4_5-moe only", arch, n))
	}
	k.sampling(&c.Sampling)
	if k.err != nil {
		return nil, k.err
	}
	return c, c.validate()
}

// ggufArchitecture names the architecture, or refuses what is no language model.
func ggufArchitecture(kv metadata) (string, error) {
	arch, err := kv.text("general.architecture", "")
	if err != nil {
		return "", err
	}
	kind, err := kv.text("general.type", "model")
	if err != nil {
		return "", err
	}
	switch {
	case arch == "clip" || kind == "mmproj":
		return "", errors.New("is the part of a model that sees or hears (mmproj); give the file of its language model")
	case kind != "model":
		return "", fmt.Errorf("general.type is %q; want a model", kind)
	case arch == "":
		return "", errors.New("general.architecture is missing")
	}
	if _, ok := ggufArchitectures[arch]; !ok {
		return "", fmt.Errorf("general.architecture %q is not supported; ernie4_5, ernie4_5-moe, llama, qwen2 and qwen3 are", arch)
	}
	return arch, nil
}

// heads reads the width of a head, and refuses heads and windows that are not computed here.
func (k *ggufKeys) heads(c *Config) {
	if c.NumHeads < 1 {
		k.note(fmt.Errorf("%s.attention.head_count is %d", k.arch, c.NumHeads))
		return
	}
	c.HeadDim = k.size("attention.key_length", c.HiddenSize/c.NumHeads)
	if n := k.size("attention.value_length", c.HeadDim); n != c.HeadDim {
		k.note(fmt.Errorf("%s.attention.value_length is %d and the keys' %d; only equal ones are supported", k.arch, n, c.HeadDim))
	}
	if n := k.size("rope.dimension_count", c.HeadDim); n != c.HeadDim {
		k.note(fmt.Errorf("%s.rope.dimension_count is %d of heads of %d; a rotary embedding of whole heads is supported", k.arch, n, c.HeadDim))
	}
	// A window over all positions is none, so a context as long as the window needs no support for it.
	if n := k.size("attention.sliding_window", 0); n > 0 {
		c.MaxPositions = min(c.MaxPositions, n)
	}
	causal, err := k.kv.flag(k.arch+".attention.causal", true)
	k.note(err)
	if !causal {
		k.note(fmt.Errorf("%s.attention.causal is false: this model makes embeddings, no text", k.arch))
	}
}

// rope refuses scalings other than by factors for each frequency, which are a tensor.
func (k *ggufKeys) rope(c *Config) {
	kind := k.text(k.arch+".rope.scaling.type", "none")
	factor := k.float(k.arch+".rope.scaling.factor", k.float(k.arch+".rope.scale_linear", 1))
	plain := factor == 0 || factor == 1
	if kind == "longrope" || !plain {
		k.note(fmt.Errorf("%s.rope.scaling.type is %q with factor %v, which is not supported; files without scaling, and with llama 3's (%s), are",
			k.arch, kind, factor, ggufRopeFactors))
	}
}

// moe reads the mixture of experts. The key for the width of the shared expert has another number than the tensors in files
// of llama.cpp (the intermediate size over the number of key-value heads), so that the tensors count.
func (k *ggufKeys) moe(c *Config, tensor func(name string) (ggufTensor, bool)) *MoE {
	m := &MoE{
		NumExperts: k.size("expert_count", -1), TopK: k.size("expert_used_count", -1),
		ExpertSize: k.size("expert_feed_forward_length", -1), NormMin: 1e-12,
		FirstLayer: k.size("leading_dense_block_count", 0), LastLayer: c.NumLayers - 1,
		Interval: k.size("interleave_moe_layer_step", 1),
	}
	for l := range min(c.NumLayers, 1024) {
		if t, ok := tensor("blk." + strconv.Itoa(l) + ".ffn_gate_shexp.weight"); ok && len(t.dims) == 2 {
			m.SharedExpertSize = t.dims[1]
			break
		}
	}
	return m
}

// token reads the id of a special token; -1 where there is none, which files also say with 2^32-1.
func (k *ggufKeys) token(what string) int32 {
	key := "tokenizer.ggml." + what + "_token_id"
	n, err := k.kv.integer(key, -1)
	k.note(err)
	if n == -1 || n == math.MaxUint32 {
		return -1
	}
	if n < 0 || n > math.MaxInt32 {
		k.note(fmt.Errorf("%s is %d", key, n))
		return -1
	}
	return int32(n)
}

// ends are the tokens that end an answer.
func (k *ggufKeys) ends() []int32 {
	var ids []int32
	add := func(id int32) {
		if id >= 0 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, what := range []string{"eos", "eot", "eom"} {
		add(k.token(what))
	}
	texts, err := k.kv.texts("tokenizer.ggml.tokens")
	k.note(err)
	types, err := k.kv.integers("tokenizer.ggml.token_type")
	k.note(err)
	for id := range min(len(texts), len(types)) {
		if types[id] == ggufControl && slices.Contains(ggufEndTexts, texts[id]) {
			add(int32(id))
		}
	}
	return ids
}

// sampling reads the defaults that some files state.
func (k *ggufKeys) sampling(s *Sampling) {
	const prefix = "general.sampling."
	for _, f := range []struct {
		key string
		to  **float64
	}{{"temp", &s.Temperature}, {"top_p", &s.TopP}, {"min_p", &s.MinP}, {"penalty_repeat", &s.RepetitionPenalty}} {
		if k.kv.has(prefix + f.key) {
			x := k.float(prefix+f.key, 0)
			*f.to = &x
		}
	}
	if k.kv.has(prefix + "top_k") {
		n, err := k.kv.integer(prefix+"top_k", 0)
		k.note(err)
		top := int(max(-1, min(n, math.MaxInt32)))
		s.TopK = &top
	}
}
