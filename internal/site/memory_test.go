package site

import (
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// TestMemoryLineIsThePlan holds the line that the page computes with against the planner: never below it, and close to it.
func TestMemoryLineIsThePlan(t *testing.T) {
	synthetic, err := weights.OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		t.Fatal(err)
	}
	src := weights.Quantized(synthetic, weights.PolicyQ4(nil))
	m, err := memoryOf(src)
	if err != nil {
		t.Fatal(err)
	}
	if m.Memory != 225595392 || m.MaxModelLen != 131072 || m.BlockSize != 16 {
		t.Errorf("%+v", m)
	}
	info := gpu.Info{Kind: gpu.KindHardware}
	for _, n := range []int{1, 16, 17, 512, 4096, 100000, 131072} {
		p, err := planner.Make(planner.Request{
			Config: src.Config(), WeightBytes: src.Bytes(), KV: quant.KVF16, Limits: gpu.DefaultLimits, Tuning: kernels.TuningFor(info),
			MaxModelLen: n, MaxSeqs: 4, MaxTokens: 512, MaxLogits: 4,
		})
		if err != nil {
			t.Fatal(err)
		}
		line := m.MemoryFixed + m.MemoryPerBlock*int64((n+15)/16)
		if line < p.Need || line > p.Need+2<<20 {
			t.Errorf("%d tokens: the page says %d bytes, the planner %d", n, line, p.Need)
		}
	}
}
