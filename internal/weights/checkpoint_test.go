package weights_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
	"github.com/pagelight/pagelight/internal/weights/checkpointtest"
)

const (
	qProj = "model.layers.0.self_attn.q_proj"
	gate  = "model.layers.0.mlp.gate_proj"
)

// small is a model of some kilobytes in a layout, as tensors that a test may change.
func small(t testing.TB, l checkpointtest.Layout) (src weights.Source, tensors []checkpointtest.Tensor, want map[string]checkpointtest.Weights) {
	t.Helper()
	src = openFS(t, weights.SmallModel(t))
	want = map[string]checkpointtest.Weights{}
	tensors, err := checkpointtest.ModelTensors(t.Context(), src, l, func(name string, m checkpointtest.Weights) { want[name] = m })
	if err != nil {
		t.Fatal(err)
	}
	return src, tensors, want
}

// edit changes the tensor of a name, or takes it away when do returns false.
func edit(t testing.TB, tensors []checkpointtest.Tensor, name string, do func(x *checkpointtest.Tensor) bool) []checkpointtest.Tensor {
	t.Helper()
	var out []checkpointtest.Tensor
	found := false
	for _, x := range tensors {
		if x.Name == name {
			found = true
			x.Shape, x.Data = slices.Clone(x.Shape), slices.Clone(x.Data)
			if !do(&x) {
				continue
			}
		}
		out = append(out, x)
	}
	if !found {
		t.Fatalf("no tensor %s", name)
	}
	return out
}

func files(t testing.TB, src weights.Source, quantization any, tensors []checkpointtest.Tensor) fstest.MapFS {
	t.Helper()
	fsys, err := checkpointtest.Files(src.Config(), quantization, tensors)
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

// TestQuantizedTensorsRefused changes one tensor of a right checkpoint at a time.
func TestQuantizedTensorsRefused(t *testing.T) {
	t.Parallel()
	drop := func(*checkpointtest.Tensor) bool { return false }
	dtype := func(name string) func(x *checkpointtest.Tensor) bool {
		return func(x *checkpointtest.Tensor) bool {
			x.DType = name
			return true
		}
	}
	shape := func(dims ...int) func(x *checkpointtest.Tensor) bool {
		return func(x *checkpointtest.Tensor) bool {
			n := 4
			switch x.DType {
			case "F16":
				n = 2
			case "I64":
				n = 8
			}
			for _, d := range dims {
				n *= d
			}
			x.Shape, x.Data = dims, append(x.Data, make([]byte, n)...)[:n]
			return true
		}
	}
	words := func(at int, values ...uint32) func(x *checkpointtest.Tensor) bool {
		return func(x *checkpointtest.Tensor) bool {
			for i, v := range values {
				binary.LittleEndian.PutUint32(x.Data[4*(at+i):], v)
			}
			return true
		}
	}
	layout := func(method string, bits int, sym, spread bool) checkpointtest.Layout {
		return checkpointtest.Layout{Method: method, Options: checkpointtest.Options{Bits: bits, Group: 16, Sym: sym, Spread: spread}}
	}
	awq, gptq, desc := layout("awq", 4, false, false), layout("gptq", 4, false, false), layout("gptq", 4, false, true)
	packed, spread, ints := layout("compressed-tensors", 4, false, false), layout("compressed-tensors", 4, true, true), layout("int-quantized", 8, false, false)
	for _, c := range []struct {
		name   string
		layout checkpointtest.Layout
		tensor string
		do     func(x *checkpointtest.Tensor) bool
		says   string
	}{
		{"awq without codes", awq, "qweight", drop, `qweight": no such tensor; awq needs it`},
		{"awq without zeros", awq, "qzeros", drop, `qzeros": no such tensor; awq needs it`},
		{"awq without scales", awq, "scales", drop, `scales": no such tensor; awq needs it`},
		{"awq codes of 64 bits", awq, "qweight", func(x *checkpointtest.Tensor) bool {
			x.DType, x.Shape = "I64", []int{32, 2}
			return true
		}, `qweight" is stored as I64, want I32`},
		{"awq codes in three dimensions", awq, "qweight", shape(32, 2, 2), `qweight" has shape [32 2 2], which is not a matrix's`},
		{"awq no codes", awq, "qweight", shape(0, 4), `qweight" has shape [0 4]`},
		{"awq more outputs than 2^31", awq, "qweight", shape(0, 1<<31-1), `qweight" has shape [0 2147483647]`},
		{"awq other outputs", awq, "qweight", shape(32, 3), `qzeros" has shape [2 4], want [2 3]`},
		{"awq other inputs", awq, "qweight", shape(24, 4), "has 24 inputs, which groups of 16 do not divide"},
		{"awq zeros", awq, "qzeros", shape(1, 4), `qzeros" has shape [1 4], want [2 4]`},
		{"awq scales", awq, "scales", shape(32, 2), `scales" has shape [32 2], want [2 32]`},
		{"awq scales as integers", awq, "scales", dtype("I16"), `scales" is stored as I16, want F16 or BF16 or F32`},
		{"gptq without zeros", gptq, "qzeros", drop, `qzeros": no such tensor; gptq needs it`},
		{"gptq without codes", gptq, "qweight", drop, `qweight": no such tensor`},
		{"gptq odd outputs", gptq, "qweight", shape(4, 30), "has 30 outputs, whose zero points of 4 bits are no whole words"},
		{"gptq group below 0", gptq, "g_idx", words(3, 0xFFFFFFFF), "g_idx: input 3 is in group -1 of 2"},
		{"gptq group out of range", gptq, "g_idx", words(31, 2), "g_idx: input 31 is in group 2 of 2"},
		{"gptq group of 2^31", gptq, "g_idx", words(31, 1<<31), "g_idx: input 31 is in group -2147483648 of 2"},
		{"gptq groups of another size", gptq, "g_idx", words(0, 1), "has 32 inputs in groups of 15; want multiples of 8 in each"},
		{"gptq short g_idx", gptq, "g_idx", shape(31), `g_idx" has shape [31], want [32]`},
		{"gptq g_idx of floats", gptq, "g_idx", dtype("F32"), `g_idx" is stored as F32, want I32`},
		{"gptq desc_act without g_idx", desc, "g_idx", drop, `g_idx": no such tensor; gptq needs it`},
		{"packed without codes", packed, "weight_packed", drop, `weight": no such tensor`},
		{"packed without scales", packed, "weight_scale", drop, `weight_scale": no such tensor; compressed-tensors needs it`},
		{"packed without zeros", packed, "weight_zero_point", drop, `weight_zero_point": no such tensor`},
		{"packed zeros", packed, "weight_zero_point", shape(2, 2), `weight_zero_point" has shape [2 2], want [4 2]`},
		{"packed codes as bytes", packed, "weight_packed", func(x *checkpointtest.Tensor) bool {
			x.DType, x.Shape = "U8", []int{32, 16}
			return true
		}, `weight_packed" is stored as U8, want I32`},
		{"packed shape", packed, "weight_shape", words(2, 31), `weight_shape" says [32 31], but weight_packed has codes for [32 32]`},
		{"packed shape of 2^63", packed, "weight_shape", words(0, 0, 1<<31), `weight_shape" says [-9223372036854775808 32]`},
		{"packed shape in three", packed, "weight_shape", shape(3), `weight_shape" has shape [3], want [2]`},
		{"packed scales", packed, "weight_scale", shape(32, 4), `weight_scale" has shape [32 4], want [32 2]`},
		{"packed groups", packed, "weight_packed", shape(32, 3), `says [32 32], but weight_packed has codes for [32 24]`},
		{"packed order", spread, "weight_g_idx", words(0, 7), "g_idx: input 0 is in group 7 of 2"},
		{"ints of 16 bits", ints, "weight", func(x *checkpointtest.Tensor) bool {
			x.DType, x.Shape = "I16", []int{32, 16}
			return true
		}, `weight" is stored as I16, want I8`},
		{"ints' zeros", ints, "weight_zero_point", shape(0, 32), `weight_zero_point" has shape [0 32], want [32 2]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, tensors, _ := small(t, c.layout)
			tensors = edit(t, tensors, qProj+"."+c.tensor, c.do)
			_, err := weights.OpenFS(files(t, src, c.layout.Config(), tensors), "some")
			wantSays(t, err, "some/model.safetensors", qProj, c.says)
		})
	}
	for _, l := range []checkpointtest.Layout{awq, gptq, packed} {
		src, tensors, _ := small(t, l)
		tensors = append(tensors, checkpointtest.Tensor{Name: qProj + ".weight", DType: "F32", Shape: []int{32, 32}, Data: make([]byte, 4096)})
		_, err := weights.OpenFS(files(t, src, l.Config(), tensors), "some")
		wantSays(t, err, qProj, "stands beside "+qProj+".weight")
		// Without a configuration nothing says how to read them.
		_, err = weights.OpenFS(files(t, src, nil, tensors[:len(tensors)-1]), "some")
		wantSays(t, err, qProj+".weight", "no such tensor, but "+qProj, "no quantization_config that fits it")
	}
	// What is wrong with a tensor that the model does not need is not its concern.
	src, tensors, want := small(t, awq)
	tensors = append(tensors, checkpointtest.Tensor{Name: "visual.q_proj.qweight", DType: "I32", Shape: []int{1, 1}, Data: make([]byte, 4)})
	got := openFS(t, files(t, src, awq.Config(), tensors))
	m := want[qProj+".weight"]
	wantMatrix(t, got, qProj+".weight", m, 32)
	if _, err := got.Vector(t.Context(), qProj+".weight"); err == nil {
		t.Error("a quantized matrix is read as a vector")
	}
	if _, err := got.Rows(t.Context(), qProj+".weight", 3, 33); err == nil {
		t.Error("rows past the end are read")
	}
}

// TestScalesThatHalvesDoNotHold: scales in f32 and bf16, exact, nearly so, far too small, and far too large.
func TestScalesThatHalvesDoNotHold(t *testing.T) {
	t.Parallel()
	l := checkpointtest.Layout{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 16, Sym: true}}
	open := func(t *testing.T, dtype string, at func(i int) float32) weights.Source {
		src, tensors, _ := small(t, l)
		tensors = edit(t, tensors, qProj+".weight_scale", func(x *checkpointtest.Tensor) bool {
			x.DType, x.Data = dtype, nil
			for i := range 64 {
				if bits := math.Float32bits(at(i)); dtype == "F32" {
					x.Data = binary.LittleEndian.AppendUint32(x.Data, bits)
				} else {
					x.Data = binary.LittleEndian.AppendUint16(x.Data, uint16(bits>>16))
				}
			}
			return true
		})
		return openFS(t, files(t, src, l.Config(), tensors))
	}
	scalesOf := func(t *testing.T, src weights.Source) []float32 {
		rows, err := src.Rows(t.Context(), qProj+".weight", 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		var out []float32
		for i := range 64 {
			s, _ := quant.UnpackScale(binary.LittleEndian.Uint32(rows.Scales.Bytes[4*i:]))
			out = append(out, s)
		}
		return out
	}
	// Every bf16 from 2^-17 to 65504 is a half.
	for _, first := range []int{0x3700, 0x3780, 0x4700} {
		at := func(i int) float32 { return math.Float32frombits(uint32(first+2*i) << 16) }
		wantEqual(t, "bf16", scalesOf(t, open(t, "BF16", at)), at)
	}
	// Others from 2^-14 on become the nearest half, within 2^-11.
	at := func(i int) float32 { return float32(math.Ldexp(1+float64(i)/64+1.0/3000, -14+i%28)) }
	for i, s := range scalesOf(t, open(t, "F32", at)) {
		if r := math.Abs(float64(s/at(i) - 1)); r > 0x1p-11 {
			t.Errorf("scale %v becomes %v, %v off", at(i), s, r)
		}
	}
	// Among larger ones a tiny one may be off by as little as 2^-25.
	tiny := func(i int) float32 {
		if i == 5 {
			return 3.3e-8
		}
		return 1.0 / 64
	}
	if s := scalesOf(t, open(t, "F32", tiny)); s[5] != 0x1p-24 || s[4] != 1.0/64 {
		t.Errorf("scales become %v", s[:6])
	}
	for _, c := range []struct {
		dtype string
		at    float32
		says  string
	}{
		{"F32", 3.3e-8, "output 2, group 1 is 3.3e-08, too small for a half to hold well, in a matrix whose largest is 1.013279e-06"},
		{"BF16", 1.3e-6, "too small for a half to hold well"},
		{"F32", 65536, "output 2, group 1 is 65536, which no half holds; at most 65504"},
		{"F32", float32(math.NaN()), "output 2, group 1 is NaN"},
		{"BF16", float32(math.Inf(-1)), "output 2, group 1 is -Inf"},
	} {
		src := open(t, c.dtype, func(i int) float32 {
			if i == 5 {
				return c.at
			}
			return 0x1.1p-20
		})
		if _, err := src.Rows(t.Context(), gate+".weight", 0, 64); err != nil {
			t.Errorf("another matrix: %v", err)
		}
		_, err := src.Rows(t.Context(), qProj+".weight", 0, 32)
		wantSays(t, err, "some/model.safetensors", qProj+".weight_scale", c.says)
	}
}

// TestConfigurationBesideTheModel: what older tools wrote into files of their own.
func TestConfigurationBesideTheModel(t *testing.T) {
	t.Parallel()
	for file, l := range map[string]checkpointtest.Layout{
		"quantize_config.json": {Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 16}},
		"quant_config.json":    {Method: "awq", Options: checkpointtest.Options{Bits: 4, Group: 16}},
	} {
		src, tensors, want := small(t, l)
		fsys := files(t, src, nil, tensors)
		fsys[file] = &fstest.MapFile{Data: []byte(map[string]string{
			"gptq": `{"bits":4,"group_size":16,"damp_percent":0.01,"desc_act":false,"sym":false,"true_sequential":true}`,
			"awq":  `{"zero_point":true,"q_group_size":16,"w_bit":4,"version":"GEMM"}`,
		}[l.Method])}
		got := openFS(t, fsys)
		for name, m := range want {
			wantMatrix(t, got, name, m, 64)
		}
	}
}

// TestFusedQuantizedNames: the parts of a quantized qkv_proj and up_gate_proj under Paddle's names.
func TestFusedQuantizedNames(t *testing.T) {
	t.Parallel()
	for _, l := range []checkpointtest.Layout{
		{Method: "awq", Options: checkpointtest.Options{Bits: 4, Group: 16}},
		{Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 16, Spread: true}},
		{Method: "int-quantized", Options: checkpointtest.Options{Bits: 8, Group: 16}},
	} {
		src, tensors, want := small(t, l)
		fused := tensors[:0:0]
		for _, x := range tensors {
			if x.Name = strings.Replace(x.Name, "model.", "ernie.", 1); !strings.Contains(x.Name, "_proj.") || strings.Contains(x.Name, "o_proj") || strings.Contains(x.Name, "down_proj") {
				fused = append(fused, x)
			}
		}
		for module, parts := range map[string][]string{
			"self_attn.qkv_proj": {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, "mlp.up_gate_proj": {"mlp.gate_proj", "mlp.up_proj"},
		} {
			var w []float32
			for _, part := range parts {
				rows, err := src.Rows(t.Context(), "model.layers.0."+part+".weight", 0, want["model.layers.0."+part+".weight"].(*checkpointtest.Matrix).Rows)
				if err != nil {
					t.Fatal(err)
				}
				w = append(w, checkpointtest.Floats(quant.BF16, rows.Data.Bytes)...)
			}
			_, some := l.Module(w, 32, "ernie.layers.0."+module)
			fused = append(fused, some...)
		}
		got := openFS(t, files(t, src, l.Config(), fused))
		for name, m := range want {
			wantMatrix(t, got, name, m, 13)
		}
		// A fused matrix of another height is none of the parts.
		for i := range fused {
			fused[i].Name = strings.Replace(fused[i].Name, "mlp.up_gate_proj", "self_attn.qkv_proj.other", 1)
		}
		_, err := weights.OpenFS(files(t, src, l.Config(), fused), "some")
		wantSays(t, err, "mlp.gate_proj.weight", "no such tensor")
	}
}

// TestUnpackingOfTools reads words whose weights numpy computed by the tools' own rules of unpacking (testdata/quantized.py).
func TestUnpackingOfTools(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Name    string                  `json:"name"`
		Config  json.RawMessage         `json:"config"`
		Tensors []checkpointtest.Tensor `json:"tensors"`
		Weight  []float32               `json:"weight"`
	}
	readJSON(t, "testdata/quantized.json", &cases)
	if len(cases) != 7 {
		t.Fatalf("%d cases, want 7", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			fsys := weights.SmallModel(t)
			src := openFS(t, fsys)
			var tensors []checkpointtest.Tensor
			for _, s := range weights.Tensors(src.Config()) {
				rows, err := src.Rows(t.Context(), s.Name, 0, s.Rows)
				if err != nil {
					t.Fatal(err)
				}
				shape := []int{s.Rows, s.K}
				if s.Vector {
					shape = shape[1:]
				}
				if s.Name != qProj+".weight" {
					tensors = append(tensors, checkpointtest.Tensor{Name: s.Name, DType: "BF16", Shape: shape, Data: slices.Clone(rows.Data.Bytes)})
				}
			}
			for _, x := range c.Tensors {
				x.Name = qProj + "." + x.Name
				tensors = append(tensors, x)
			}
			got := openFS(t, files(t, src, c.Config, tensors))
			wantEqual(t, c.Name, decoded(t, got, qProj+".weight", 32), func(i int) float32 { return c.Weight[i] })
		})
	}
}

func readJSON(t testing.TB, path string, to any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}
