package weights_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
	"github.com/pagelight/pagelight/internal/weights/checkpointtest"
)

// byteModel is the model "ernie-bias-untied" with linear layers of bytes that a hash of their place gives, and scales that
// the test makes.
func byteModel(t testing.TB, dtype, quantization string, scales func(module string, rows, k int) []checkpointtest.Tensor) fstest.MapFS {
	t.Helper()
	src, err := weights.OpenDir("../model/testdata/ernie-bias-untied")
	if err != nil {
		t.Fatal(err)
	}
	var tensors []checkpointtest.Tensor
	for _, s := range weights.Tensors(src.Config()) {
		if module, ok := strings.CutSuffix(s.Name, "_proj.weight"); ok {
			tensors = append(tensors, checkpointtest.Tensor{Name: s.Name, DType: dtype, Shape: []int{s.Rows, s.K}, Data: someBytes(s.Name, s.Rows*s.K)})
			tensors = append(tensors, scales(module+"_proj", s.Rows, s.K)...)
			continue
		}
		rows, err := src.Rows(t.Context(), s.Name, 0, s.Rows)
		if err != nil {
			t.Fatal(err)
		}
		shape := []int{s.Rows, s.K}
		if s.Vector {
			shape = shape[1:]
		}
		tensors = append(tensors, checkpointtest.Tensor{Name: s.Name, DType: "BF16", Shape: shape, Data: append([]byte(nil), rows.Data.Bytes...)})
	}
	config, err := checkpointtest.Config(src.Config(), rawJSON(quantization))
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"config.json": {Data: config}, "model.safetensors": {Data: checkpointtest.Safetensors(tensors)}}
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// someBytes are bytes that are no NaN as 8-bit floats.
func someBytes(name string, n int) []byte {
	out := make([]byte, n)
	h := uint64(len(name)) * 0x9E3779B97F4A7C15
	for i := range out {
		h = h*6364136223846793005 + 1442695040888963407
		if out[i] = byte(h >> 56); out[i]&0x7F == 0x7F {
			out[i] = 0
		}
	}
	return out
}

// someScale is the scale with a number.
func someScale(i int) float32 { return float32(3+i%29) / 4096 * (1 + float32(i%7)/1024) }

// floatTensor holds the first scales, in f32 or bf16.
func floatTensor(name, dtype string, shape ...int) checkpointtest.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var raw []byte
	for i := range n {
		switch dtype {
		case "F32":
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(someScale(i)))
		case "BF16":
			raw = binary.LittleEndian.AppendUint16(raw, quant.F32ToBF16(someScale(i)))
		}
	}
	if shape == nil {
		shape = []int{}
	}
	return checkpointtest.Tensor{Name: name, DType: dtype, Shape: shape, Data: raw}
}

const compressedFloat = `{"quant_method":"compressed-tensors","format":"float-quantized","ignore":["lm_head"],"kv_cache_scheme":null,
"config_groups":{"group_0":{"targets":["Linear"],"input_activations":{"num_bits":8,"type":"float","dynamic":true,"strategy":"token"},
"weights":{"num_bits":8,"type":"float","symmetric":true,"strategy":"STRATEGY","group_size":SIZE,"block_structure":[64,128]}}}}`

func TestFP8(t *testing.T) {
	t.Parallel()
	up := func(a, b int) int { return (a + b - 1) / b }
	for _, c := range []struct {
		name, quantization string
		scale              func(module string, rows, k int) checkpointtest.Tensor
		at                 func(rows, k, row, col int) int // number of a weight's scale
		bf16               bool
	}{
		{
			"one scale", `{"quant_method":"fp8","activation_scheme":"static"}`,
			func(m string, _, _ int) checkpointtest.Tensor { return floatTensor(m+".weight_scale", "F32") },
			func(_, _, _, _ int) int { return 0 }, false,
		},
		{
			"one scale in a list", `{"quant_method":"fp8","activation_scheme":"dynamic","modules_to_not_convert":["lm_head"]}`,
			func(m string, _, _ int) checkpointtest.Tensor { return floatTensor(m+".weight_scale", "F32", 1) },
			func(_, _, _, _ int) int { return 0 }, false,
		},
		{
			"outputs", `{"quant_method":"fp8"}`,
			func(m string, rows, _ int) checkpointtest.Tensor { return floatTensor(m+".weight_scale", "F32", rows) },
			func(_, _, row, _ int) int { return row }, false,
		},
		{
			"outputs, a column", `{"quant_method":"fp8"}`,
			func(m string, rows, _ int) checkpointtest.Tensor {
				return floatTensor(m+".weight_scale", "BF16", rows, 1)
			},
			func(_, _, row, _ int) int { return row }, true,
		},
		{
			"blocks", `{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]}`,
			func(m string, rows, k int) checkpointtest.Tensor {
				return floatTensor(m+".weight_scale_inv", "F32", up(rows, 128), up(k, 128))
			},
			func(_, k, row, col int) int { return row/128*up(k, 128) + col/128 }, false,
		},
		{
			"blocks by their other name", `{"quant_method":"fp8","weight_block_size":[64,32]}`,
			func(m string, rows, k int) checkpointtest.Tensor {
				return floatTensor(m+".weight_scale", "F32", up(rows, 64), up(k, 32))
			},
			func(_, k, row, col int) int { return row/64*up(k, 32) + col/32 }, false,
		},
		{
			"compressed-tensors, one", strings.NewReplacer("STRATEGY", "tensor", "SIZE", "null").Replace(compressedFloat),
			func(m string, _, _ int) checkpointtest.Tensor { return floatTensor(m+".weight_scale", "BF16", 1) },
			func(_, _, _, _ int) int { return 0 }, true,
		},
		{
			"compressed-tensors, outputs", strings.NewReplacer("STRATEGY", "channel", "SIZE", "null", "float-quantized", "naive-quantized").Replace(compressedFloat),
			func(m string, rows, _ int) checkpointtest.Tensor {
				return floatTensor(m+".weight_scale", "BF16", rows, 1)
			},
			func(_, _, row, _ int) int { return row }, true,
		},
		{
			"compressed-tensors, blocks", strings.NewReplacer("STRATEGY", "block", "SIZE", "null").Replace(compressedFloat),
			func(m string, rows, k int) checkpointtest.Tensor {
				return floatTensor(m+".weight_scale", "F32", up(rows, 64), up(k, 128))
			},
			func(_, k, row, col int) int { return row/64*up(k, 128) + col/128 }, false,
		},
		{
			"compressed-tensors, groups", strings.NewReplacer("STRATEGY", "group", "SIZE", "64").Replace(compressedFloat),
			func(m string, rows, k int) checkpointtest.Tensor {
				return floatTensor(m+".weight_scale", "F32", rows, k/64)
			},
			func(_, k, row, col int) int { return row*(k/64) + col/64 }, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := openFS(t, byteModel(t, "F8_E4M3", c.quantization, func(module string, rows, k int) []checkpointtest.Tensor {
				return []checkpointtest.Tensor{c.scale(module, rows, k), floatTensor(module+".input_scale", "F32")}
			}))
			weights.SetStripBytes(src, 32*200)
			checked := 0
			for _, s := range weights.Tensors(src.Config()) {
				if !strings.HasSuffix(s.Name, "_proj.weight") {
					continue
				}
				raw := someBytes(s.Name, s.Rows*s.K)
				wantEqual(t, s.Name, decoded(t, src, s.Name, 70), func(i int) float32 {
					scale := someScale(c.at(s.Rows, s.K, i/s.K, i%s.K))
					if c.bf16 {
						scale = quant.BF16ToF32(quant.F32ToBF16(scale))
					}
					return checkpointtest.E4M3(raw[i]) * scale
				})
				checked++
			}
			if checked != 14 {
				t.Errorf("%d matrices, want 14", checked)
			}
			if info, err := src.Info("lm_head.weight"); err != nil || info.Format.Kind != quant.BF16 {
				t.Errorf("lm_head is %v, %v", info.Format, err)
			}
		})
	}
}

// TestFP8Refused: numbers that are none, and scales that do not fit.
func TestFP8Refused(t *testing.T) {
	t.Parallel()
	const q = "model.layers.0.self_attn.q_proj.weight"
	one := func(m string, _, _ int) []checkpointtest.Tensor {
		return []checkpointtest.Tensor{floatTensor(m+".weight_scale", "F32")}
	}
	fsys := byteModel(t, "F8_E5M2", `{"quant_method":"fp8"}`, one)
	_, err := weights.OpenFS(fsys, "some")
	wantSays(t, err, "model.layers.0.self_attn.q_proj.weight", "is stored as F8_E5M2, want F8_E4M3")
	fsys = byteModel(t, "F8_E4M3", `null`, one)
	_, err = weights.OpenFS(fsys, "some")
	wantSays(t, err, q, "is stored as F8_E4M3; weights can be F32, F16 or BF16, or F8_E4M3 where quantization_config says how it is scaled")
	fsys = byteModel(t, "F8_E4M3", `{"quant_method":"fp8"}`, func(string, int, int) []checkpointtest.Tensor { return nil })
	_, err = weights.OpenFS(fsys, "some")
	wantSays(t, err, "q_proj.weight_scale", "no such tensor; fp8 needs it")
	fsys = byteModel(t, "F8_E4M3", `{"quant_method":"fp8","weight_block_size":[128,128]}`, func(m string, _, _ int) []checkpointtest.Tensor {
		return []checkpointtest.Tensor{floatTensor(m+".weight_scale_inv", "F32", 2, 2)}
	})
	_, err = weights.OpenFS(fsys, "some")
	wantSays(t, err, "q_proj.weight_scale_inv", "has shape [2 2], want [3 2]")

	fsys = byteModel(t, "F8_E4M3", `{"quant_method":"fp8"}`, one)
	file := fsys["model.safetensors"].Data
	raw := someBytes(q, 384*192)
	at := strings.Index(string(file), string(raw))
	file[at+5*192+17] = 0xFF
	src := openFS(t, fsys)
	if _, err := src.Rows(t.Context(), q, 0, 5); err != nil {
		t.Errorf("rows before the bad one: %v", err)
	}
	_, err = src.Rows(t.Context(), q, 2, 30)
	wantSays(t, err, "some/model.safetensors", q, "row 5, column 17 is NaN")
	copy(file[at:], raw)
	for _, bits := range []uint32{0x7F800000, 0xFF800001} {
		binary.LittleEndian.PutUint32(file[at+len(raw):], bits)
		_, err = openFS(t, fsys).Rows(t.Context(), q, 0, 1)
		wantSays(t, err, "q_proj.weight_scale", "the scale of output 0, group 0 is ")
	}
}

func wantSays(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}
