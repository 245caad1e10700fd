package site

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// memory is what a model needs in a tab, in bytes, so that the page can compare it with the budget before it downloads anything:
//
//	MemoryFixed + MemoryPerBlock * ceil(tokens / BlockSize)      for a context of so many tokens, 1 to MaxModelLen
//
// It is the planner's answer for a hardware GPU. On a software adapter, whose steps are smaller, less is needed.
type memory struct {
	Memory         int64 `json:"memory"`           // weights on the device
	MemoryFixed    int64 `json:"memory_fixed"`     // these, and the scratch that does not grow with the context
	MemoryPerBlock int64 `json:"memory_per_block"` // keys and values of a block, with its part of the scratch
	BlockSize      int   `json:"block_size"`       // tokens
	MaxModelLen    int   `json:"max_model_len"`    // tokens
}

// memoryOf asks the planner about the longest context and one block less. The need is a line but for the kernels' scratch, which
// grows less and less, so that the line through these two is nowhere below it.
func memoryOf(src weights.Source) (m memory, err error) {
	info := gpu.Info{Kind: gpu.KindHardware, Name: "a browser's GPU"}
	seqs := planner.DefaultMaxSeqs(info.Kind, true)
	r := planner.Request{
		Config: src.Config(), WeightBytes: src.Bytes(), KV: quant.KVF16, Device: info.Name, Limits: gpu.DefaultLimits,
		Tuning: kernels.TuningFor(info), MaxSeqs: seqs, MaxTokens: planner.DefaultMaxTokens(info.Kind, seqs), MaxLogits: seqs,
	}
	whole, err := planner.Make(r) // without a budget: what the device's limits allow
	if err != nil {
		return m, err
	}
	r.MaxModelLen = whole.LongestContext
	if whole, err = planner.Make(r); err != nil {
		return m, err
	}
	m = memory{Memory: r.WeightBytes, MemoryPerBlock: whole.BlockBytes, BlockSize: whole.BlockSize, MaxModelLen: r.MaxModelLen}
	if r.MaxModelLen > whole.BlockSize {
		r.MaxModelLen -= whole.BlockSize
		shorter, err := planner.Make(r)
		if err != nil {
			return m, err
		}
		m.MemoryPerBlock = whole.Need - shorter.Need
	}
	m.MemoryFixed = whole.Need - m.MemoryPerBlock*int64(whole.NumBlocks)
	return m, nil
}
