package runner

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// hardware has the kernels run that a GPU gets, whatever the adapter is.
func hardware(c *Config) {
	tuning := kernels.TuningFor(gpu.Info{Kind: gpu.KindHardware})
	tuning.Workgroups = 64
	c.Tuning = &tuning
}

// TestGoldensOnGPUKernels runs the kernels of GPUs on whatever adapter there is: for prompts those for many rows, then for each token
// those that do several layers' work at once.
func TestGoldensOnGPUKernels(t *testing.T) {
	check := func(model string, kv quant.KVType, tol float64) {
		t.Run(fmt.Sprintf("%s/%v", model, kv), func(t *testing.T) {
			dir := filepath.Join(goldens, model)
			src, err := weights.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			checkSource(t, gputest.Open(t), src, dir, kv, tol, hardware)
		})
	}
	for _, model := range goldenModels {
		check(model, quant.KVF32, 5e-4)
	}
	check("ernie", quant.KVF16, 1e-2)
	check("ernie", quant.KVI8, 6e-2) // keys and values are stored apart
	check("qwen2", quant.KVF16, 1e-2)
}

// TestFusedDispatches counts what a token costs.
func TestFusedDispatches(t *testing.T) {
	for _, c := range []struct {
		model               string
		kv                  quant.KVType
		layers, each, plain int
	}{
		{"ernie", quant.KVF16, 3, 4, 9},             // qkv with rope and store, attention with o, gate and up, down
		{"ernie", quant.KVI8, 3, 7, 10},             // rope and store apart
		{"ernie-bias-untied", quant.KVF16, 2, 7, 9}, // likewise
		{"qwen3", quant.KVF16, 2, 7, 10},            // the norm of heads too
	} {
		src, err := weights.OpenDir(filepath.Join(goldens, c.model))
		if err != nil {
			t.Fatal(err)
		}
		dev := gputest.Open(t)
		open := func(fuse bool) *Runner {
			config := Config{
				KV: c.kv, Budget: 1 << 30, MaxModelLen: 64, MaxTokens: 8, MaxLogits: 2, MaxSeqs: 1, NumTokens: src.Config().VocabSize,
				Progress: func(string, int64, int64, string) {},
			}
			hardware(&config)
			config.Tuning.Fuse = fuse
			r, err := Open(context.Background(), dev, src, config)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for fuse, each := range map[bool]int{true: c.each, false: c.plain} {
			r := open(fuse)
			head := 2 // logits with their norm and the best of each part, the best of all
			if !fuse {
				head = 5 // rows, norm, logits, the best of parts, the best of all
			}
			if got, want := r.DispatchesPerToken(), 1+c.layers*each+head; got != want {
				t.Errorf("%s, cache %v, fused %v: %d dispatches for a token, want %d", c.model, c.kv, fuse, got, want)
			}
			r.Close()
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTrunks computes the same token by all trunks for few tokens that serve it, and each by itself at its time.
func TestTrunks(t *testing.T) {
	config := Config{KV: quant.KVF32, MaxModelLen: 1024, MaxTokens: 64, MaxLogits: 1, MaxSeqs: 1}
	hardware(&config)
	short := config.Tuning.ShortContext
	r := openGolden(t, gputest.Open(t), "ernie", 0, config)
	q := sequences(1, kernels.LongContext)[0]
	step := func(tokens int) []float32 {
		p := planOf([]*sched.Sequence{q}, []int{tokens})
		p.Chunks[0].Logits, p.NumLogits = 1, 1
		row := slices.Clone(stepRows(t, r, p)[0])
		q.NumComputed += tokens
		return row
	}
	took := func(trunk model.Trunk) bool { return r.trunks[trunkKey{rows: 1, trunk: trunk}] != nil }
	compare := func(a, b []float32) {
		t.Helper()
		for i, v := range a {
			if math.Abs(float64(v-b[i])) > 1e-4 {
				t.Fatalf("%d positions: logit %d is %g by one trunk, %g by the other", q.NumComputed, i, v, b[i])
			}
		}
	}
	for q.NumComputed < short-1 {
		step(min(64, short-1-q.NumComputed))
	}
	one := step(1)
	if !took(model.ShortTrunk) || took(model.FewTrunk) {
		t.Fatalf("%d positions did not take the ops for short contexts", q.NumComputed)
	}
	two := step(1)
	if !took(model.FewTrunk) {
		t.Fatalf("%d positions took the ops for short contexts", q.NumComputed)
	}
	r.trunks[trunkKey{rows: 1, trunk: model.ShortTrunk}] = r.trunks[trunkKey{rows: 1, trunk: model.FewTrunk}]
	q.NumComputed -= 2
	compare(one, step(1))
	compare(two, step(1))
	for q.NumComputed < kernels.LongContext-2 {
		step(min(64, kernels.LongContext-2-q.NumComputed))
	}
	step(1)
	if took(model.LongTrunk) {
		t.Errorf("%d positions took the ops for long contexts", q.NumComputed)
	}
	long := step(1)
	if !took(model.LongTrunk) {
		t.Fatalf("%d positions did not take the ops for long contexts", q.NumComputed)
	}
	r.trunks[trunkKey{rows: 1, trunk: model.LongTrunk}] = r.trunks[trunkKey{rows: 1, trunk: model.FewTrunk}]
	q.NumComputed--
	compare(long, step(1))
}
