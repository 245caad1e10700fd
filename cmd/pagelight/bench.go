package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/bench"
	"github.com/pagelight/pagelight/internal/loadtest"
	"github.com/pagelight/pagelight/internal/weights"
)

type benchCmd struct {
	Model benchModelCmd `cmd:"" default:"withargs" help:"Measure a model on this machine: prompts, single answers, many answers at once (also without the word model)."`
	Serve benchServeCmd `cmd:"" help:"Load a running server and measure its answers."`
}

// Help says where the flags are.
func (benchCmd) Help() string {
	return `"pagelight bench MODEL" is "pagelight bench model MODEL". "pagelight bench model --help" and "pagelight bench serve --help" have their flags.`
}

// benchModelCmd has the flags of llama-bench under the same names where they mean the same.
type benchModelCmd struct {
	Model string `arg:"" optional:"" default:"builtin" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, builtin, or synthetic:NAME, which may end with /none, /q8 or /q4 instead of --quant."`

	NPrompt     []int `short:"p" name:"n-prompt" default:"512,2048" placeholder:"N" group:"Tests" help:"Lengths of prompts, in tokens; 0 is none. Default: 512,2048."`
	NGen        []int `short:"n" name:"n-gen" default:"128" placeholder:"N" group:"Tests" help:"Lengths of single answers; 0 is none. Default: 128."`
	NDepth      []int `short:"d" name:"n-depth" default:"0,4096" placeholder:"N" group:"Tests" help:"Tokens that stand before a single answer. Default: 0,4096."`
	Batch       []int `short:"b" default:"1,8,32,64,128" placeholder:"N" group:"Tests" help:"How many answers at once, of 128 tokens of prompt and 64 new ones each; only these count. 0 is none. Default: 1,8,32,64,128."`
	Repetitions int   `short:"r" default:"5" placeholder:"N" group:"Tests" help:"Runs of each test, after one that does not count. Default: 5."`
	Profile     bool  `default:"true" negatable:"" group:"Tests" help:"Measure each kernel and what the device can do, too."`

	Output   string `short:"o" enum:"md,json,csv" default:"md" group:"Results" help:"What to print: md (tables in Markdown), json, csv. Default: md."`
	JSON     string `name:"json" placeholder:"FILE" group:"Results" help:"Write the report as JSON, too."`
	Markdown string `placeholder:"FILE" group:"Results" help:"Write the tables in Markdown, too."`

	Device              string   `enum:"auto,gpu,cpu" default:"auto" env:"PAGELIGHT_DEVICE" group:"Engine" help:"What computes: auto, gpu (any adapter), cpu."`
	Quant               string   `enum:"none,q8,q4" default:"none" env:"PAGELIGHT_QUANT" group:"Engine" help:"Weights: none (as stored), q8 or q4 (every matrix that is not quantized already)."`
	KV                  []string `name:"kv" enum:"f16,f32,int8" default:"f16" placeholder:"TYPE" env:"PAGELIGHT_KV" group:"Engine" help:"How keys and values are cached: f16, f32 or int8, which is approximate; several are measured one after the other. Default: f16."`
	GPUMemory           byteSize `name:"gpu-memory" placeholder:"BYTES" env:"PAGELIGHT_GPU_MEMORY" group:"Engine" help:"Budget for weights, cache and scratch (512M, 2G). Default by kind of device: 8G for a GPU, else 4G."`
	MaxModelLen         modelLen `default:"auto" placeholder:"N" env:"PAGELIGHT_MAX_MODEL_LEN" group:"Engine" help:"Longest prompt and answer together, in tokens; auto is what the tests need, or what fits the memory."`
	MaxNumBatchedTokens int      `placeholder:"N" env:"PAGELIGHT_MAX_NUM_BATCHED_TOKENS" group:"Engine" help:"Most tokens in one step. Default by kind of device."`
	LogLevel            string   `enum:"debug,info,warn,error" default:"warn" env:"PAGELIGHT_LOG_LEVEL" group:"Engine" help:"Least severe message to log (debug, info, warn, error)."`
}

// Help is shown below the flags' summary.
func (c *benchModelCmd) Help() string {
	return "Answers are checked first, and in every run: against known ones for synthetic:ernie-4.5-0.3b, else against the engine's own. " +
		"Where one is wrong there is no speed, and the exit code is 1. Speeds are medians of the runs, with their standard deviation. " +
		"Tests that do not fit the model's context or the memory are left out with a note."
}

// Run measures, prints and writes.
func (c *benchModelCmd) Run(a *app, k *kong.Context) error {
	if c.MaxNumBatchedTokens < 0 {
		return usagef("--max-num-batched-tokens must not be negative, got %d", c.MaxNumBatchedTokens)
	}
	if len(c.KV) == 0 {
		return usagef("--kv is empty: f16, f32 or int8, or several of them")
	}
	line := newProgress(a.stderr)
	o := bench.Options{
		Prompts: c.NPrompt, Gens: c.NGen, Depths: c.NDepth, Batches: c.Batch, Repetitions: c.Repetitions, NoProfile: !c.Profile,
		Progress: func(p bench.Progress) { line.text(p.String()) },
	}
	if err := o.Check(); err != nil {
		return err
	}
	if err := c.suffix(); err != nil {
		return err
	}
	if c.JSON == "-" || c.Markdown == "-" {
		return usagef("--json and --markdown take files; what is printed is chosen by --output")
	}
	var files [2]*resultFile
	for i, name := range []string{c.JSON, c.Markdown} {
		f, err := newResultFile(a, name)
		if err != nil {
			return err
		}
		defer f.discard()
		files[i] = f
	}
	report := bench.Report{
		Schema: bench.Schema, Tool: "pagelight bench", Version: version, Commit: bench.Commit(commit), Date: time.Now(), Command: shownCommand(k.Args),
		Machine: benchMachine(), Options: o,
	}
	var wrong error
	for _, kv := range c.KV {
		run, err := c.measure(a, o, kv, &report)
		line.clear()
		if err != nil && !errors.Is(err, bench.ErrWrong) {
			return err
		}
		report.Runs = append(report.Runs, run)
		wrong = errors.Join(wrong, err)
	}
	write := map[string]func(io.Writer) error{"md": report.WriteMarkdown, "json": report.WriteJSON, "csv": report.WriteCSV}[c.Output]
	if err := write(a.stdout); err != nil {
		return err
	}
	if err := files[0].finish(c.JSON, report.WriteJSON); err != nil {
		return err
	}
	if err := files[1].finish(c.Markdown, report.WriteMarkdown); err != nil {
		return err
	}
	return wrong
}

// suffix takes what follows a synthetic model's name, as in "synthetic:ernie-4.5-0.3b/q4", for --quant.
func (c *benchModelCmd) suffix() error {
	name, quant, ok := strings.Cut(c.Model, "/")
	if !ok || !strings.HasPrefix(name, weights.SyntheticPrefix) {
		return nil
	}
	switch quant {
	case "none", "q8", "q4":
		c.Model, c.Quant = name, quant
		return nil
	}
	return usagef("%s: what follows the name must be /none, /q8 or /q4, got %q", c.Model, "/"+quant)
}

// measure opens the model with one kind of cache and measures it.
func (c *benchModelCmd) measure(a *app, o bench.Options, kv string, report *bench.Report) (bench.Run, error) {
	b, err := bench.New(o)
	if err != nil {
		return bench.Run{}, err
	}
	flags := modelFlags{Device: c.Device, Quant: c.Quant, KV: kv, GPUMemory: c.GPUMemory, MaxModelLen: c.MaxModelLen, LogLevel: c.LogLevel}
	start := time.Now()
	var probing time.Duration
	eng, err := flags.openWith(a, c.Model, engine.Config{MaxBatchedTokens: c.MaxNumBatchedTokens}, func(cfg *engine.Config) {
		*cfg = b.Configure(*cfg)
		report.Adapter = cfg.Device.Info()
		if !o.NoProfile && report.Device == (bench.Device{}) {
			o.Progress(bench.Progress{Doing: bench.DoingDevice})
			from := time.Now()
			report.Device = bench.MeasureDevice(a.ctx, cfg.Device)
			probing = time.Since(from)
		}
	})
	if err != nil {
		return bench.Run{}, err
	}
	defer eng.Close()
	opened := time.Since(start) - probing
	run, err := b.Run(a.ctx, eng, report.Device)
	run.OpenS = opened.Seconds()
	return run, err
}

// benchMachine is where this runs.
func benchMachine() bench.Machine {
	m := loadtest.ThisMachine()
	return bench.Machine{
		OS: m.OS, Arch: m.Arch, CPU: m.CPU, Cores: m.Cores, MemoryBytes: m.MemoryBytes, Go: m.Go, GPUDriver: gpuDriver(),
	}
}

// gpuDriver is the version of NVIDIA's kernel driver where there is one; WebGPU does not tell that of any.
func gpuDriver() string {
	b, err := os.ReadFile("/sys/module/nvidia/version")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
