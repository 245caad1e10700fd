package conformance

import (
	"maps"
	"strings"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/wgsl"
)

// Variants describes kernels with every kind of specialisation that the engine can ask for: each weight format, each value
// of each switch, and head dimensions that differ in how they divide. Compilers are tried on all of them.
func Variants() ([]gpu.PipelineDesc, error) {
	var descs []gpu.PipelineDesc
	add := func(name string, format *quant.Format, consts wgsl.Consts) error {
		desc, err := kernels.Describe(name, format, consts)
		if err == nil {
			descs = append(descs, desc)
		}
		return err
	}
	for _, k := range wgsl.Kernels() {
		var formats []*quant.Format
		if k.Weights {
			list := someFormats()
			if strings.HasPrefix(k.Name, "moe_") {
				list = expertFormats()
			}
			for _, f := range list {
				formats = append(formats, &f)
			}
		} else {
			formats = []*quant.Format{nil}
		}
		for _, f := range formats {
			for _, c := range constSets(k.Name, f) {
				if err := add(k.Name, f, c); err != nil {
					return nil, err
				}
			}
		}
	}
	return descs, nil
}

// constSets are the constants with which a kernel is tried.
func constSets(name string, f *quant.Format) []wgsl.Consts {
	switch name {
	case "matvec":
		var list []wgsl.Consts
		for _, wide := range kernels.Widths(*f) {
			list = append(list, wgsl.Consts{"ROWS_M": 1, "WIDE": wide}, wgsl.Consts{"ROWS_M": 4, "WIDE": wide})
		}
		return list
	case "moe_matvec":
		var list []wgsl.Consts
		for _, wide := range kernels.Widths(*f) {
			list = append(list, wgsl.Consts{"WIDE": wide})
		}
		return list
	case "moe_serial":
		var list []wgsl.Consts
		for _, wide := range kernels.Widths(*f) {
			list = append(list, wgsl.Consts{"TILE": 1, "WIDE": wide}, wgsl.Consts{"TILE": 4, "WIDE": wide})
		}
		return list
	case "moe_group":
		return []wgsl.Consts{{"TILE": 32}, {"TILE": 4}}
	case "matmul_uniform":
		var list []wgsl.Consts
		for _, tokens := range []uint32{1, 4, 8} {
			for _, wide := range kernels.Widths(*f) {
				c := wgsl.Consts{"TOKENS": tokens, "FOURS": 4, "WIDE": wide}
				if tokens == 1 {
					c["FOURS"] = 2
				}
				list = append(list, c)
			}
		}
		return list
	case "matmul_serial":
		var list []wgsl.Consts
		for _, wide := range kernels.Widths(*f) {
			list = append(list, wgsl.Consts{"TOKENS": 1, "FOURS": 2, "WIDE": wide}, wgsl.Consts{"TOKENS": 4, "FOURS": 4, "WIDE": wide})
		}
		return list
	case "norm_linear":
		if !kernels.Wide(*f) {
			return nil
		}
		return []wgsl.Consts{
			{"WG": 64, "LANES": 32, "FOURS": 1, "K": 1024, "N": 6144, "NORM": 1, "GATED": 1},
			{"WG": 128, "LANES": 64, "FOURS": 2, "K": 2048, "N": 1024, "NORM": 0, "GATED": 0},
			{"WG": 96, "LANES": 96, "FOURS": 1, "K": 4096, "N": 1024, "NORM": 1, "GATED": 0},
			{"WG": 128, "LANES": 32, "FOURS": 2, "K": 1024, "N": 103424, "NORM": 1, "GATED": 0},
			{"WG": 128, "LANES": 32, "FOURS": 2, "K": 1024, "N": 103424, "NORM": 1, "GATED": 0, "SEGMENT": 32},
			{"WG": 96, "LANES": 96, "FOURS": 1, "K": 4096, "N": 1024, "NORM": 1, "GATED": 0, "SEGMENT": 4},
			{"WG": 64, "LANES": 32, "FOURS": 1, "K": 1024, "N": 6144, "NORM": 1, "GATED": 1, "X_SHARES": 4},
			{"WG": 96, "LANES": 96, "FOURS": 1, "K": 3072, "N": 1024, "NORM": 0, "GATED": 0, "Y_SHARES": 4},
		}
	case "qkv_rope_store":
		if !kernels.Wide(*f) {
			return nil
		}
		return []wgsl.Consts{
			{"WG": 64, "LANES": 32, "FOURS": 1, "K": 1024, "HEADS": 20, "HEAD_DIM": 128, "HALF_SPLIT": 0, "KV_TYPE": 1},
			{"WG": 96, "LANES": 96, "FOURS": 1, "K": 4096, "HEADS": 3, "HEAD_DIM": 16, "HALF_SPLIT": 1, "KV_TYPE": 0},
			{"WG": 64, "LANES": 32, "FOURS": 1, "K": 1024, "HEADS": 20, "HEAD_DIM": 128, "HALF_SPLIT": 0, "KV_TYPE": 1, "SEGMENT": 32},
		}
	case "head_argmax":
		if !kernels.Wide(*f) {
			return nil
		}
		return []wgsl.Consts{
			{"WG": 128, "LANES": 32, "FOURS": 2, "K": 1024, "N": 103424},
			{"WG": 64, "LANES": 64, "FOURS": 1, "K": 2048, "N": 5},
		}
	case "advance", "argmax_advance":
		return []wgsl.Consts{{"COUNTS": 0}, {"COUNTS": 1}}
	case "matmul_lanes":
		return []wgsl.Consts{{"LANES": 32, "ROWS": 8, "GATED": 1, "NORM": 1}, {"LANES": 128, "ROWS": 4, "GATED": 0, "NORM": 0}}
	case "matmul_tile":
		return []wgsl.Consts{
			{"TX": 8, "TY": 8, "TM": 4, "VECS": 8, "GATED": 1},
			{"TX": 8, "TY": 8, "TM": 8, "VECS": 8, "GATED": 0},
			{"TX": 16, "TY": 8, "TM": 8, "VECS": 4, "GATED": 0},
			{"TX": 16, "TY": 16, "TM": 8, "VECS": 4, "GATED": 1},
			{"WG": 128, "TX": 8, "TY": 16, "TM": 8, "VECS": 4, "GATED": 0},
		}
	case "sum_parts":
		return []wgsl.Consts{{"GATED": 0}, {"GATED": 1}}
	case "rope_store":
		return []wgsl.Consts{{"HEAD_DIM": 16, "HALF_SPLIT": 0, "KV_TYPE": 0}, {"HEAD_DIM": 128, "HALF_SPLIT": 1, "KV_TYPE": 1}}
	case "attn_linear":
		if !kernels.Wide(*f) {
			return nil
		}
		return []wgsl.Consts{
			{"WG": 64, "LANES": 64, "FOURS": 1, "K": 2048, "N": 1024, "HEAD_DIM": 128, "PARTS": 4, "PART": 64},
			{"WG": 128, "LANES": 32, "FOURS": 2, "K": 96, "N": 5, "HEAD_DIM": 48, "PARTS": 4, "PART": 64},
			{"WG": 256, "LANES": 64, "FOURS": 1, "K": 2048, "N": 1024, "HEAD_DIM": 128, "PARTS": 4, "PART": 64, "SEGMENT": 16},
		}
	case "paged_attn_linear":
		if !kernels.Wide(*f) {
			return nil
		}
		return []wgsl.Consts{
			{"HEADS": 4, "EACH": 2, "SLICES": 4, "K": 2048, "N": 1024, "HEAD_DIM": 128, "KV_TYPE": 1},
			{"HEADS": 2, "EACH": 4, "SLICES": 8, "K": 96, "N": 5, "HEAD_DIM": 48, "KV_TYPE": 0},
			{"HEADS": 1, "EACH": 1, "SLICES": 16, "K": 64, "N": 5, "HEAD_DIM": 32, "KV_TYPE": 1},
		}
	case "paged_attn_few":
		var list []wgsl.Consts
		for _, kv := range quant.KVTypes() {
			list = append(list,
				wgsl.Consts{"HEADS": 2, "SLICES": 8, "HEAD_DIM": 128, "KV_TYPE": uint32(kv)},
				wgsl.Consts{"HEADS": 1, "SLICES": 64, "HEAD_DIM": 16, "KV_TYPE": uint32(kv)},
				wgsl.Consts{"HEADS": 2, "SLICES": 4, "HEAD_DIM": 256, "KV_TYPE": uint32(kv)},
				wgsl.Consts{"HEADS": 2, "SLICES": 8, "HEAD_DIM": 128, "KV_TYPE": uint32(kv), "SEGMENT": 32})
		}
		return list
	case "paged_attn_join":
		return []wgsl.Consts{{"HEAD_DIM": 48}, {"HEAD_DIM": 128}, {"HEAD_DIM": 256}}
	case "rope":
		return []wgsl.Consts{{"HEAD_DIM": 16, "HALF_SPLIT": 0}, {"HEAD_DIM": 128, "HALF_SPLIT": 0}, {"HEAD_DIM": 128, "HALF_SPLIT": 1}}
	case "qk_norm":
		return []wgsl.Consts{{"WG": 64, "LANES": 32, "HEAD_DIM": 16}, {"WG": 64, "LANES": 32, "HEAD_DIM": 128}, {"WG": 8, "LANES": 1, "HEAD_DIM": 128}}
	case "paged_attn_reduce", "kv_store_i8":
		return []wgsl.Consts{{"HEAD_DIM": 16}, {"HEAD_DIM": 128}}
	case "kv_store":
		return []wgsl.Consts{{"HEAD_DIM": 128, "KV_TYPE": 1}, {"HEAD_DIM": 128, "KV_TYPE": 0}}
	case "paged_attn_grouped":
		var list []wgsl.Consts
		for i, d := range []uint32{16, 48, 80, 128} {
			for _, kv := range quant.KVTypes() {
				wg := []uint32{256, 128, 128, 128}[i]
				list = append(list, wgsl.Consts{"WG": wg, "HEADS": 4 << (i % 2), "HEAD_DIM": d, "KV_TYPE": uint32(kv), "WHOLE": uint32(i / 2), "AHEAD": 1 - uint32(i%2)})
			}
		}
		return list
	case "paged_attn_decode", "paged_attn_prefill", "paged_attn_serial":
		var list []wgsl.Consts
		for _, d := range []uint32{16, 48, 80, 128, 256} {
			for _, kv := range quant.KVTypes() {
				c := wgsl.Consts{"HEAD_DIM": d, "KV_TYPE": uint32(kv)}
				if name == "paged_attn_prefill" {
					c["TILE"] = 16
					if d > 128 {
						c["TILE"] = 8
					}
				}
				if name != "paged_attn_serial" {
					list = append(list, c)
					continue
				}
				for heads := range uint32(3) {
					s := maps.Clone(c)
					s["HEADS"], s["SPLIT"] = heads+1, heads%2
					list = append(list, s)
				}
			}
		}
		return list
	}
	return []wgsl.Consts{nil}
}
