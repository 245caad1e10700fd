package kernels

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/quant"
)

// TestTunerComparesWhatHasAMeaning: variants of a layer whose outputs are rotated and stored leave different things where the keys and
// values of its rows were, and agree about the rest.
func TestTunerComparesWhatHasAMeaning(t *testing.T) {
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	s := NewTuned(dev, TuningFor(gpu.Info{Kind: gpu.KindHardware}))
	defer s.Release()
	buffer := func(words int, usage gpu.Usage) gpu.Buffer {
		b, err := dev.NewBuffer("b", int64(4*words), usage|gpu.UsageCopyDst|gpu.UsageCopySrc)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const rows, k, heads, kvHeads, d = 40, 512, 2, 1, 16
	const n = (heads + 2*kvHeads) * d
	w := Weight{Rows: n, K: k, Parts: []Part{{Rows: n, Format: quant.Format{Kind: quant.F32}, Data: buffer(k*n, gpu.UsageStorage)}}}
	values := make([]float32, k*n)
	for i := range values {
		values[i] = float32(i%7) - 3
	}
	if err := dev.WriteBuffer(w.Parts[0].Data, 0, gpu.Bytes(values)); err != nil {
		t.Fatal(err)
	}
	step := gpu.Binding{Buffer: buffer(StepBytes/4, gpu.UsageUniform)}
	y := buffer(rows*n, gpu.UsageStorage)
	cache := func() gpu.Buffer { return buffer(kvHeads*BlockSize*d, gpu.UsageStorage) }
	if _, err := s.Linear(LinearArgs{
		Rows: rows, X: buffer(rows*k, gpu.UsageStorage), W: w, Y: y, Step: step, Rope: &RopeStoreArgs{
			Rows: rows, Heads: heads, KVHeads: kvHeads, HeadDim: d, RowStride: n, KV: quant.KVF32, Tokens: buffer(4*rows, gpu.UsageStorage),
			Table: buffer(d, gpu.UsageStorage), QKV: y, KCache: cache(), VCache: cache(), Step: step,
		},
	}); err != nil {
		t.Fatal(err)
	}
	tuner := func(budget time.Duration) *Tuner {
		return &Tuner{
			Set: s, Budget: budget,
			Prepare: func(rows, _ int) error {
				return dev.WriteBuffer(step.Buffer, 0, gpu.Bytes([]uint32{uint32(rows), 0, 0, 0}))
			},
			Time: func(context.Context, gpu.Program) (time.Duration, error) { return 1000, nil },
		}
	}
	if list, err := tuner(1).Run(t.Context()); len(list) != 0 || err != nil {
		t.Errorf("within a nanosecond %d choices were measured, %v", len(list), err)
	}
	list, err := tuner(0).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cut := false
	for _, m := range list {
		if len(m.Rejected) > 0 {
			t.Errorf("%s: %v", m.Key, m.Rejected)
		}
		for v := range m.Times {
			cut = cut || slices.Contains(strings.Fields(v), "k2")
		}
	}
	if !cut {
		t.Errorf("no variant that cuts K was measured: %+v", list)
	}
}
