package runner

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// TestFormatsGiveTheSameBits is TestStepsOfAnyShapeGiveTheSameBits for what weights are stored as: each format has code of its own
// in the kernels that read one row and in those that read many.
func TestFormatsGiveTheSameBits(t *testing.T) {
	gguf := func(name string) string { return filepath.Join("..", "weights", "testdata", "gguf", name) }
	const asStored = quant.F32
	for _, c := range []struct {
		name, path string
		kind       quant.Kind // that matrices are quantized to
	}{
		{"gptq", filepath.Join(goldens, "ernie-gptq"), asStored},
		{"iq4_nl", gguf("ernie-s-iq4_nl.gguf"), asStored},
		{"q4_k_m", gguf("ernie-m-q4_k_m.gguf"), asStored},
		{"q3", filepath.Join(goldens, "llama"), quant.Q3},
		{"f8", filepath.Join(goldens, "llama"), quant.F8},
		{"experts in q4", filepath.Join(goldens, "ernie-moe"), quant.Q4},
	} {
		for device, openDevice := range devices(t) {
			if device == "gpu default limits" {
				continue // they choose no other kernels for models this small
			}
			t.Run(c.name+"/"+device, func(t *testing.T) {
				openSource := weights.OpenDir
				if strings.HasSuffix(c.path, ".gguf") {
					openSource = weights.OpenGGUFFile
				}
				src, err := openSource(c.path)
				if err != nil {
					t.Fatal(err)
				}
				defer src.Close()
				if c.kind != asStored {
					src = weights.Quantized(src, weights.PolicyGroups(c.kind, 32, nil))
				}
				dev := openDevice()
				defer dev.Close()
				sameBits(t, open(t, dev, src, Config{
					KV: quant.KVF16, Deterministic: true, MaxModelLen: 256, MaxTokens: 64, MaxLogits: 64, MaxSeqs: 6,
				}))
			})
		}
	}
}
