package runner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// openGPUKernels opens a small model on the processor with the kernels of GPUs.
func openGPUKernels(t *testing.T, dev gpu.Device, change func(*Config)) *Runner {
	t.Helper()
	src, err := weights.OpenDir("../model/testdata/ernie")
	if err != nil {
		t.Fatal(err)
	}
	tuning := kernels.TuningFor(gpu.Info{Kind: gpu.KindHardware})
	c := Config{
		Budget: 1 << 30, MaxModelLen: 64, MaxLogits: 4, MaxSeqs: 4, MaxTokens: 20, NumTokens: src.Config().VocabSize, Tuning: &tuning,
		Progress: func(string, int64, int64, string) {},
	}
	change(&c)
	r, err := Open(t.Context(), dev, src, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func processor(t *testing.T) gpu.Device {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

// TestTuneOfAModel measures every choice, and what comes of it gives the same tokens.
func TestTuneOfAModel(t *testing.T) {
	r := openGPUKernels(t, processor(t), func(*Config) {})
	list, err := r.Tune(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	choices, kinds := map[string]string{}, map[string]bool{}
	for _, m := range list {
		kinds[strings.Fields(m.Key)[0]] = true
		if len(m.Rejected) > 0 {
			t.Errorf("%s: %v", m.Key, m.Rejected)
		}
		for v, took := range m.Times {
			if took <= 0 {
				t.Errorf("%s %s took %v", m.Key, v, took)
			}
			if v != m.Default {
				choices[m.Key] = v // whether it is faster or not
			}
		}
	}
	if want := []string{"attention", "attn_linear", "head_argmax", "linear", "norm_linear", "qkv_rope_store", "short_block"}; !slices.Equal(slices.Sorted(maps.Keys(kinds)), want) {
		t.Errorf("choices of %v were measured, want %v", slices.Sorted(maps.Keys(kinds)), want)
	}
	ids := func(choices map[string]string) []int32 {
		r := openGPUKernels(t, processor(t), func(c *Config) { c.Choices = choices })
		q := &sched.Sequence{ID: "q", Tokens: []int32{5, 77, 300, 12, 9, 41}, Table: make(kvcache.Table, 1)}
		res, err := r.Step(t.Context(), &sched.Plan{
			Chunks: []sched.Chunk{{Seq: q, Tokens: q.Tokens, Logits: 1}}, NumTokens: len(q.Tokens), NumLogits: 1,
		}, WantIDs)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(res.IDs)
	}
	if got, want := ids(choices), ids(nil); !slices.Equal(got, want) {
		t.Errorf("with other variants %v, with the defaults %v", got, want)
	}
}

// TestDeterministicHasNothingToTune, whatever is asked for.
func TestDeterministicHasNothingToTune(t *testing.T) {
	r := openGPUKernels(t, processor(t), func(c *Config) {
		c.Deterministic, c.Choices = true, map[string]string{"some": "choice"}
	})
	if list, err := r.Tune(t.Context(), 0); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// brokenVariant is a device on which the kernels of some variants cannot be built.
type brokenVariant struct {
	gpu.Device
	broken string
}

func (d *brokenVariant) NewBindGroup(label string, layout []gpu.BindingKind, b []gpu.Binding) (gpu.BindGroup, error) {
	if d.broken != "" && strings.Contains(label, d.broken) {
		return nil, errors.New("no such luck")
	}
	return d.Device.NewBindGroup(label, layout, b)
}

// TestVariantThatFailsIsLeftOut and the others are measured.
func TestVariantThatFailsIsLeftOut(t *testing.T) {
	dev := &brokenVariant{Device: processor(t)}
	r := openGPUKernels(t, dev, func(*Config) {})
	dev.broken = "paged_attn_decode"
	list, err := r.Tune(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	left, measured := 0, 0
	for _, m := range list {
		for _, why := range m.Rejected {
			if left++; !strings.Contains(why, "no such luck") {
				t.Errorf("%s: %s", m.Key, why)
			}
		}
		measured += len(m.Times)
	}
	if left == 0 || measured < 10 {
		t.Errorf("%d variants were left out, %d were measured", left, measured)
	}
}

// TestTuneBetweenSteps: an answer goes on as if nobody had measured in the middle of it, and what was interrupted is done later.
func TestTuneBetweenSteps(t *testing.T) {
	answer := func(between func(r *Runner)) (ids []int32) {
		r := openGPUKernels(t, processor(t), func(*Config) {})
		q := &sched.Sequence{ID: "q", Tokens: []int32{5, 77, 300, 12, 9, 41}, Table: kvcache.Table{2, 1}}
		for start := 0; len(q.Tokens) < 12; {
			res, err := r.Step(t.Context(), &sched.Plan{
				Chunks: []sched.Chunk{{Seq: q, Tokens: q.Tokens[start:], Start: start, Logits: 1}}, NumTokens: len(q.Tokens) - start, NumLogits: 1,
			}, WantIDs)
			if err != nil {
				t.Fatal(err)
			}
			start = len(q.Tokens)
			q.Tokens = append(q.Tokens, res.IDs[0])
			between(r)
		}
		return q.Tokens
	}
	var tuner *Tuner
	var done []string
	runs := 0
	got := answer(func(r *Runner) {
		if tuner == nil {
			tuner = r.NewTuner(func(key string) bool {
				return strings.HasPrefix(key, "norm_linear") || strings.HasPrefix(key, "attn_linear")
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := len(tuner.Choices())
		if runs++; runs <= 3 {
			// The interruption comes while the choice is measured that is to be the next to be done.
			time.AfterFunc(time.Duration(runs)*30*time.Millisecond, cancel)
		}
		list, err := tuner.Run(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		done = nil
		for _, m := range list {
			done = append(done, m.Key)
		}
		if len(tuner.Choices()) > left || err == nil && len(tuner.Choices()) > 0 {
			t.Errorf("run %d leaves %v of %d, error %v", runs, tuner.Choices(), left, err)
		}
	})
	if want := answer(func(*Runner) {}); !slices.Equal(got, want) {
		t.Errorf("measured in between: %v, else %v", got, want)
	}
	slices.Sort(done)
	if once := slices.Compact(slices.Clone(done)); len(done) < 3 || len(once) != len(done) {
		t.Errorf("measured %v", done)
	}
}
