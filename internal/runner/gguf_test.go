package runner

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// ggufExpected is expected.json beside the GGUF fixtures: what numpy computes in f32 from the weights that a file stands for.
type ggufExpected struct {
	Files []struct {
		File    string
		Prompts []struct {
			IDs       []int32   `json:"ids"`
			TopIDs    []int32   `json:"top_ids"`
			TopLogits []float32 `json:"top_logits"`
			Greedy    []int32   `json:"greedy"`
		}
	}
}

// TestGGUFGoldens runs files that llama.cpp's own quantizer made.
func TestGGUFGoldens(t *testing.T) {
	var want ggufExpected
	raw, err := os.ReadFile("../weights/testdata/gguf/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Files) == 0 {
		t.Fatal("expected.json lists no file")
	}
	for name, open := range devices(t) {
		for _, f := range want.Files {
			t.Run(f.File+"/"+name, func(t *testing.T) {
				path := ggufFixture(t, f.File)
				dev := open()
				defer dev.Close()
				r := openGGUF(t, dev, path)
				defer r.Close()
				for _, p := range f.Prompts {
					rows, greedy := run(t, r, goldenCase{Name: f.File, InputIDs: p.IDs, Greedy: p.Greedy}, len(p.Greedy))
					checkLargest(t, len(p.IDs), rows[len(rows)-len(p.Greedy)], p.TopIDs, p.TopLogits)
					for i := range p.Greedy {
						if greedy[i] != p.Greedy[i] {
							t.Errorf("prompt of %d: greedy id %d = %d, want %d", len(p.IDs), i, greedy[i], p.Greedy[i])
							break
						}
					}
				}
			})
		}
	}
}

// checkLargest compares the largest logits; 1e-3 of the row's largest magnitude is allowed.
func checkLargest(t *testing.T, prompt int, row []float32, ids []int32, want []float32) {
	t.Helper()
	most, diff := 0.0, 0.0
	for _, v := range row {
		most = max(most, math.Abs(float64(v)))
	}
	for i, id := range ids {
		d := math.Abs(float64(row[id]) - float64(want[i]))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		diff = max(diff, d)
	}
	if len(ids) < 16 || diff > 1e-3*most {
		t.Errorf("prompt of %d: the %d largest logits differ by %.2g of the row's largest magnitude, want 16 that differ by at most 1e-3", prompt, len(ids), diff/most)
	}
	t.Logf("prompt of %d: %.2g", prompt, diff/most)
}

// ggufFixture finds a file beside this project's tests, or among the larger ones.
func ggufFixture(t *testing.T, file string) string {
	t.Helper()
	paths := []string{filepath.Join("../weights/testdata/gguf", file)}
	if dir := os.Getenv("PAGELIGHT_FIXTURES"); dir != "" {
		paths = append(paths, filepath.Join(dir, "gguf", file))
	}
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return p
		}
	}
	t.Skipf("SKIPPED: %s is not in PAGELIGHT_FIXTURES", file)
	return ""
}

func openGGUF(t *testing.T, dev gpu.Device, path string) *Runner {
	t.Helper()
	src, err := weights.OpenGGUFFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	r, err := Open(context.Background(), dev, src, Config{
		KV: quant.KVF32, Budget: 1 << 30, MaxModelLen: 512, MaxTokens: 48, MaxLogits: 16, MaxSeqs: 1, NumTokens: src.Config().VocabSize,
		Progress: func(string, int64, int64, string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
