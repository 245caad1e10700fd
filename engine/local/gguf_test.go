package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

const ggufFiles = "../../internal/weights/testdata/gguf"

// copyGGUF puts a small GGUF model into dir under another name.
func copyGGUF(t *testing.T, dir, as string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(ggufFiles, "ernie-s-q4_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, as)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openGGUF(t *testing.T, model, quantization string) weights.Source {
	t.Helper()
	src, err := OpenModel(model, quantization, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

// TestOpenGGUFByFileAndByFolder: a folder will do when it leaves no doubt which file is meant.
func TestOpenGGUFByFileAndByFolder(t *testing.T) {
	dir := t.TempDir()
	path := copyGGUF(t, dir, "Some-Model.Q4_0.gguf")
	for _, model := range []string{path, dir} {
		if c := openGGUF(t, model, "none").Config(); c.Name != "Some-Model.Q4_0" || c.Architecture != "ernie4_5" {
			t.Errorf("%s is called %q of architecture %s", model, c.Name, c.Architecture)
		}
	}
	hash := copyGGUF(t, t.TempDir(), "sha256-0123456789abcdef") // as caches name their files
	if c := openGGUF(t, hash, "none").Config(); c.Name != "tiny random ERNIE S" {
		t.Errorf("%s is called %q, want the name that the file gives itself", hash, c.Name)
	}
	copyGGUF(t, dir, "mmproj-Some-Model.gguf") // beside a model it is not the one that is meant
	openGGUF(t, dir, "none")
	copyGGUF(t, dir, "other.gguf")
	_, err := OpenModel(dir, "none", nil)
	for _, want := range []string{dir, "2 GGUF files", "Some-Model.Q4_0.gguf, other.gguf", "give the path"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("two files: %v; want an error that says %q", err, want)
		}
	}
}

// TestQuantLeavesGGUFBlocks: what a file holds in blocks stays as it is; floats are quantized as everywhere.
func TestQuantLeavesGGUFBlocks(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	for _, c := range []struct {
		file, quant string
		want        quant.Format
	}{
		{"ernie-s-q4_0.gguf", "none", quant.Format{Kind: quant.Q4, Group: 32}},
		{"ernie-s-q4_0.gguf", "q8", quant.Format{Kind: quant.Q4, Group: 32}},
		{"ernie-s-q8_0.gguf", "q4", quant.Format{Kind: quant.Q8, Group: 32}},
		{"ernie-s-bf16.gguf", "none", quant.Format{Kind: quant.BF16}},
		{"ernie-s-bf16.gguf", "q4", quant.Format{Kind: quant.Q4, Group: 32}},
		{"ernie-s-f32.gguf", "q8", quant.Format{Kind: quant.Q8, Group: 32}},
	} {
		path := filepath.Join(ggufFiles, c.file)
		if _, err := os.Stat(path); err != nil {
			path = filepath.Join(os.Getenv("PAGELIGHT_FIXTURES"), "gguf", c.file)
			if _, err := os.Stat(path); err != nil {
				t.Logf("SKIPPED: %s is not in PAGELIGHT_FIXTURES", c.file)
				continue
			}
		}
		src := openGGUF(t, path, c.quant)
		info, err := src.Info(name)
		if err != nil || info.Format != c.want {
			t.Errorf("%s with quant %s: %v, %v, want %v", c.file, c.quant, info.Format, err, c.want)
		}
		if _, err := src.Rows(t.Context(), name, 3, 11); err != nil {
			t.Error(err)
		}
	}
}

// TestGGUFChats: a file alone is enough for a chat: vocabulary, special tokens and template come from its metadata.
func TestGGUFChats(t *testing.T) {
	eng, err := Open(t.Context(), Options{
		Model: filepath.Join(ggufFiles, "ernie-s-q4_0.gguf"), Device: "cpu", Engine: engine.Config{MaxModelLen: 256},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	prompt, err := eng.RenderChat(t.Context(), []engine.Message{{Role: "user", Content: "1234"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "<|begin_of_sentence|>User: 1234\nAssistant: "; prompt != want {
		t.Errorf("the prompt is %q, want %q", prompt, want)
	}
	ids, err := eng.Tokenize(prompt, true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(ids, 4) || slices.Contains(ids, 0) || ids[0] < 500 {
		t.Errorf("the prompt's ids are %v; want a control token first, digits and nothing unknown", ids)
	}
	info := eng.Info()
	if info.Model != "ernie-s-q4_0" {
		t.Errorf("the model is called %q", info.Model)
	}
}
