package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
)

// modelFlags are the flags of every command that opens a model.
type modelFlags struct {
	Device      string   `enum:"auto,gpu,cpu" default:"auto" env:"PAGELIGHT_DEVICE" help:"What computes: auto (a GPU, else the faster of a software adapter and the processor), gpu (any adapter), cpu."`
	Quant       string   `enum:"none,q8,q4" default:"none" env:"PAGELIGHT_QUANT" help:"Weights: none (as stored), q8 or q4 (every matrix that is not quantized already)."`
	KV          string   `name:"kv" enum:"f16,f32,int8" default:"f16" env:"PAGELIGHT_KV" help:"How keys and values are cached: f16, f32, or int8 (half the memory of f16)."`
	GPUMemory   byteSize `name:"gpu-memory" placeholder:"BYTES" env:"PAGELIGHT_GPU_MEMORY" help:"Budget for weights, cache and scratch (512M, 2G); WebGPU does not tell how much is free. Default by kind of device: 8G for a GPU, else 4G."`
	MaxModelLen modelLen `default:"auto" placeholder:"N" env:"PAGELIGHT_MAX_MODEL_LEN" help:"Longest prompt and answer together, in tokens; auto is what the model was made for, or what fits the memory."`
	LogLevel    string   `enum:"debug,info,warn,error" default:"warn" env:"PAGELIGHT_LOG_LEVEL" help:"Least severe message to log (debug, info, warn, error)."`
}

// logger writes to standard error, so that standard output holds results only.
func (f *modelFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		panic("BUG: " + err.Error())
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// open opens a model for a command, showing progress where a person watches.
func (f *modelFlags) open(a *app, model string, cfg engine.Config) (*engine.Engine, error) {
	return f.openWith(a, model, cfg, nil)
}

// openWith is open with a last word on the configuration when device and source are in it.
func (f *modelFlags) openWith(a *app, model string, cfg engine.Config, prepare func(*engine.Config)) (*engine.Engine, error) {
	log := f.logger(a.stderr)
	cfg.KV, cfg.GPUMemory, cfg.MaxModelLen, cfg.Logger = engine.KVType(f.KV), int64(f.GPUMemory), int(f.MaxModelLen), log
	told := cfg.Progress
	if err := a.fetchModel(model, told); err != nil {
		return nil, err
	}
	p := newProgress(a.stderr)
	cfg.Progress = func(pr engine.Progress) {
		p.show(pr)
		if told != nil {
			told(pr)
		}
	}
	eng, err := local.Open(a.ctx, local.Options{Model: model, Device: f.Device, Quant: f.Quant, Engine: cfg, Prepare: prepare})
	p.clear()
	if m := (*engine.MemoryError)(nil); errors.As(err, &m) {
		help := wouldFit(m.Remedies)
		if help == "" { // the device refused what the budget allows
			help = "; a smaller --max-model-len, --kv int8 or --quant q4 may help"
		}
		err = fmt.Errorf("%w%s", err, help)
	}
	if err != nil {
		return nil, modelError{err}
	}
	info := eng.Info()
	for _, note := range info.Notes {
		log.Info(note)
	}
	log.Info("model opened", "model", info.Model, "weights", info.Weights, "adapter", info.Adapter.Name, "kind", info.Adapter.Kind,
		"kv_blocks", info.NumBlocks, "max_model_len", info.MaxModelLen)
	return eng, nil
}

// progress is one line on a terminal; elsewhere it prints nothing, since a log has no use for it.
type progress struct {
	w     io.Writer
	on    bool
	last  time.Time
	width int
}

func newProgress(w io.Writer) *progress { return &progress{w: w, on: isTerminal(w)} }

func (p *progress) show(pr engine.Progress) {
	if !p.on || time.Since(p.last) < 100*time.Millisecond && pr.Done < pr.Total {
		return
	}
	p.last = time.Now()
	line := string(pr.Phase)
	switch {
	case pr.Phase == engine.PhaseCompile:
		line = fmt.Sprintf("compiling kernels %d of %d", pr.Done, pr.Total)
	case pr.Phase == engine.PhaseWarmup:
		line = "warming up"
	case pr.Total > 0:
		line = fmt.Sprintf("loading weights %s of %s", byteSize(pr.Done), byteSize(pr.Total))
	}
	pad := strings.Repeat(" ", max(0, p.width-len(line)))
	p.width = len(line)
	fmt.Fprintf(p.w, "\r%s%s", line, pad)
}

// text shows any words.
func (p *progress) text(line string) {
	if p.on {
		fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(0, p.width-len(line))))
		p.width = len(line)
	}
}

func (p *progress) clear() {
	if p.on && p.width > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
	}
}
