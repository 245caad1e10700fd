package weights

import (
	"strconv"
	"strings"
)

// ggufStems are the names of tensors without their ending: those of Hugging Face, and what GGUF files call them. A tensor of a
// layer has model.layers.N. before it, there blk.N. instead; # stands for the number of an expert, whose matrices GGUF files stack
// in one tensor.
var ggufStems = map[string]string{
	"model.embed_tokens": "token_embd",
	"model.norm":         "output_norm",
	"lm_head":            "output",

	"input_layernorm":          "attn_norm",
	"self_attn.q_proj":         "attn_q",
	"self_attn.k_proj":         "attn_k",
	"self_attn.v_proj":         "attn_v",
	"self_attn.o_proj":         "attn_output",
	"self_attn.q_norm":         "attn_q_norm",
	"self_attn.k_norm":         "attn_k_norm",
	"post_attention_layernorm": "ffn_norm",

	"mlp.gate_proj": "ffn_gate",
	"mlp.up_proj":   "ffn_up",
	"mlp.down_proj": "ffn_down",

	"mlp.gate":                     "ffn_gate_inp",
	"mlp.experts.#.gate_proj":      "ffn_gate_exps",
	"mlp.experts.#.up_proj":        "ffn_up_exps",
	"mlp.experts.#.down_proj":      "ffn_down_exps",
	"mlp.shared_experts.gate_proj": "ffn_gate_shexp",
	"mlp.shared_experts.up_proj":   "ffn_up_shexp",
	"mlp.shared_experts.down_proj": "ffn_down_shexp",
}

// Names that follow no rule.
const (
	hfCorrection    = "mlp.moe_statics.e_score_correction_bias"
	ggufCorrection  = "exp_probs_b.bias"
	ggufRopeFactors = "rope_freqs.weight"
)

// ggufName translates the name of a tensor from Hugging Face's. expert is -1, or which one of a stack it is.
func ggufName(name string) (translated string, expert int, ok bool) {
	expert = -1
	layer, rest := "", name
	if after, found := strings.CutPrefix(name, "model.layers."); found {
		n, of, found := strings.Cut(after, ".")
		if _, isNumber := decimal(n); !found || !isNumber {
			return "", -1, false
		}
		layer, rest = "blk."+n+".", of
	}
	if rest == hfCorrection {
		return layer + ggufCorrection, -1, layer != ""
	}
	dot := strings.LastIndexByte(rest, '.')
	if dot < 0 {
		return "", -1, false
	}
	stem, ending := rest[:dot], rest[dot:]
	if ending != ".weight" && ending != ".bias" {
		return "", -1, false
	}
	const experts = "mlp.experts."
	if after, found := strings.CutPrefix(stem, experts); found {
		n, part, _ := strings.Cut(after, ".")
		if expert, found = decimal(n); !found {
			return "", -1, false
		}
		stem = experts + "#." + part
	}
	short, ok := ggufStems[stem]
	inLayer := !strings.HasPrefix(stem, "model.") && stem != "lm_head"
	if !ok || inLayer != (layer != "") {
		return "", -1, false
	}
	return layer + short + ending, expert, true
}

// decimal reads a number as names have it: digits, no sign, no zeros before it.
func decimal(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == s
}
