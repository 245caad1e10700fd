package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readTensors reads a safetensors file of f32 tensors.
func readTensors(t testing.TB, file string) map[string][]float32 {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(data)
	var header map[string]tensorHeader
	if err := json.Unmarshal(data[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	out := map[string][]float32{}
	for name, h := range header {
		size := 4
		for _, d := range h.Shape {
			size *= d
		}
		raw := data[8+int(n):][h.Offsets[0]:h.Offsets[1]]
		if h.DType != "F32" || len(raw) != size {
			t.Fatalf("%s: tensor %q is %+v", file, name, h)
		}
		for ; len(raw) > 0; raw = raw[4:] {
			out[name] = append(out[name], math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
	}
	return out
}

// TestLogitsOfGoldens compares with what transformers computed.
func TestLogitsOfGoldens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		golden, kv string
		vocab      int
		within     float64
	}{
		{"ernie", "f32", 640, 5e-4},
		{"ernie", "f16", 640, 1e-2},
		{"ernie-bias-untied", "f32", 515, 5e-4},
		{"ernie-moe", "f32", 512, 5e-4},
		{"llama", "f32", 512, 5e-4},
		{"qwen2", "f32", 512, 5e-4},
		{"qwen3", "f32", 512, 5e-4},
	} {
		t.Run(c.golden+" "+c.kv, func(t *testing.T) {
			dir := filepath.Join("../../internal/model/testdata", c.golden)
			out := filepath.Join(t.TempDir(), "out.safetensors")
			got := succeeds(t, "", "logits", "--model", dir, "--cases", dir+"/cases.json", "--out", out, "--json", "--device", "cpu", "--kv", c.kv)
			raw, err := os.ReadFile(dir + "/cases.json")
			if err != nil {
				t.Fatal(err)
			}
			var cases []testCase
			var printed struct{ Cases []testCase }
			if err := json.Unmarshal(raw, &cases); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(got), &printed); err != nil {
				t.Fatal(err)
			}
			if len(printed.Cases) != len(cases) {
				t.Fatalf("%d cases printed of %d", len(printed.Cases), len(cases))
			}
			for i, p := range printed.Cases {
				if p.Name != cases[i].Name || !slices.Equal(p.Greedy, cases[i].Greedy) {
					t.Errorf("case %d: %q %v, want %q %v", i, p.Name, p.Greedy, cases[i].Name, cases[i].Greedy)
				}
			}
			written, want := readTensors(t, out), readTensors(t, dir+"/expected.safetensors")
			if len(written) != len(want) {
				t.Errorf("%d tensors written, %d wanted", len(written), len(want))
			}
			for name := range want {
				compareRows(t, name, written[name], want[name], c.vocab, c.within)
			}
		})
	}
}

// compareRows compares each row with the tolerance relative to its largest magnitude.
func compareRows(t *testing.T, name string, got, want []float32, vocab int, within float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d numbers, want %d", name, len(got), len(want))
		return
	}
	for lo := 0; lo < len(want); lo += vocab {
		hi := lo + vocab
		most, off := 0.0, 0.0
		for i := lo; i < hi; i++ {
			most = max(most, math.Abs(float64(want[i])))
			off = max(off, math.Abs(float64(got[i])-float64(want[i])))
		}
		if !(off <= within*most) {
			t.Errorf("%s, row %d: off by %g of %g", name, lo/vocab, off, most)
			return
		}
	}
}

func TestLogitsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out.safetensors")
	logits := func(cases string, more ...string) []string {
		return append([]string{"logits", "--model", "builtin", "--device", "cpu", "--cases", write(t, cases)}, more...)
	}
	if got := succeeds(t, "", logits(`{"cases":[{"name":"a","input_ids":[5,6]}]}`, "--json", "--out", out)...); got != `{"cases":[{"name":"a","greedy":[]}]}`+"\n" {
		t.Errorf("%s", got)
	}
	if tensors := readTensors(t, out); len(tensors) != 1 || len(tensors["a.logits"]) != 2*8192 {
		t.Errorf("%d tensors", len(tensors))
	}
	if got := succeeds(t, "", logits(`[]`, "--json")...); got != `{"cases":[]}`+"\n" {
		t.Errorf("%s", got)
	}
	// A longer prompt has its last row only; the context may be filled to the last token.
	long := fmt.Sprintf(`[{"name":"b","input_ids":[%s7],"greedy":[1,2]}]`, strings.Repeat("7,", 69))
	succeeds(t, "", logits(long, "--out", out)...)
	tensors := readTensors(t, out)
	if len(tensors) != 2 || len(tensors["b.last_logits"]) != 8192 || len(tensors["b.greedy_logits"]) != 2*8192 {
		t.Errorf("%d tensors", len(tensors))
	} else if !slices.Equal(tensors["b.last_logits"], tensors["b.greedy_logits"][:8192]) {
		t.Error("the first row of the continuation is not that of the prompt's last token")
	}
	for says, cases := range map[string]string{
		"neither a list of cases":     `{"a":1}`,
		"case 0 has no name":          `[{"input_ids":[1]}]`,
		"no input_ids":                `[{"name":"x","input_ids":[]}]`,
		`two cases are named "x"`:     `[{"name":"x","input_ids":[1]},{"name":"x","input_ids":[1]}]`,
		`case "x": prompt: token id`:  `[{"name":"x","input_ids":[8192]}]`,
		"cannot unmarshal":            `[{"name":"x","input_ids":["a"]}]`,
		`case "x": this model's maxi`: fmt.Sprintf(`[{"name":"x","input_ids":[%s7]}]`, strings.Repeat("7,", 2048)),
	} {
		fails(t, exitUsage, "", []string{says}, logits(cases, "--out", filepath.Join(dir, "never"))...)
	}
	fails(t, exitUsage, "", []string{"no such file or directory"}, logits(`[]`, "--out", "/no/such/folder/x")...)
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}
