package runner

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// Every linear layer of a dense trunk has a tap; the first shows the normed embedding; and to stop on the way changes nothing.
func TestTapsShowWhatLinearLayersRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, name := range []string{"ernie", "ernie-bias-untied", "llama", "qwen2", "qwen3"} {
		src, err := weights.OpenDir(filepath.Join(goldens, name))
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		dev, err := cpu.Open(cpu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		cfg := src.Config()
		r, err := Open(ctx, dev, src, Config{
			KV: quant.KVF32, Budget: 1 << 30, MaxModelLen: 64, MaxTokens: 48, MaxLogits: 16, MaxSeqs: 1, NumTokens: cfg.VocabSize,
			Progress: func(string, int64, int64, string) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		tapped := map[string]bool{}
		for _, tap := range r.Taps() {
			for _, n := range tap.Names {
				tapped[n] = true
			}
		}
		for _, s := range weights.Tensors(cfg) {
			if in := !s.Vector && s.Name != "model.embed_tokens.weight" && s.Name != "lm_head.weight"; in != tapped[s.Name] {
				t.Errorf("%s: %s has a tap: %v, want %v", name, s.Name, tapped[s.Name], in)
			}
		}
		tokens := []int32{5, 9, 2, 7, 11, 3, 8, 1, 0, 4, 6, 10, 5, 9, 2, 7, 11, 3, 8}
		step := func(want func(model.Tap) bool) map[string][]float32 {
			q := &sched.Sequence{ID: "taps", Tokens: tokens, Table: make(kvcache.Table, kvcache.NumBlocksFor(len(tokens)))}
			for i := range q.Table {
				q.Table[i] = kvcache.BlockID(i)
			}
			out := map[string][]float32{}
			p := &sched.Plan{Chunks: []sched.Chunk{{Seq: q, Tokens: tokens}}, NumTokens: len(tokens)}
			if err := r.StepTaps(ctx, p, want, func(tap model.Tap, rows []float32) error {
				out[tap.Names[0]] = slices.Clone(rows)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return out
		}
		all := step(func(model.Tap) bool { return true })
		last := r.Taps()[len(r.Taps())-1]
		one := step(func(tap model.Tap) bool { return tap.Op == last.Op })
		if len(one) != 1 || !slices.Equal(one[last.Names[0]], all[last.Names[0]]) {
			t.Errorf("%s: the last tap alone differs from the last of all", name)
		}
		checkFirstTap(t, src, tokens, all[r.Taps()[0].Names[0]])
	}
}

// checkFirstTap holds the first tap against the embedding and the norm of the checkpoint.
func checkFirstTap(t *testing.T, src weights.Source, tokens []int32, got []float32) {
	t.Helper()
	ctx, cfg := context.Background(), src.Config()
	norm, err := src.Vector(ctx, "model.layers.0.input_layernorm.weight")
	if err != nil {
		t.Fatal(err)
	}
	k := cfg.HiddenSize
	if len(got) != len(tokens)*k {
		t.Fatalf("the first tap has %d values, want %d", len(got), len(tokens)*k)
	}
	for i, id := range tokens {
		x, err := weights.Floats(ctx, src, "model.embed_tokens.weight", int(id), int(id)+1)
		if err != nil {
			t.Fatal(err)
		}
		square := 0.0
		for _, v := range x {
			square += float64(v) * float64(v) / float64(k)
		}
		for j, v := range x {
			want := float64(v) / math.Sqrt(square+cfg.RMSNormEps) * float64(norm[j])
			if d := math.Abs(float64(got[i*k+j]) - want); d > 1e-5*(1+math.Abs(want)) {
				t.Fatalf("token %d, channel %d: %v, want %v", i, j, got[i*k+j], want)
			}
		}
	}
}
