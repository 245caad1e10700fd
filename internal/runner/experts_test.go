package runner

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// smallBindings is a device whose bindings show little.
type smallBindings struct {
	gpu.Device
	most int64
}

func (s smallBindings) Limits() gpu.Limits {
	l := s.Device.Limits()
	l.MaxStorageBinding = s.most
	return l
}

// TestExpertsInParts runs the golden mixture of experts where a binding shows five of its eight experts, and one that changes
// format within each layer: parts begin and end with experts.
func TestExpertsInParts(t *testing.T) {
	dir := filepath.Join(goldens, "ernie-moe")
	for name, open := range devices(t) {
		t.Run(name, func(t *testing.T) {
			src, err := weights.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			inner := open()
			defer inner.Close()
			dev := smallBindings{inner, 1 << 17} // an expert's matrix has 24 KiB
			w, err := model.LoadWeights(t.Context(), dev, src, func(int64, string) {})
			if err != nil {
				t.Fatal(err)
			}
			e := w.Layers[1].Experts
			for i, m := range []kernels.Weight{e.Gate, e.Up, e.Down} {
				var rows []int
				for _, p := range m.Parts {
					rows = append(rows, p.Rows)
				}
				if each := m.Rows / 8; !slices.Equal(rows, []int{5 * each, 3 * each}) {
					t.Errorf("matrix %d: parts of %v rows, want those of five and of three experts, of %d each", i, rows, each)
				}
			}
			w.Release()
			checkSource(t, dev, src, dir, quant.KVF32, 5e-4)

			mixed := weights.Quantized(src, func(name string, info weights.Info) quant.Format {
				if m, _ := filepath.Match("model.layers.*.mlp.experts.[36].*", name); m {
					return quant.Format{Kind: quant.F32}
				}
				return info.Format
			})
			checkSource(t, inner, mixed, dir, quant.KVF32, 5e-4)
		})
	}
}
