// Package engine runs ERNIE-4.5 and its relatives: it is the one public Go package of Pagelight.
//
//	eng, err := engine.Open(ctx, engine.Config{Device: dev, Source: src})
//	for ev, err := range eng.Generate(ctx, engine.Request{Messages: msgs}) { ... }
//
// Package engine/local opens devices and models by name for programs that run natively. One goroutine inside the engine
// owns the scheduler, the cache and the device; everything else sends it messages.
package engine

import (
	"log/slog"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
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
	// MaxBatchedTokens is the largest number of tokens in one step: the size of a prefill chunk. 0 means a default by
	// kind of device.
	MaxBatchedTokens int
	// LogitRows is how many rows of logits one step can give; only Logits needs more than 1. 0 means 1.
	LogitRows int

	Progress func(Progress) // called while opening, from the goroutine of Open
	Logger   *slog.Logger   // nil: silent
	Observer Observer       // nil: none
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
