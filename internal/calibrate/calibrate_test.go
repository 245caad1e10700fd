package calibrate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/weights"
)

// goldens are tiny random checkpoints of several architectures.
const goldens = "../model/testdata"

func openGolden(t *testing.T, name string) weights.Source {
	t.Helper()
	src, err := weights.OpenDir(filepath.Join(goldens, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

func device(t *testing.T) gpu.Device {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

func tokens(n, vocab int) []int32 {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(vocab))
	}
	return ids
}

func open(t *testing.T, src weights.Source, windows [][]int32) *Calibrator {
	t.Helper()
	c, err := Open(context.Background(), device(t), src, windows)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The sums over tiles are those that are written out.
func TestMoment(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	const k, n = 24, 37
	m := newMoment(k)
	want, magnitude := make([]float64, k*k), make([]float64, k)
	for range 2 {
		x := make([]float32, n*k)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		if err := m.add(x); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(x); at += k {
			for i := range k {
				magnitude[i] += math.Abs(float64(x[at+i])) / (2 * n)
				for j := range k {
					want[i*k+j] += float64(x[at+i]) * float64(x[at+j]) / (2 * n)
				}
			}
		}
	}
	m.finish()
	for i, v := range want {
		if math.Abs(m.Square[i]-v) > 1e-5 {
			t.Fatalf("moment %d of %d is %v, want %v", i, k*k, m.Square[i], v)
		}
	}
	for i, v := range magnitude {
		if math.Abs(m.Magnitude[i]-v) > 1e-9 {
			t.Fatalf("magnitude %d is %v, want %v", i, m.Magnitude[i], v)
		}
	}
	if m.Tokens != 2*n {
		t.Errorf("%d tokens, want %d", m.Tokens, 2*n)
	}
	if err := newMoment(8).add([]float32{0, 0, 0, float32(math.Inf(1)), 0, 0, 0, 0}); err == nil {
		t.Error("an infinity was accepted")
	}
}

func TestWindows(t *testing.T) {
	t.Parallel()
	ids := tokens(100, 50)
	for _, c := range []struct{ length, limit, want, last int }{{32, 0, 3, 32}, {30, 0, 3, 30}, {60, 0, 2, 40}, {10, 35, 3, 10}, {10, 5, 1, 10}} {
		got, err := Windows(ids, c.length, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != c.want || len(got[len(got)-1]) != c.last {
			t.Errorf("windows of %d of at most %d tokens: %d, the last of %d", c.length, c.limit, len(got), len(got[len(got)-1]))
		}
	}
	if _, err := Windows(ids[:10], 32, 0); !errors.Is(err, ErrText) {
		t.Errorf("10 tokens for a window of 32: %v", err)
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	src := openGolden(t, "ernie")
	windows, err := Windows(tokens(80, src.Config().VocabSize), 32, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, src, windows)
	all := func(string) bool { return true }
	calls, last := 0, 0
	first, err := c.Collect(context.Background(), all, func(done, total int) { calls, last = calls+1, total-done })
	if err != nil {
		t.Fatal(err)
	}
	if calls != len(windows) || last != 0 {
		t.Errorf("progress was told %d times, %d tokens are left", calls, last)
	}
	const p = "model.layers.1."
	if q, k := first[p+"self_attn.q_proj.weight"], first[p+"self_attn.k_proj.weight"]; q == nil || q != k {
		t.Error("q and k read the same input and share no moment")
	}
	if m := first[p+"mlp.down_proj.weight"]; m.K != src.Config().IntermediateSize || m.Tokens != 80 {
		t.Errorf("down: K %d, %d tokens", m.K, m.Tokens)
	}
	again, err := c.Collect(context.Background(), func(name string) bool { return name == p+"mlp.down_proj.weight" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(again) != 1 || !slices.Equal(again[p+"mlp.down_proj.weight"].Square, first[p+"mlp.down_proj.weight"].Square) {
		t.Error("the moments of one matrix alone are others")
	}
}

// The loss is that of the logits, window by window, also where a window is longer than a step may read logits of.
func TestLoss(t *testing.T) {
	t.Parallel()
	src := openGolden(t, "ernie")
	w := tokens(70, src.Config().VocabSize)
	c := open(t, src, [][]int32{w})
	got, err := c.Loss(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for _, part := range []struct{ tokens, logits int }{{6, 6}, {70, 64}} {
		res, err := c.run.Step(context.Background(), plan(w[:part.tokens], part.logits), runner.WantLogits)
		if err != nil {
			t.Fatal(err)
		}
		for i := range part.logits {
			if next := part.tokens - part.logits + i + 1; next < len(w) {
				want += (logSumExp(res.Row(i)) - float64(res.Row(i)[w[next]])) / float64(len(w)-1)
			}
		}
	}
	if math.Abs(got-want) > 1e-5 {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Channels multiplied here and divided there leave the model what it was.
func TestScaledModelsComputeTheSame(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ernie", "ernie-bias-untied", "llama", "qwen2", "qwen3"} {
		src := openGolden(t, name)
		c := src.Config()
		rng := rand.New(rand.NewPCG(5, 6))
		var by weights.Scaling
		for l := range c.NumLayers {
			for _, f := range folds(c, l) {
				info, err := src.Info(f.readers[0])
				if err != nil {
					t.Fatal(err)
				}
				magnitude := make([]float64, info.K/f.repeat)
				for i := range magnitude {
					magnitude[i] = math.Exp(rng.NormFloat64())
				}
				if f.repeat > 1 {
					magnitude = repeatHeads(magnitude, c.HeadDim, f.repeat)
				}
				factors := make([]float32, len(magnitude))
				for i, v := range magnitude {
					factors[i] = float32(v)
				}
				apply(&by, f, factors, c.HeadDim)
			}
		}
		ids := tokens(40, c.VocabSize)
		want := logits(t, src, ids)
		got := logits(t, weights.Scaled(src, by), ids)
		most, worst := 0.0, 0.0
		for i, v := range want {
			most = max(most, math.Abs(float64(v)))
			worst = max(worst, math.Abs(float64(v)-float64(got[i])))
		}
		if worst > 2e-5*most {
			t.Errorf("%s: logits differ by %g of up to %g", name, worst, most)
		}
	}
}

func logits(t *testing.T, src weights.Source, ids []int32) []float32 {
	t.Helper()
	c := open(t, src, [][]int32{ids})
	res, err := c.run.Step(context.Background(), plan(ids, len(ids)), runner.WantLogits)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(res.Logits[:len(ids)*res.Vocab])
}

// Searched factors never lose more than none, and what is reported is what was applied.
func TestChannels(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	src := openGolden(t, "llama")
	c := src.Config()
	windows, err := Windows(tokens(96, c.VocabSize), 48, 0)
	if err != nil {
		t.Fatal(err)
	}
	moments, err := open(t, src, windows).Collect(ctx, func(string) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	q8 := func(name string) (quant.Format, bool) {
		info, err := src.Info(name)
		return quant.Format{Kind: quant.Q8, Group: 32}, err == nil && info.Rows > 1
	}
	var by weights.Scaling
	report, err := Channels(ctx, src, 0, moments, q8, &by)
	if err != nil {
		t.Fatal(err)
	}
	if len(report) != 4 {
		t.Fatalf("%d folds, want 4", len(report))
	}
	for _, f := range report {
		if f.After > f.Before || f.Scaled == (f.After == f.Before) {
			t.Errorf("%v: %v is lost before and %v after, scaled %v", f.Readers, f.Before, f.After, f.Scaled)
		}
		for _, name := range f.Readers {
			if (by.Columns[name] != nil) != f.Scaled {
				t.Errorf("%s: scaled %v, reported %v", name, by.Columns[name] != nil, f.Scaled)
			}
		}
	}
	// A matrix that keeps its format is not touched, nor is what goes with it.
	by = weights.Scaling{}
	report, err = Channels(ctx, src, 0, moments, func(name string) (quant.Format, bool) {
		f, ok := q8(name)
		return f, ok && name != "model.layers.0.mlp.up_proj.weight"
	}, &by)
	if err != nil {
		t.Fatal(err)
	}
	if len(report) != 2 || by.Columns["model.layers.0.mlp.down_proj.weight"] != nil || by.Columns["model.layers.0.mlp.gate_proj.weight"] != nil {
		t.Errorf("with up left alone there are %d folds", len(report))
	}
}
