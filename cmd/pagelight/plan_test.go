package main

import (
	"encoding/json"
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

func TestPlanThatDoesNotFit(t *testing.T) {
	args := []string{"synthetic:ernie-4.5-0.3b", "--gpu-memory", "2G", "--max-model-len", "131072"}
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
