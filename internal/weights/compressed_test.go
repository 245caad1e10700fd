package weights_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/weights"
	"github.com/pagelight/pagelight/internal/weights/checkpointtest"
)

// TestConfigGroups mixes 8-bit attention with a 4-bit MLP, chosen by patterns, by names and by class.
func TestConfigGroups(t *testing.T) {
	t.Parallel()
	eight := checkpointtest.Layout{Method: "int-quantized", Options: checkpointtest.Options{Bits: 8, Sym: true}}
	four := checkpointtest.Layout{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 16}}
	src, a, wantA := small(t, eight)
	_, b, wantB := small(t, four)
	attention := func(name string) bool { return strings.Contains(name, "self_attn.") }
	var tensors []checkpointtest.Tensor
	for _, x := range a {
		if attention(x.Name) || !strings.Contains(x.Name, "_proj.") {
			tensors = append(tensors, x)
		}
	}
	for _, x := range b {
		if !attention(x.Name) && strings.Contains(x.Name, "_proj.") {
			tensors = append(tensors, x)
		}
	}
	config := func(targetsA, targetsB, ignore string) rawJSON {
		return rawJSON(`{"quant_method":"compressed-tensors","format":"mixed-precision","ignore":` + ignore + `,"config_groups":{
"group_0":{"targets":` + targetsA + `,"format":"int-quantized","weights":{"num_bits":8,"type":"int","symmetric":true,"strategy":"channel"},
 "input_activations":{"num_bits":8,"type":"int","dynamic":true,"strategy":"token"}},
"group_1":{"targets":` + targetsB + `,"format":"pack-quantized","weights":{"num_bits":4,"type":"int","symmetric":false,"strategy":"group","group_size":16}}}}`)
	}
	const all = `["` + qProj + `","model.layers.0.self_attn.k_proj","model.layers.0.self_attn.v_proj","model.layers.0.self_attn.o_proj"]`
	for _, c := range [][2]string{
		{`["re:.*self_attn\\..*"]`, `["re:.*mlp.*"]`},
		{`["re:.*self_attn\\.[qkvo]_proj$"]`, `["Linear"]`},
		{all, `["Linear"]`},
		{`["Linear"]`, `["re:.*mlp\\.(gate|up|down)_proj"]`},
	} {
		got := openFS(t, files(t, src, config(c[0], c[1], `["lm_head","re:.*lm_head"]`), tensors))
		for name, m := range wantA {
			if !attention(name) {
				m = wantB[name]
			}
			wantMatrix(t, got, name, m, 64)
		}
	}
	for _, c := range [][4]string{
		{`["re:.*self_attn\\..*"]`, `["re:.*gate_proj","re:.*up_proj"]`, `[]`, "mlp.down_proj.weight_packed\" belongs to none of config_groups"},
		{`["re:.*self_attn\\..*"]`, `["re:(?!model).*"]`, `[]`, `belongs to none of config_groups, unless by the pattern "re:(?!model).*"`},
		{`["re:.*self_attn\\..*"]`, `["Linear"]`, `["re:.*gate_proj"]`, "its module is in the list ignore"},
	} {
		_, err := weights.OpenFS(files(t, src, config(c[0], c[1], c[2]), tensors), "some")
		wantSays(t, err, "model.layers.0.mlp.", c[3])
	}
}

// TestZeroPointsAsBytes reads pack-quantized with zero points that are not packed, as the tool first wrote them, and the
// configuration under its first name.
func TestZeroPointsAsBytes(t *testing.T) {
	t.Parallel()
	l := checkpointtest.Layout{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 16}}
	src, tensors, want := small(t, l)
	m := want[qProj+".weight"].(*checkpointtest.Matrix)
	tensors = edit(t, tensors, qProj+".weight_zero_point", func(x *checkpointtest.Tensor) bool {
		x.DType, x.Shape, x.Data = "I8", []int{32, 2}, nil
		for _, z := range m.Zeros {
			x.Data = append(x.Data, z-8)
		}
		return true
	})
	fsys := files(t, src, l.Config(), tensors)
	config := fsys["config.json"]
	config.Data = bytes.Replace(config.Data, []byte("quantization_config"), []byte("compression_config"), 1)
	config.Data = bytes.Replace(config.Data, []byte("quant_method"), []byte("unused"), 1)
	wantMatrix(t, openFS(t, fsys), qProj+".weight", m, 32)
}
