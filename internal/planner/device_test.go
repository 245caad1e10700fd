package planner_test

import (
	"fmt"
	"testing"

	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/weights"
)

// counted is a device that adds up what it is asked for. It may pass for a device of another kind, which changes the choice of
// kernels.
type counted struct {
	gpu.Device
	info   gpu.Info
	limits gpu.Limits
	bytes  int64
	parts  map[string]int64 // by label
}

func (d *counted) Info() gpu.Info     { return d.info }
func (d *counted) Limits() gpu.Limits { return d.limits }

func (d *counted) NewBuffer(label string, size int64, usage gpu.Usage) (gpu.Buffer, error) {
	d.bytes += size
	d.parts[label] += size
	return d.Device.NewBuffer(label, size, usage)
}

func open(t *testing.T, name string) weights.Source {
	t.Helper()
	var src weights.Source
	var err error
	if name == "builtin" {
		src, err = builtin.Open()
	} else {
		src, err = weights.OpenDir("../model/testdata/" + name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// TestPlanIsWhatTheRunnerAllocates compares the plan with all buffers that opening a model asks the device for.
func TestPlanIsWhatTheRunnerAllocates(t *testing.T) {
	serial := gpu.Info{Kind: gpu.KindCPU, Name: "serial", BarrierFree: true}
	software := gpu.Info{Kind: gpu.KindSoftware, Name: "software", BarrierFree: true}
	hardware := gpu.Info{Kind: gpu.KindHardware, Name: "hardware"}
	for i, c := range []struct {
		model         string
		info          gpu.Info
		limits        gpu.Limits
		kv            quant.KVType
		deterministic bool
		length        int
		seqs, tokens  int
		budget        int64
	}{
		{"builtin", serial, gpu.DefaultLimits, quant.KVF16, false, 0, 16, 64, 256 << 20},
		{"builtin", serial, gpu.DefaultLimits, quant.KVI8, false, 0, 1, 64, 16 << 20},
		{"builtin", hardware, gpu.DefaultLimits, quant.KVF16, false, 100, 4, 512, 256 << 20},
		{"builtin", hardware, gpu.DefaultLimits, quant.KVF32, true, 0, 8, 100, 64 << 20},
		{"builtin", software, gpu.DefaultLimits, quant.KVF16, false, 0, 16, 64, 256 << 20},
		{"ernie", serial, gpu.DefaultLimits, quant.KVF32, false, 1, 1, 1, 64 << 20},
		{"ernie", hardware, gpu.DefaultLimits, quant.KVF16, false, 0, 3, 48, 4 << 20},
		{"ernie-bias-untied", serial, gpu.DefaultLimits, quant.KVI8, false, 0, 2, 16, 64 << 20},
		{"ernie-bias-untied", hardware, gpu.DefaultLimits, quant.KVF16, true, 17, 5, 70, 64 << 20},
		{"ernie-moe", serial, gpu.DefaultLimits, quant.KVF16, false, 0, 2, 64, 64 << 20},
		{"ernie-moe", software, gpu.DefaultLimits, quant.KVF16, false, 100, 2, 1, 64 << 20},
		{"ernie-moe", hardware, gpu.DefaultLimits, quant.KVF32, false, 0, 4, 512, 64 << 20},
		{"ernie-moe", hardware, gpu.DefaultLimits, quant.KVI8, true, 0, 4, 100, 64 << 20},
		{"llama", software, gpu.DefaultLimits, quant.KVF16, false, 0, 3, 50, 64 << 20},
		{"qwen2", serial, gpu.DefaultLimits, quant.KVF16, false, 0, 3, 50, 64 << 20},
		{"qwen3", hardware, gpu.DefaultLimits, quant.KVF16, false, 0, 3, 50, 64 << 20},
	} {
		t.Run(fmt.Sprintf("%d %s", i, c.model), func(t *testing.T) {
			inner, err := cpu.Open(cpu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			dev := &counted{Device: inner, info: c.info, limits: c.limits, parts: map[string]int64{}}
			src := open(t, c.model)
			defer src.Close()
			tuning := kernels.TuningFor(c.info)
			tuning.Deterministic = c.deterministic
			n := src.Config().VocabSize - 3
			asLoaded, q4 := planner.SourceBytes(src)
			p, err := planner.Make(planner.Request{
				Config: src.Config(), WeightBytes: asLoaded, Q4Bytes: q4, KV: c.kv, Budget: c.budget, Device: c.info.Name, Limits: c.limits,
				Tuning: tuning, MaxModelLen: c.length, MaxSeqs: c.seqs, MaxTokens: c.tokens, MaxLogits: c.seqs, NumTokens: n,
			})
			if err != nil {
				t.Fatal(err)
			}
			r, err := runner.Open(t.Context(), dev, src, runner.Config{
				KV: c.kv, Budget: c.budget, MaxModelLen: c.length, MaxTokens: c.tokens, MaxLogits: c.seqs, MaxSeqs: c.seqs, NumTokens: n,
				Deterministic: c.deterministic, Progress: func(string, int64, int64, string) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if !tuning.BarrierFree {
				if err := r.OpenAdjust(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if dev.parts["kernels dummy"] == 0 { // which the plan always counts
				dev.bytes += 16
			}
			if l := r.Limits(); l.NumBlocks != p.NumBlocks || l.MaxModelLen != p.MaxModelLen {
				t.Errorf("the runner has %+v, the plan is %+v", l, p)
			}
			if !p.Fits || dev.bytes != p.Need || p.Need != p.Weights+p.Scratch+p.KV || p.Need > c.budget {
				t.Errorf("the device was asked for %d bytes of a budget of %d, the plan is %+v", dev.bytes, c.budget, p)
			}
			if t.Failed() {
				t.Log(dev.parts)
			}
		})
	}
}
