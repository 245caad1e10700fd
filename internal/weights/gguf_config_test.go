package weights

import (
	"slices"
	"testing"
)

// withBiases adds biases for the given stems.
func (m ggufMaker) withBiases(stems map[string]uint64) ggufMaker {
	for _, stem := range []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"} {
		if n, ok := stems[stem]; ok {
			m = m.add(smallTensor("blk.0."+stem+".bias", ggmlF32, n))
		}
	}
	return m
}

var qkvBiases = map[string]uint64{"attn_q": 32, "attn_k": 16, "attn_v": 16}

// TestGGUFArchitectures: what differs between the architectures, and between their files and the checkpoints.
func TestGGUFArchitectures(t *testing.T) {
	t.Parallel()
	allBiases := map[string]uint64{"attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32, "ffn_gate": 64, "ffn_up": 64, "ffn_down": 32}
	norms := []ggufEntry{smallTensor("blk.0.attn_q_norm.weight", ggmlF32, 16), smallTensor("blk.0.attn_k_norm.weight", ggmlF32, 16)}
	type facts struct {
		Architecture                            string
		HalfSplit, UseBias, QKVBias, Norms, Tie bool
		Factors                                 int
	}
	for _, c := range []struct {
		name string
		file ggufMaker
		want facts
	}{
		{"ernie", smallGGUF(t, "ernie4_5"), facts{Architecture: "ernie4_5", Tie: true}},
		{"ernie with biases", smallGGUF(t, "ernie4_5").withBiases(allBiases), facts{Architecture: "ernie4_5", UseBias: true, Tie: true}},
		{"ernie moe", smallMoEGGUF(t), facts{Architecture: "ernie4_5_moe", Tie: true}},
		// Its rows of q and k are permuted in these files: neighbours turn together.
		{"llama", smallGGUF(t, "llama"), facts{Architecture: "llama", Tie: true}},
		{"llama, untied", smallGGUF(t, "llama").add(smallTensor("output.weight", ggmlBF16, 32, 40)), facts{Architecture: "llama"}},
		{"llama 3", smallGGUF(t, "llama").add(smallTensor("rope_freqs.weight", ggmlF32, 8)).edit("rope_freqs.weight", func(e *ggufEntry) {
			for i := range 8 {
				e.data[4*i+3] &= 0x7F // factors are positive
			}
		}), facts{Architecture: "llama", Tie: true, Factors: 8}},
		{"qwen2", smallGGUF(t, "qwen2").withBiases(qkvBiases), facts{Architecture: "qwen2", HalfSplit: true, QKVBias: true, Tie: true}},
		{"qwen3", smallGGUF(t, "qwen3").add(norms...), facts{Architecture: "qwen3", HalfSplit: true, Norms: true, Tie: true}},
	} {
		src := c.file.open(t)
		g := src.Config()
		got := facts{g.Architecture, g.RopeHalfSplit, g.UseBias, g.QKVBias, g.QKNorm, g.TieEmbeddings, len(g.RopeFactors)}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if err := readAll(t, src); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	smallGGUF(t, "qwen2").refused(t, "self_attn.q_proj.bias (blk.0.attn_q.bias)", "no such tensor")
	smallGGUF(t, "qwen3").refused(t, "self_attn.q_norm.weight (blk.0.attn_q_norm.weight)", "no such tensor")
	smallGGUF(t, "llama").withBiases(qkvBiases).refused(t, "self_attn.o_proj.bias (blk.0.attn_output.bias)", "no such tensor")
	smallGGUF(t, "llama").add(norms...).refused(t, `"blk.0.attn_k_norm.weight" is no part of the architecture llama`)
}

// TestGGUFConfigDefaults: keys that many files leave out, and those that say the same in another way.
func TestGGUFConfigDefaults(t *testing.T) {
	t.Parallel()
	right := smallGGUF(t, "ernie4_5")
	want := mustJSON(t, right.open(t).Config())
	for _, m := range []ggufMaker{
		right.without("ernie4_5.attention.value_length"),
		right.without("ernie4_5.attention.key_length").without("ernie4_5.attention.value_length"), // hidden size over heads
		right.with("ernie4_5.rope.dimension_count", uint32(16)),
		right.with("ernie4_5.rope.scaling.type", "none"),
		right.with("ernie4_5.rope.scaling.type", "linear").with("ernie4_5.rope.scaling.factor", float32(1)),
		right.with("ernie4_5.attention.head_count_kv", []int32{1}),
		right.with("ernie4_5.block_count", uint64(1)),
		right.with("ernie4_5.block_count", int8(1)),
		right.with("ernie4_5.attention.layer_norm_rms_epsilon", 1e-5),
		right.with("ernie4_5.attention.sliding_window", uint32(4096)),
		right.with("tokenizer.ggml.eot_token_id", uint32(1<<32-1)),
		right.with("general.type", "model").with("general.alignment", uint32(32)),
		right.with("split.count", uint16(0)),
	} {
		if got := mustJSON(t, m.open(t).Config()); got != want {
			t.Errorf("%+v gives\n%s\nwant\n%s", m.kv[len(m.kv)-1], got, want)
		}
	}
	if c := right.without("ernie4_5.rope.freq_base").open(t).Config(); c.RopeTheta != 10000 {
		t.Errorf("rope theta %v where the file says nothing, want 10000", c.RopeTheta)
	}
	if c := right.without("tokenizer.ggml.bos_token_id").without("tokenizer.ggml.eos_token_id").open(t).Config(); c.BOS != -1 || len(c.EOS) != 0 {
		t.Errorf("BOS %d, EOS %v where the file says nothing", c.BOS, c.EOS)
	}
	// Up to its width a window changes nothing, so the context ends there.
	if c := right.with("ernie4_5.attention.sliding_window", uint32(100)).open(t).Config(); c.MaxPositions != 100 {
		t.Errorf("%d positions with a window of 100", c.MaxPositions)
	}
	src, err := OpenGGUF(t.Context(), "", memBlob(right.file()))
	if err != nil {
		t.Fatal(err)
	}
	if name := src.Config().Name; name != "Small Model" {
		t.Errorf("without a file's name the model is called %q, want what general.name says", name)
	}
}

// TestGGUFEndsAndSampling: all tokens that end an answer, and the defaults for sampling.
func TestGGUFEndsAndSampling(t *testing.T) {
	t.Parallel()
	tokens, types := make([]string, 40), make([]int32, 40)
	for i := range tokens {
		tokens[i], types[i] = string(rune('a'+i)), 1
	}
	tokens[7], types[7] = "<|im_end|>", 3
	tokens[8], types[8] = "<|eot_id|>", 1 // text that looks like it
	tokens[9], types[9] = "<|endoftext|>", 3
	m := smallGGUF(t, "ernie4_5").
		with("tokenizer.ggml.eot_token_id", uint32(5)).with("tokenizer.ggml.eom_token_id", uint32(2)).
		with("tokenizer.ggml.tokens", tokens).with("tokenizer.ggml.token_type", types).
		with("general.sampling.temp", float32(0.7)).with("general.sampling.top_p", float32(0.8)).with("general.sampling.top_k", int32(20)).
		with("general.sampling.min_p", 0.05).with("general.sampling.penalty_repeat", float32(1.05))
	f, err := readGGUF("some.gguf", memBlob(m.file()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ggufConfig(f.kv, func(name string) (ggufTensor, bool) { g, ok := f.tensors[name]; return g, ok })
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{2, 5, 7, 9}; !slices.Equal(c.EOS, want) {
		t.Errorf("EOS %v, want %v", c.EOS, want)
	}
	const want = `{"temperature":0.7,"top_p":0.8,"top_k":20,"min_p":0.05,"repetition_penalty":1.05}`
	if got := mustJSON(t, c.Sampling); got != want {
		t.Errorf("sampling %s, want %s", got, want)
	}
}
