package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/hub"
	"github.com/pagelight/pagelight/internal/weights"
)

type planCmd struct {
	Model string `arg:"" optional:"" default:"builtin" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, builtin, or synthetic:NAME."`

	Device      string   `enum:"auto,gpu,cpu" default:"auto" env:"PAGELIGHT_DEVICE" help:"For what kind of device: gpu (a hardware GPU with the limits that WebGPU guarantees, also meant by auto) or cpu."`
	Quant       string   `enum:"none,q8,q4" default:"none" env:"PAGELIGHT_QUANT" help:"Weights: none (as stored), q8 or q4 (every matrix that is not quantized already)."`
	KV          string   `name:"kv" enum:"f16,f32,int8" default:"f16" env:"PAGELIGHT_KV" help:"How keys and values are cached: f16, f32, or int8 (half the memory of f16)."`
	GPUMemory   byteSize `name:"gpu-memory" placeholder:"BYTES" env:"PAGELIGHT_GPU_MEMORY" help:"Budget for weights, cache and scratch (512M, 2G). Default by kind of device: 8G for a GPU, else 4G."`
	MaxModelLen modelLen `default:"auto" placeholder:"N" env:"PAGELIGHT_MAX_MODEL_LEN" help:"Longest prompt and answer together, in tokens; auto is what the model was made for, or what fits the memory."`
	LogLevel    string   `enum:"debug,info,warn,error" default:"warn" hidden:""`
	JSON        bool     `name:"json" help:"Print JSON."`

	MaxNumSeqs          int  `placeholder:"N" env:"PAGELIGHT_MAX_NUM_SEQS" help:"Answers worked on at once. Default by kind of device: 64 for a GPU, else 16."`
	MaxNumBatchedTokens int  `placeholder:"N" env:"PAGELIGHT_MAX_NUM_BATCHED_TOKENS" help:"Most tokens in one step. Default by kind of device: 512 for a GPU, else 64."`
	Deterministic       bool `env:"PAGELIGHT_DETERMINISTIC" help:"For the kernels of --deterministic."`
}

// Help explains what the numbers are.
func (planCmd) Help() string {
	return `Says what a model needs before anything is downloaded or put on a device. No device is needed. Of a model of the Hugging
Face hub that is not in the cache, only the headers are read.
The numbers are those by which "serve" with the same flags divides its budget on a device of that kind. Whether a device
really grants them is seen only then: WebGPU tells limits, not how much memory is free.
The exit code is 3 when the model does not fit.`
}

// planReport is a plan with what it is for.
type planReport struct {
	Model  string `json:"model"`
	Device string `json:"device"`
	Quant  string `json:"quant"`
	kept   bool   // matrices that are quantized otherwise already
	engine.MemoryPlan
}

// Run prints the plan.
func (c *planCmd) Run(a *app) error {
	src, err := local.OpenModel(c.Model, c.Quant, nil)
	if missing := (*hub.NotCachedError)(nil); errors.As(err, &missing) {
		var h *hub.Hub
		if h, err = newHub(); err == nil && h.Offline {
			err = fmt.Errorf("%w (HF_HUB_OFFLINE is set)", missing)
		} else if err == nil {
			src, err = local.OpenHeaders(a.ctx, c.Model, c.Quant)
		}
	}
	if err != nil {
		return modelError{err}
	}
	defer src.Close()
	info, limits := gpu.Info{Kind: gpu.KindHardware, Name: "a GPU with the limits that WebGPU guarantees"}, gpu.DefaultLimits
	if c.Device == "cpu" {
		dev, err := cpu.Open(cpu.Options{})
		if err != nil {
			return err
		}
		defer dev.Close()
		info, limits = dev.Info(), dev.Limits()
	}
	plan, err := engine.PlanMemory(engine.Config{
		Source: src, KV: engine.KVType(c.KV), GPUMemory: int64(c.GPUMemory), MaxModelLen: int(c.MaxModelLen), MaxSeqs: c.MaxNumSeqs,
		MaxBatchedTokens: c.MaxNumBatchedTokens, Deterministic: c.Deterministic,
	}, info, limits)
	if err != nil {
		return modelError{err}
	}
	r := planReport{Model: src.Config().Name, Device: info.Name, Quant: c.Quant, MemoryPlan: plan}
	r.kept = c.Quant != "none" && keepsFormats(src, c.Quant)
	if c.JSON {
		err = printJSON(a.stdout, r)
	} else {
		err = r.print(a.stdout)
	}
	if err == nil && !plan.Fits {
		err = modelError{fmt.Errorf("plan: %s needs %s, the budget is %s%s", r.Model, byteSize(plan.Need), byteSize(plan.Budget), wouldFit(plan.Remedies))}
	}
	return err
}

// keepsFormats says whether a source that was opened with --quant has matrices in another format all the same.
func keepsFormats(src weights.Source, quant string) bool {
	return slices.ContainsFunc(weights.Tensors(src.Config()), func(s weights.Shape) bool {
		info, err := src.Info(s.Name)
		return err == nil && !s.Vector && !s.Router && !strings.HasPrefix(info.Format.String(), quant+"g")
	})
}

// print writes a table for people.
func (r *planReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what string, size int64, words string, args ...any) {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", what, size, byteSize(size), fmt.Sprintf(words, args...))
	}
	fmt.Fprintf(w, "%s on %s\n", r.Model, r.Device)
	how := "as stored"
	if r.Quant != "none" {
		how = "in " + r.Quant
		if r.kept {
			how += ", but for what is quantized already"
		}
	}
	row("weights", r.Weights, "%s", how)
	row("KV cache", r.KV, "in %s; blocks of %d tokens: %d; %d bytes a block, %d a token", r.KVType, r.BlockSize, r.NumBlocks, r.BlockBytes, r.TokenBytes)
	row("scratch", r.Scratch, "activations, rotary table, rows of logits: %d", r.MaxSeqs)
	fits := "fits"
	if !r.Fits {
		fits = "does not fit"
	}
	row("sum", r.Need, "%s", fits)
	row("budget", r.Budget, "")
	if err := t.Flush(); err != nil {
		return err
	}
	if !r.Fits {
		_, err := fmt.Fprintf(w, "largest context that fits: %d tokens\n", r.LargestContext)
		return err
	}
	_, err := fmt.Fprintf(w, "context: %d tokens; the largest that fits is %d\nanswers of that length at once: %d with --max-num-seqs %d; the most that fit: %d\n",
		r.MaxModelLen, r.LargestContext, r.Sequences, r.MaxSeqs, r.LargestConcurrency)
	return err
}

// wouldFit lists remedies as the end of an error.
func wouldFit(remedies []engine.Remedy) string {
	if len(remedies) == 0 {
		return ""
	}
	list := make([]string, len(remedies))
	for i, m := range remedies {
		list[i] = m.String()
	}
	return "; what would fit: " + strings.Join(list, ", or ")
}
