// Package engine runs ERNIE-4.5 and its relatives: it is the one public Go package of Pagelight.
//
//	eng, err := engine.Open(ctx, engine.Config{Device: dev, Source: src})
//	for ev, err := range eng.Generate(ctx, engine.Request{Messages: msgs}) { ... }
//
// Package engine/local opens devices and models by name for programs that run natively. One goroutine inside the engine
// owns the scheduler, the cache and the device; everything else sends it messages.
package engine

import (
	"fmt"
	"log/slog"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/weights"
)

// Device is what runs the kernels; package engine/local opens one.
type Device = gpu.Device

// Source is a model's weights, configuration and tokenizer files; package engine/local opens one.
type Source = weights.Source

// KVType is how keys and values are stored in the cache.
type KVType string

// The ways of storing keys and values.
const (
	KVF16 KVType = "f16"
	KVF32 KVType = "f32"
	KVI8  KVType = "int8" // bytes, with one f16 scale per token and head: 0.51 times the memory of f16
)

var kvTypes = map[KVType]quant.KVType{KVF16: quant.KVF16, KVF32: quant.KVF32, KVI8: quant.KVI8}

// Config says what to open. The engine owns Device and Source from then on and closes them.
type Config struct {
	Device Device
	Source Source

	KV KVType // default f16
	// GPUMemory is the budget in bytes for weights, cache and scratch together; 0 means the default for the kind of
	// device (DefaultGPUMemory). WebGPU does not tell how much is free.
	GPUMemory int64
	// MaxModelLen is the largest number of tokens of prompt and answer together; 0 means what the model was made for, or
	// less when the cache does not hold that.
	MaxModelLen int
	// MaxSeqs is how many answers are worked on at once. 0 means a default by kind of device.
	MaxSeqs int
	// MaxWaiting is how many answers may wait beyond these; more are refused with ErrQueueFull. 0 means any number.
	MaxWaiting int
	// Policy is the order of answers: PolicyFCFS (default) or PolicyPriority.
	Policy Policy
	// MaxOvertakes is how many later answers may come before one under PolicyPriority; then it has its turn whatever its
	// priority. 0 means 64.
	MaxOvertakes int
	// LongPrefillThreshold is the most tokens of one prompt in one step; 0 means no bound but MaxBatchedTokens.
	LongPrefillThreshold int
	// NoPrefixCache has every prompt computed anew.
	NoPrefixCache bool
	// Deterministic makes the logits of a token depend on nothing but the tokens before it, bit for bit: not on what else is
	// in the batch, how the prompt was cut, or what was cached.
	Deterministic bool
	// MaxBatchedTokens is the largest number of tokens in one step: the size of a prefill chunk. 0 means a default by
	// kind of device.
	MaxBatchedTokens int
	// LogitRows is how many rows of logits one step can give; only Logits needs more than 1. 0 means 1.
	LogitRows int

	// Choices says which variants of kernels to use, as Tune has found; nil: the defaults. Unknown ones are ignored.
	Choices map[string]string
	// Prefer names variants, or ends of their names, that are used where Choices say nothing and they exist: for measuring them.
	Prefer []string
	// MaxBurst is the most steps that the device does by itself before the host looks at what came of them. Fewer are done where
	// they take long or somebody waits, and single steps where somebody could begin or the host is needed to choose. 0 means 16, which is the most;
	// 1 has the host choose every token.
	MaxBurst int

	Observer Observer       // is told of every step and answer; nil: nobody
	Breathe  func()         // called now and then while kernels are prepared and measured, from the goroutine that does so; nil: nothing
	Progress func(Progress) // called while opening, from the goroutine of Open
	Logger   *slog.Logger   // nil: silent
}

// Policy is the order in which answers get their turn.
type Policy string

// The policies.
const (
	PolicyFCFS     Policy = "fcfs"     // first come, first served
	PolicyPriority Policy = "priority" // by Request.Priority, the lowest first, then by arrival
)

// fill puts defaults where cfg says nothing, and checks the rest.
func (cfg *Config) fill(dev gpu.Info) error {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(Progress) {}
	}
	if cfg.KV == "" {
		cfg.KV = KVF16
	}
	if cfg.Policy == "" {
		cfg.Policy = PolicyFCFS
	}
	if _, ok := kvTypes[cfg.KV]; !ok {
		return &ParamError{"kv", fmt.Sprintf("must be f16, f32 or int8, got %q", cfg.KV)}
	}
	if cfg.Policy != PolicyFCFS && cfg.Policy != PolicyPriority {
		return &ParamError{"scheduling_policy", fmt.Sprintf("must be fcfs or priority, got %q", cfg.Policy)}
	}
	if cfg.GPUMemory < 0 {
		return &ParamError{"gpu_memory", fmt.Sprintf("must be a number of bytes, got %d", cfg.GPUMemory)}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"max_model_len", cfg.MaxModelLen},
		{"max_num_seqs", cfg.MaxSeqs},
		{"max_waiting", cfg.MaxWaiting},
		{"max_overtakes", cfg.MaxOvertakes},
		{"long_prefill_token_threshold", cfg.LongPrefillThreshold},
		{"max_num_batched_tokens", cfg.MaxBatchedTokens},
		{"max_burst", cfg.MaxBurst},
	} {
		if n.value < 0 {
			return &ParamError{n.name, fmt.Sprintf("must be at least 0, got %d", n.value)}
		}
	}
	if n, most := cfg.MaxModelLen, cfg.Source.Config().MaxPositions; n > most {
		return &ParamError{"max_model_len", fmt.Sprintf("must be at most %d, which this model was made for, got %d", most, n)}
	}
	if cfg.MaxSeqs == 0 {
		cfg.MaxSeqs = planner.DefaultMaxSeqs(dev.Kind, wasm)
	}
	if cfg.MaxBurst == 0 {
		cfg.MaxBurst = runner.MaxBurst
	}
	if cfg.MaxBurst > runner.MaxBurst {
		return &ParamError{"max_burst", fmt.Sprintf("must be at most %d, got %d", runner.MaxBurst, cfg.MaxBurst)}
	}
	if cfg.MaxSeqs > planner.MostSeqs {
		return &ParamError{"max_num_seqs", fmt.Sprintf("must be at most %d, got %d", planner.MostSeqs, cfg.MaxSeqs)}
	}
	if n := cfg.MaxBatchedTokens; n > 0 && n < cfg.MaxSeqs {
		return &ParamError{"max_num_batched_tokens", fmt.Sprintf("must be at least max_num_seqs (%d), got %d", cfg.MaxSeqs, n)}
	}
	return nil
}

// Phase is a part of opening a model.
type Phase string

// The phases, in order.
const (
	PhaseDownload Phase = "download" // fetching and verifying files
	PhaseUpload   Phase = "upload"   // putting weights on the device
	PhaseCompile  Phase = "compile"  // building kernels
	PhaseWarmup   Phase = "warmup"   // the first step, which builds what drivers build late
)

// Progress says how far a phase is.
type Progress struct {
	Phase       Phase
	Done, Total int64 // bytes, or kernels while compiling
	Name        string
}
