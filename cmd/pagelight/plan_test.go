package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	var r planReport
	out := succeeds(t, "", "plan", "synthetic:ernie-4.5-0.3b", "--quant", "q4", "--kv", "int8", "--max-num-seqs", "1", "--gpu-memory", "2G", "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	// 18 layers, keys and values, 2 heads of 128 bytes and a scale of 2.
	if !r.Fits || r.MaxModelLen != 131072 || r.TokenBytes != 2*18*2*130 || r.KV != 131072*r.TokenBytes || r.Need != r.Weights+r.Scratch+r.KV {
		t.Errorf("%s", out)
	}
	out = succeeds(t, "", "plan", "synthetic:ernie-4.5-0.3b", "--max-model-len", "4096")
	for _, words := range []string{"weights", "721571840", "context: 4096 tokens; the largest that fits is 131072", "18432 a token", "fits"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is missing in\n%s", words, out)
		}
	}
}

// TestQuantOfQuantizedModels: what stays as it is is not said to be in the format asked for.
func TestQuantOfQuantizedModels(t *testing.T) {
	t.Parallel()
	q8 := filepath.Join("..", "..", "internal", "weights", "testdata", "gguf", "ernie-s-q8_0.gguf")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{q8}, "as stored\n"},
		{[]string{q8, "--quant", "q8"}, "in q8\n"},
		{[]string{q8, "--quant", "q4"}, "in q4, but for what is quantized already\n"},
		{[]string{"synthetic:ernie-4.5-0.3b", "--quant", "q4"}, "in q4\n"},
	} {
		if out := succeeds(t, "", append([]string{"plan"}, c.args...)...); !strings.Contains(out, c.says) {
			t.Errorf("plan %s lacks %q:\n%s", c.args, c.says, out)
		}
	}
	r := pagelight(t, "", "generate", "--model", q8, "--quant", "q4", "--token-ids", "1", "--max-tokens", "1", "--device", "cpu")
	if r.code != 0 || !strings.Contains(r.stderr, "quantized already stay as they are") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
}

func TestPlanThatDoesNotFit(t *testing.T) {
	args := []string{"synthetic:ernie-4.5-0.3b", "--gpu-memory", "2200M", "--max-model-len", "131072"}
	r := pagelight(t, "", append([]string{"plan"}, args...)...)
	if r.code != exitModel || !strings.Contains(r.stdout, "does not fit") || !strings.Contains(r.stderr, "what would fit: --max-model-len ") ||
		!strings.Contains(r.stderr, "or --kv int8, or --gpu-memory ") {
		t.Errorf("exit code %d, %s, %s", r.code, r.stdout, r.stderr)
	}
	fails(t, exitUsage, "", []string{"max_model_len", "at most 131072"}, "plan", "synthetic:ernie-4.5-0.3b", "--max-model-len", "131073")
	fails(t, exitUsage, "", []string{"max_num_seqs"}, "plan", "--max-num-seqs", "257")
	// Who opens the model hears the same, before any weight is read.
	fails(t, exitModel, "", []string{"not enough memory", "what would fit: --max-model-len ", "--kv int8"},
		"generate", "--device", "cpu", "--prompt", "1", "--model", "synthetic:ernie-4.5-0.3b", "--gpu-memory", "2G", "--max-model-len", "131072")
}
