package engine

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/planner"
)

// MemoryPlan says what a model needs of a device's memory and what a budget holds of it.
type MemoryPlan = planner.Plan

// PlanMemory says what Open would need with cfg on a device of that kind and with those limits: without a device, and
// without reading weights. cfg.Device is not used, and cfg.Source stays the caller's. An error means that no budget would do.
func PlanMemory(cfg Config, info gpu.Info, limits gpu.Limits) (MemoryPlan, error) {
	if err := cfg.fill(info); err != nil {
		return MemoryPlan{}, err
	}
	if cfg.GPUMemory == 0 {
		cfg.GPUMemory = DefaultGPUMemory(info)
	}
	if cfg.MaxBatchedTokens == 0 {
		cfg.MaxBatchedTokens = planner.DefaultMaxTokens(info.Kind, cfg.MaxSeqs)
	}
	tuning := kernels.TuningFor(info)
	tuning.Deterministic = cfg.Deterministic
	asLoaded, q4 := planner.SourceBytes(cfg.Source)
	return planner.Make(planner.Request{
		Config: cfg.Source.Config(), WeightBytes: asLoaded, Q4Bytes: q4, KV: kvTypes[cfg.KV], Budget: cfg.GPUMemory,
		Device: info.Name, Limits: limits, Tuning: tuning,
		MaxModelLen: cfg.MaxModelLen, MaxSeqs: cfg.MaxSeqs, MaxTokens: cfg.MaxBatchedTokens, MaxLogits: max(cfg.MaxSeqs, cfg.LogitRows),
	})
}
