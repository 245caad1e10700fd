package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/weights"
)

func TestTestsWithoutRoomAreLeftOut(t *testing.T) {
	b := must(New(Options{Prompts: []int{5000}, Gens: []int{4}, Repetitions: 1, NoProfile: true}))(t)
	run, err := b.Run(t.Context(), open(t, b, engine.KVF16, ""), Device{})
	if err != nil || len(run.Tests) != 1 || run.Tests[0].Name != "tg4" || !strings.Contains(strings.Join(run.Notes, "\n"), "pp5000 left out: it needs a context of 5001 tokens") {
		t.Errorf("%v, tests %+v, notes %q", err, run.Tests, run.Notes)
	}
	b = must(New(Options{Prompts: []int{5000}, Repetitions: 1}))(t)
	var p *engine.ParamError
	if _, err := b.Run(t.Context(), open(t, b, engine.KVF16, ""), Device{}); !errors.As(err, &p) || !strings.Contains(err.Error(), "measure: pp5000 left out: it needs a context of 5001") {
		t.Errorf("nothing to measure: %v", err)
	}
}

// TestTestsBeyondTheMemoryAreLeftOut: the budget holds the model and a short context only, or few answers only; the rest is measured.
func TestTestsBeyondTheMemoryAreLeftOut(t *testing.T) {
	run := func(memory int64, o Options) Run {
		t.Helper()
		o.Repetitions, o.NoProfile = 1, true
		b := must(New(o))(t)
		dev, src := must(cpu.Open(cpu.Options{}))(t), must(weights.OpenDir(tiny))(t)
		eng := must(engine.Open(t.Context(), b.Configure(engine.Config{Device: dev, Source: src, KV: engine.KVF32, GPUMemory: memory})))(t)
		defer eng.Close()
		return must(b.Run(t.Context(), eng, Device{}))(t)
	}
	least := func(length, seqs int) int64 { // what a context and that many answers need
		src := must(weights.OpenDir(tiny))(t)
		dev := must(cpu.Open(cpu.Options{}))(t)
		defer dev.Close()
		return must(engine.PlanMemory(engine.Config{Source: src, KV: engine.KVF32, MaxModelLen: length, MaxSeqs: seqs, GPUMemory: 1}, dev.Info(), dev.Limits()))(t).Need
	}
	deep := run(least(700, 1), Options{Prompts: []int{20, 1000}, Gens: []int{4}, Depths: []int{0, 1500}})
	want := []LeftOut{
		{"pp1000", "context", 1001, 704, "it needs a context of 1001 tokens, the memory budget holds 704"},
		{"tg4 @ d1500", "context", 1505, 704, "it needs a context of 1505 tokens, the memory budget holds 704"},
	}
	if len(deep.Tests) != 2 || deep.Tests[0].Name != "pp20" || deep.Tests[1].Name != "tg4" || !slices.Equal(deep.LeftOut, want) ||
		!slices.Contains(deep.Notes, "pp1000 left out: "+want[0].Reason) {
		t.Errorf("tests %+v, left out %+v, notes %q", deep.Tests, deep.LeftOut, deep.Notes)
	}
	many := run(least(700, 2), Options{Batches: []int{2, 64}})
	if len(many.Tests) != 1 || many.Tests[0].Batch != 2 || len(many.LeftOut) != 1 || many.LeftOut[0].What != "blocks" || many.LeftOut[0].Need < 64*13 || many.LeftOut[0].Have < 2*13 {
		t.Errorf("tests %+v, left out %+v", many.Tests, many.LeftOut)
	}
}

// TestWhatTheCallerSaysBoundsTheTests: lengths and numbers that are given already stay.
func TestWhatTheCallerSaysBoundsTheTests(t *testing.T) {
	b := must(New(Options{Prompts: []int{20, 100}, Batches: []int{1, 4}, Repetitions: 1, NoProfile: true}))(t)
	dev, src := must(cpu.Open(cpu.Options{}))(t), must(weights.OpenDir(tiny))(t)
	cfg := b.Configure(engine.Config{Device: dev, Source: src, MaxModelLen: 90, MaxBatchedTokens: 3})
	if cfg.MaxModelLen != 90 || cfg.MaxSeqs != 3 {
		t.Errorf("a context of %d tokens and %d answers", cfg.MaxModelLen, cfg.MaxSeqs)
	}
	eng := must(engine.Open(t.Context(), cfg))(t)
	defer eng.Close()
	run := must(b.Run(t.Context(), eng, Device{}))(t)
	want := []LeftOut{
		{"pp100", "context", 101, 90, "it needs a context of 101 tokens, this engine has 90"},
		{"b1 (pp128+tg64)", "context", 193, 90, "it needs a context of 193 tokens, this engine has 90"},
		{"b4 (pp128+tg64)", "context", 193, 90, "it needs a context of 193 tokens, this engine has 90"},
	}
	if len(run.Tests) != 1 || !slices.Equal(run.LeftOut, want) {
		t.Errorf("tests %+v, left out %+v", run.Tests, run.LeftOut)
	}
}
