package wgsl

import "sync"

// Access says how a kernel sees a binding.
type Access uint8

// The kinds of access.
const (
	Uniform   Access = iota // var<uniform>
	Read                    // var<storage, read>
	ReadWrite               // var<storage, read_write>
)

// Binding is one binding of group 0.
type Binding struct {
	Name   string
	Access Access
}

// Kernel describes one kernel file. The file's header has the rest: formula, shapes, grid, traffic, numerics.
type Kernel struct {
	Name     string    // of the file, of the entry point, of the Go file and of the conformance case
	Bindings []Binding // 0, 1, ...
	Tuning   []string  // constants that the engine sets, beside those of a weight lib
	Libs     []string  // appended always
	Weights  bool      // a lib_weight file is appended too, by the format of the weights; Params have k, the inputs or the dimension
	Serial   bool      // has no barriers and is made for software adapters
	Ref      string    // the function of internal/ref that it is held against
}

// WeightLib is the lib file for a layout of weights: "f32", "f16", "bf16", "q8", "q4", "runs", "iq4", "f8", "ccq275", "ccq25" or
// "ccq2".
func WeightLib(layout string) string { return "lib_weight_" + layout }

// LibFiles are the files that are appended to kernels.
func LibFiles() []string {
	return []string{
		"lib_advance", "lib_dot", "lib_kv", "lib_matmul_serial", "lib_norm_linear", "lib_parts", "lib_place", "lib_place_subgroups", "lib_row_sums",
		"lib_row_sums_subgroups", "lib_sample", "lib_scores", "lib_scores_subgroups", "lib_serial_rows", "lib_topk",
		"lib_weight_bf16", "lib_weight_ccq2", "lib_weight_ccq25", "lib_weight_ccq275", "lib_weight_f16", "lib_weight_f32", "lib_weight_f8",
		"lib_weight_iq4", "lib_weight_q4", "lib_weight_q8", "lib_weight_runs",
	}
}

// bindings lists params and step, which every kernel has first, then inputs, then outputs. A name that ends in "!" is
// written, one that ends in "?" is a uniform.
func bindings(names ...string) []Binding {
	list := []Binding{{"p", Uniform}, {"step", Uniform}}
	for _, name := range names {
		switch n := len(name) - 1; name[n] {
		case '!':
			list = append(list, Binding{name[:n], ReadWrite})
		case '?':
			list = append(list, Binding{name[:n], Uniform})
		default:
			list = append(list, Binding{name, Read})
		}
	}
	return list
}

// Kernels lists every kernel. It is the same list each time: nobody may change it.
func Kernels() []Kernel { return table() }

var (
	table  = sync.OnceValue(makeTable)
	byName = sync.OnceValue(func() map[string]int {
		index := map[string]int{}
		for i, k := range table() {
			index[k.Name] = i
		}
		return index
	})
)

func makeTable() []Kernel {
	linear := bindings("x", "w", "scales", "bias", "y!")
	experts := bindings("x", "groups", "w", "scales", "y!")
	attention := []string{"tokens", "block_tables", "qkv", "k_cache", "v_cache"}
	dot, kv, topk, serial := []string{"lib_dot"}, []string{"lib_kv"}, []string{"lib_topk"}, []string{"lib_matmul_serial", "lib_serial_rows"}
	parts := []string{"lib_parts"}
	fused, advance := []string{"lib_norm_linear", "lib_place", "lib_row_sums"}, []string{"lib_advance"}
	row := []string{"states!", "tokens!", "ring!", "counts!"}
	return []Kernel{
		{
			Name: "embed", Bindings: bindings("tokens", "w", "scales", "x!"),
			Tuning: []string{"WG"}, Weights: true, Ref: "Embed",
		},
		{Name: "rms_norm", Bindings: bindings("x", "weight", "y!"), Tuning: []string{"WG"}, Ref: "RMSNorm"},
		{
			Name: "rms_norm_serial", Bindings: bindings("x", "weight", "y!"),
			Tuning: []string{"WG"}, Serial: true, Ref: "RMSNorm",
		},
		{
			Name: "matvec", Bindings: linear, Tuning: []string{"WG", "LANES", "ROWS_M", "WIDE"},
			Libs: dot, Weights: true, Ref: "Matmul",
		},
		{Name: "matmul", Bindings: linear, Weights: true, Ref: "Matmul"},
		{
			Name: "matmul_lanes", Bindings: bindings("x", "w", "scales", "bias", "weight", "y!"),
			Tuning: []string{"LANES", "ROWS", "GATED", "NORM"}, Weights: true, Ref: "MatmulParts",
		},
		{Name: "matmul_tile", Bindings: linear, Tuning: []string{"WG", "TX", "TY", "TM", "VECS", "GATED"}, Weights: true, Ref: "MatmulParts"},
		{Name: "sum_norm", Bindings: bindings("parts", "bias", "weight", "x!", "y!"), Libs: parts, Ref: "SumNorm"},
		{Name: "sum_parts", Bindings: bindings("parts", "bias", "y!"), Tuning: []string{"WG", "GATED"}, Libs: parts, Ref: "SumParts"},
		{
			Name: "matmul_serial", Bindings: linear, Tuning: []string{"WG", "TOKENS", "FOURS", "WIDE"},
			Libs: serial, Weights: true, Serial: true, Ref: "Matmul",
		},
		{
			Name: "matmul_uniform", Bindings: bindings("x?", "w", "scales", "bias", "y!"),
			Tuning: []string{"WG", "TOKENS", "FOURS", "WIDE"}, Libs: serial, Weights: true, Serial: true, Ref: "Matmul",
		},
		{
			Name: "rope", Bindings: bindings("tokens", "table", "qkv!"),
			Tuning: []string{"WG", "HEAD_DIM", "HALF_SPLIT"}, Ref: "Rope",
		},
		{
			Name: "qk_norm", Bindings: bindings("q_weight", "k_weight", "qkv!"),
			Tuning: []string{"WG", "LANES", "HEAD_DIM"}, Ref: "QKNorm",
		},
		{
			Name: "rope_store", Bindings: bindings("tokens", "table", "parts", "bias", "qkv!", "k_cache!", "v_cache!"),
			Tuning: []string{"WG", "HEAD_DIM", "HALF_SPLIT", "KV_TYPE"}, Libs: parts, Ref: "RopeStore",
		},
		{
			Name: "kv_store", Bindings: bindings("tokens", "qkv", "k_cache!", "v_cache!"),
			Tuning: []string{"WG", "HEAD_DIM", "KV_TYPE"}, Ref: "KVStore",
		},
		{
			Name: "kv_store_i8", Bindings: bindings("tokens", "qkv", "k_cache!", "v_cache!"),
			Tuning: []string{"WG", "HEAD_DIM"}, Ref: "KVStore",
		},
		{
			Name: "paged_attn_prefill", Bindings: bindings(append(attention, "out!")...),
			Tuning: []string{"TILE", "HEAD_DIM", "KV_TYPE"}, Libs: kv, Ref: "PagedAttn",
		},
		{
			Name: "paged_attn_decode", Bindings: bindings(append(attention, "partial!")...),
			Tuning: []string{"WG", "PART", "HEAD_DIM", "KV_TYPE"}, Libs: kv, Ref: "PagedAttnDecode",
		},
		{
			Name: "paged_attn_grouped", Bindings: bindings(append(attention, "partial!")...),
			Tuning: []string{"WG", "HEADS", "HEAD_DIM", "KV_TYPE", "WHOLE", "AHEAD"}, Libs: kv, Ref: "PagedAttnDecode",
		},
		{
			Name: "paged_attn_few", Bindings: bindings("tokens?", "block_tables", "qkv", "k_cache", "v_cache", "partial!"),
			Tuning: []string{"WG", "PART", "HEADS", "SLICES", "HEAD_DIM", "KV_TYPE"}, Libs: []string{"lib_kv", "lib_place", "lib_scores"}, Ref: "PagedAttnDecode",
		},
		{
			Name: "paged_attn_join", Bindings: bindings("tokens?", "partial", "out!"),
			Tuning: []string{"WG", "HEAD_DIM", "PART"}, Ref: "PagedAttnReduce",
		},
		{
			Name: "attn_linear", Bindings: bindings("tokens?", "partial", "w", "scales", "y!"),
			Tuning: []string{"WG", "LANES", "FOURS", "K", "N", "HEAD_DIM", "PARTS", "PART"}, Libs: fused, Weights: true, Ref: "AttnLinear",
		},
		{
			Name: "paged_attn_linear", Bindings: bindings("tokens?", "block_tables", "qkv", "k_cache", "v_cache", "w", "scales", "shares!"),
			Tuning: []string{"WG", "HEADS", "EACH", "SLICES", "K", "N", "HEAD_DIM", "KV_TYPE"}, Weights: true, Ref: "PagedAttnLinear",
		},
		{
			Name: "paged_attn_reduce", Bindings: bindings("partial", "out!"),
			Tuning: []string{"WG", "HEAD_DIM"}, Ref: "PagedAttnReduce",
		},
		{
			Name: "paged_attn_serial", Bindings: bindings(append(attention, "out!")...),
			Tuning: []string{"WG", "HEADS", "SPLIT", "PART", "HEAD_DIM", "KV_TYPE"}, Libs: kv, Serial: true, Ref: "PagedAttn",
		},
		{
			Name: "norm_linear", Bindings: bindings("x", "weight", "w", "scales", "bias", "shares", "y!"),
			Tuning: []string{"WG", "LANES", "FOURS", "K", "N", "NORM", "GATED", "X_SHARES", "Y_SHARES"}, Libs: fused, Weights: true, Ref: "NormLinear",
		},
		{
			Name: "qkv_rope_store", Bindings: bindings("tokens?", "x", "weight", "w", "scales", "table", "qkv!", "k_cache!", "v_cache!"),
			Tuning: []string{"WG", "LANES", "FOURS", "K", "HEADS", "HEAD_DIM", "HALF_SPLIT", "KV_TYPE"}, Libs: fused, Weights: true, Ref: "QKVRopeStore",
		},
		{Name: "silu_mul", Bindings: bindings("gate_up", "out!"), Tuning: []string{"WG"}, Ref: "SiLUMul"},
		{Name: "gather_rows", Bindings: bindings("rows", "x", "out!"), Tuning: []string{"WG"}, Ref: "GatherRows"},
		{Name: "gather_columns", Bindings: bindings("order", "x", "out!"), Tuning: []string{"WG"}, Ref: "GatherColumns"},
		{Name: "moe_route", Bindings: bindings("logits", "bias", "chosen!", "shares!"), Tuning: []string{"WG"}, Ref: "Route"},
		{Name: "moe_group", Bindings: bindings("chosen", "groups!"), Tuning: []string{"WG", "TILE"}, Ref: "GroupExperts"},
		{
			Name: "moe_matvec", Bindings: bindings("x", "chosen", "w", "scales", "y!"), Tuning: []string{"WG", "LANES", "WIDE"},
			Libs: dot, Weights: true, Ref: "Experts",
		},
		{Name: "moe_matmul", Bindings: experts, Weights: true, Ref: "Experts"},
		{
			Name: "moe_serial", Bindings: experts, Tuning: []string{"WG", "TILE", "WIDE"},
			Libs: []string{"lib_serial_rows"}, Weights: true, Serial: true, Ref: "Experts",
		},
		{Name: "moe_combine", Bindings: bindings("shares", "parts", "y!"), Tuning: []string{"WG"}, Ref: "CombineExperts"},
		{Name: "argmax_partial", Bindings: bindings("logits", "partial!"), Tuning: []string{"WG"}, Ref: "Argmax"},
		{Name: "argmax_blocks", Bindings: bindings("logits", "partial!"), Ref: "Argmax"},
		{Name: "argmax_reduce", Bindings: bindings("partial", "ids!"), Tuning: []string{"WG"}, Ref: "Argmax"},
		{
			Name: "head_argmax", Bindings: bindings("rows?", "x", "weight", "w", "scales", "logits!", "partial!"),
			Tuning: []string{"WG", "LANES", "FOURS", "K", "N"}, Libs: fused, Weights: true, Ref: "HeadArgmax",
		},
		{
			Name: "argmax_advance", Bindings: bindings(append([]string{"partial", "stops", "block_tables", "ids!"}, row...)...),
			Tuning: []string{"WG", "COUNTS"}, Libs: advance, Ref: "Advance",
		},
		{
			Name: "advance", Bindings: bindings(append([]string{"ids", "stops", "block_tables"}, row...)...),
			Tuning: []string{"WG", "COUNTS"}, Libs: advance, Ref: "Advance",
		},
		{
			Name: "topk_partial", Bindings: bindings("draws", "logits", "partial!"),
			Tuning: []string{"WG"}, Libs: topk, Ref: "TopKPartial",
		},
		{Name: "topk_slices", Bindings: bindings("draws", "logits", "partial!"), Libs: topk, Ref: "TopKPartial"},
		{Name: "topk_pick", Bindings: bindings("draws", "logits", "partial", "top!", "sums!"), Libs: topk, Ref: "TopKReduce"},
		{
			Name: "topk_reduce_serial", Bindings: bindings("draws", "logits", "partial!", "top!", "sums!"),
			Tuning: []string{"WG"}, Libs: topk, Serial: true, Ref: "TopKReduce",
		},
		{
			Name: "penalize", Bindings: bindings("tokens", "states", "penalties", "listed", "counts", "logits!"),
			Tuning: []string{"WG"}, Ref: "Penalize",
		},
		{
			Name: "sample_mass", Bindings: bindings("top", "sums", "samplers", "draws", "logits", "mass!"),
			Libs: []string{"lib_topk", "lib_sample"}, Ref: "SampleMass",
		},
		{
			Name: "sample", Bindings: bindings("top", "sums", "mass", "samplers!", "draws!", "ids!"),
			Libs: []string{"lib_topk", "lib_sample"}, Ref: "Sample",
		},
	}
}

// Find is the kernel called name.
func Find(name string) (Kernel, bool) {
	i, ok := byName()[name]
	if !ok {
		return Kernel{}, false
	}
	return table()[i], true
}
