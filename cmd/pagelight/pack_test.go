package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tinyModel is a random checkpoint without a tokenizer.
const tinyModel = "../../internal/model/testdata/llama"

func TestPack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "small")
	got := succeeds(t, "", "pack", tinyModel, "--quant", "q4", "--method", "rtn", "--name", "little", "-o", out)
	for _, w := range []string{"wrote " + out, "bits a weight", "5.00 in the linear layers"} {
		if !strings.Contains(got, w) {
			t.Errorf("%q does not say %q", got, w)
		}
	}
	manifest, err := os.ReadFile(filepath.Join(out, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{`"little"`, "q4g32 (rtn)", "q8g32 (rtn)"} {
		if !strings.Contains(string(manifest), w) {
			t.Errorf("the manifest does not say %s", w)
		}
	}
	if _, err := os.Stat(out + ".packing"); !os.IsNotExist(err) {
		t.Errorf("the work folder is still there: %v", err)
	}
	// A folder that is taken is left alone, and replaced when told to.
	fails(t, exitFailed, "", []string{out, "exists already", "--force"}, "pack", tinyModel, "-o", out)
	if got := succeeds(t, "", "pack", tinyModel, "-o", out, "--force"); !strings.Contains(got, "16.") && !strings.Contains(got, "32.") {
		t.Errorf("as it is: %q", got)
	}
	// A recipe from a file.
	recipe := write(t, "tensors:\n- match: [embed_tokens]\n  quant: q8\n- match: [down_proj]\n  quant: q8\n- match: ['*']\n  quant: q2\n  group: 32\n  method: rtn\n")
	if got := succeeds(t, "", "pack", tinyModel, "--recipe", recipe, "-o", filepath.Join(dir, "mixed")); !strings.Contains(got, "wrote") {
		t.Errorf("with a recipe: %q", got)
	}
}

func TestPackWrongCalls(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	recipe := write(t, "tensors:\n- match: [a]\n  quants: q4\n")
	for _, c := range []struct {
		code  int
		words []string
		args  []string
	}{
		{exitUsage, []string{"-o"}, []string{"pack", tinyModel}},
		{exitUsage, []string{"--quant"}, []string{"pack", tinyModel, "-o", out, "--quant", "q5"}},
		{exitUsage, []string{"group 24", "8, 16, 32"}, []string{"pack", tinyModel, "-o", out, "--quant", "q4", "--group", "24"}},
		{exitUsage, []string{recipe, "line 3", "quants"}, []string{"pack", tinyModel, "-o", out, "--recipe", recipe}},
		{exitUsage, []string{"--recipe says all"}, []string{"pack", tinyModel, "-o", out, "--recipe", recipe, "--quant", "q4"}},
		{exitUsage, []string{"no such file"}, []string{"pack", tinyModel, "-o", out, "--recipe", filepath.Join(out, "none.yaml")}},
		{exitUsage, []string{"--calibration-tokens"}, []string{"pack", tinyModel, "-o", out, "--calibration-tokens", "5"}},
		{exitModel, []string{"no such folder"}, []string{"pack", filepath.Join(out, "none"), "-o", out}},
		// A model without a tokenizer cannot read a text, and gptq needs one.
		{exitModel, []string{"no tokenizer"}, []string{"pack", tinyModel, "-o", out, "--calibration", recipe}},
		{exitModel, []string{"calibration"}, []string{"pack", tinyModel, "-o", out, "--quant", "q4"}},
	} {
		fails(t, c.code, "", c.words, c.args...)
	}
}

// A model agrees with itself everywhere, and cannot be held against one of another vocabulary.
func TestPerplexityAgainst(t *testing.T) {
	t.Parallel()
	text := write(t, strings.Repeat("The king said to his son that he should go and look for the golden bird. ", 6))
	args := []string{"perplexity", "--file", text, "--device", "cpu", "--json", "--against", "builtin"}
	var got perplexityResult
	if err := json.Unmarshal([]byte(succeeds(t, "", args...)), &got); err != nil {
		t.Fatal(err)
	}
	if got.SameTop != 1 || got.Against != "builtin" {
		t.Errorf("against itself: %+v", got)
	}
	fails(t, exitUsage, "", []string{"vocabulary of 512"}, "perplexity", "--file", text, "--device", "cpu", "--against", tinyModel)
}
