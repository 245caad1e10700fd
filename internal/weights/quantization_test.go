package weights

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestQuantizationRefused opens checkpoints whose quantization_config is broken or asks for what is not supported. Each is
// refused by the name of what it asks for, before a tensor is looked at.
func TestQuantizationRefused(t *testing.T) {
	t.Parallel()
	ct := func(format, weights string) string {
		return `{"quant_method":"compressed-tensors","format":"` + format + `","config_groups":{"group_0":{"targets":["Linear"],"weights":` + weights + `}}}`
	}
	for _, c := range []struct{ name, config, says string }{
		{"no method", `{"bits":4}`, "names no quant_method; supported are awq, compressed-tensors, fp8, gptq"},
		{"bitsandbytes", `{"quant_method":"bitsandbytes","load_in_4bit":true}`, `quant_method "bitsandbytes" is not supported; supported are`},
		{"not an object", `[1]`, "an array does not fit"},
		{"a number", `{"quant_method":4}`, "quant_method: a number does not fit"},
		{"awq 8 bit", `{"quant_method":"awq","bits":8,"group_size":64}`, "awq with bits 8 is not supported; 4 is"},
		{"awq w_bit", `{"quant_method":"awq","w_bit":3,"q_group_size":64}`, "awq with bits 3"},
		{"awq gemv", `{"quant_method":"awq","bits":4,"group_size":64,"version":"gemv"}`, "awq version gemv is not supported; gemm is"},
		{"awq gemv_fast", `{"quant_method":"awq","bits":4,"group_size":64,"version":"gemv_fast"}`, "awq version gemv_fast"},
		{"awq marlin", `{"quant_method":"awq","bits":4,"group_size":64,"version":"marlin"}`, "awq version marlin"},
		{"awq format", `{"quant_method":"awq","bits":4,"group_size":64,"format":"gemv"}`, "awq format gemv"},
		{"awq backend", `{"quant_method":"awq","bits":4,"group_size":64,"backend":"llm-awq"}`, "awq backend llm-awq"},
		{"awq zero_point", `{"quant_method":"awq","bits":4,"group_size":64,"zero_point":false}`, "awq with zero_point false"},
		{"awq no group", `{"quant_method":"awq","bits":4}`, "group_size is missing"},
		{"awq group 0", `{"quant_method":"awq","bits":4,"group_size":0}`, "group_size is 0, want -1 or a positive number"},
		{"awq group 2^63", `{"quant_method":"awq","bits":4,"group_size":9223372036854775808}`, "group_size: a number 9223372036854775808 does not fit"},
		{"awq group -2^62", `{"quant_method":"awq","bits":4,"group_size":-4611686018427387904}`, "group_size is -4611686018427387904"},
		{"gptq no bits", `{"quant_method":"gptq","group_size":64}`, "bits is missing"},
		{"gptq 5 bits", `{"quant_method":"gptq","bits":5,"group_size":64}`, "gptq with bits 5 is not supported; 2, 3, 4 and 8 are"},
		{"gptq marlin", `{"quant_method":"gptq","bits":4,"group_size":64,"checkpoint_format":"marlin"}`, `gptq checkpoint_format "marlin" is not supported; gptq and gptq_v2 are`},
		{"gptq is_marlin_format", `{"quant_method":"gptq","bits":4,"group_size":64,"is_marlin_format":true}`, `checkpoint_format "marlin"`},
		{"gptq dynamic", `{"quant_method":"gptq","bits":4,"group_size":64,"dynamic":{"-:.*gate":{},"+:.*down.*":{"bits":8}}}`, `(dynamic) "+:.*down.*" is not supported`},
		{"fp8 e5m2", `{"quant_method":"fp8","fmt":"e5m2"}`, `fp8 with fmt "e5m2" is not supported; e4m3 is`},
		{"fp8 block", `{"quant_method":"fp8","weight_block_size":[128]}`, "weight_block_size is [128], want two positive numbers"},
		{"fp8 block of 0", `{"quant_method":"fp8","weight_block_size":[128,0]}`, "weight_block_size is [128 0]"},
		{"no groups", `{"quant_method":"compressed-tensors","format":"pack-quantized"}`, "config_groups is missing or empty"},
		{"nvfp4", ct("nvfp4-pack-quantized", `{"num_bits":4,"type":"float"}`), `compressed-tensors format "nvfp4-pack-quantized" is not supported; pack-quantized`},
		{"mxfp4", ct("mxfp4-pack-quantized", `{"num_bits":4,"type":"float"}`), `"mxfp4-pack-quantized" is not supported`},
		{"marlin-24", ct("marlin-24", `{"num_bits":4}`), `"marlin-24" is not supported`},
		{"dense", ct("dense", `{"num_bits":4}`), `"dense" is not supported`},
		{"6 bits", ct("pack-quantized", `{"num_bits":6,"type":"int"}`), "config_groups: group_0: num_bits 6 is not supported; 4 and 8 are"},
		{"float of 4 bits", ct("float-quantized", `{"num_bits":4,"type":"float"}`), "floats with num_bits 4 is not supported; 8 is"},
		{"float packed", ct("pack-quantized", `{"num_bits":8,"type":"float"}`), `format pack-quantized with weights of type "float"`},
		{"strategy", ct("pack-quantized", `{"num_bits":4,"type":"int","strategy":"token"}`), `strategy of weights "token" is not supported`},
		{"block of integers", ct("int-quantized", `{"num_bits":8,"type":"int","strategy":"block","block_structure":[128,128]}`), "strategy block for integers"},
		{"no block", ct("float-quantized", `{"num_bits":8,"type":"float","strategy":"block"}`), "block_structure is missing"},
		{"no group size", ct("pack-quantized", `{"num_bits":4,"strategy":"group"}`), "group_size is missing"},
		{"sparse", `{"quant_method":"compressed-tensors","format":"pack-quantized","sparsity_config":{"format":"sparse-24-bitmask"},"config_groups":{}}`, `sparsity "sparse-24-bitmask" is not supported`},
		{"transform", `{"quant_method":"compressed-tensors","format":"pack-quantized","transform_config":{"config_groups":{}},"config_groups":{"a":{}}}`, "transform_config"},
		{"no weights", `{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"a":{"targets":["Linear"]}}}`, "no config_group has weights"},
		{"many patterns", `{"quant_method":"compressed-tensors","ignore":["re:a"` + strings.Repeat(`,"re:a"`, maxTargetPatterns) + `],"config_groups":{"a":{}}}`, "ignore: more than 256 patterns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys, _ := smallModel(t)
			fsys["config.json"].Data = []byte(strings.Replace(smallConfig, `"head_dim":16`, `"head_dim":16,"quantization_config":`+c.config, 1))
			_, err := OpenFS(fsys, "some")
			wantWords(t, err, "some/config.json: quantization_config: ", c.says)
		})
	}
	for file, says := range map[string]string{"quantize_config.json": "gptq with bits 6", "quant_config.json": "awq with bits 6"} {
		fsys, _ := smallModel(t)
		fsys[file] = &fstest.MapFile{Data: []byte(`{"bits":6,"group_size":64}`)}
		_, err := OpenFS(fsys, "some")
		wantWords(t, err, "some/"+file+": ", says)
		// What config.json says comes first.
		fsys["config.json"].Data = []byte(strings.Replace(smallConfig, `"head_dim":16`, `"head_dim":16,"quantization_config":{"quant_method":"fp8"}`, 1))
		if _, err := OpenFS(fsys, "some"); err != nil {
			t.Errorf("%s beside a quantization_config: %v", file, err)
		}
	}
}

// TestTargets matches as compressed-tensors does: whole names, and patterns from the beginning on.
func TestTargets(t *testing.T) {
	t.Parallel()
	list, err := newTargets([]string{"lm_head", `re:.*\.layers\.0\..*proj`, "re:model.embed", `re:(?!x).*`})
	if err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]bool{
		"lm_head": true, "model.lm_head": false, "lm_head2": false,
		"model.layers.0.mlp.up_proj": true, "model.layers.10.mlp.up_proj": false,
		"model.embed_tokens": true, "my.model.embed_tokens": false,
	} {
		if got := list.match(module); got != want {
			t.Errorf("%s: %v, want %v", module, got, want)
		}
	}
	if list.odd != `re:(?!x).*` {
		t.Errorf("the pattern with look-ahead is %q", list.odd)
	}
}
