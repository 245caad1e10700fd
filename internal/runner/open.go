package runner

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// Config says what to open.
type Config struct {
	KV          quant.KVType
	Budget      int64 // bytes for weights, scratch and cache together
	MaxModelLen int   // 0: what the model was made for, or what the cache holds
	MaxTokens   int   // in one step; 0: by kind of device
	MaxLogits   int   // rows of logits in one step
	MaxSeqs     int   // in one step
	NumTokens   int   // ids from here on are never picked

	// Deterministic makes the results for a row independent of the step that it is computed in, bit for bit.
	Deterministic bool

	Progress func(phase string, done, total int64, name string)
}

// MemoryError says what did not fit.
type MemoryError struct {
	What       string
	Need, Have int64
	Err        error
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s: needs %d bytes, %d available: %v", e.What, e.Need, e.Have, e.Err)
}

func (e *MemoryError) Unwrap() error { return e.Err }

// errBudget is the reason when the stated budget, not the device, is too small.
var errBudget = fmt.Errorf("the memory budget is too small: %w", gpu.ErrOutOfMemory)

// defaultMaxTokens is the size of a prefill chunk: large enough to read each weight for many tokens, small enough that a
// step takes well under a second on that kind of device.
func defaultMaxTokens(k gpu.Kind) int {
	if k == gpu.KindHardware {
		return 512
	}
	return 64
}

// Open loads a model and sizes its cache. The device and the source stay the caller's.
func Open(ctx context.Context, dev gpu.Device, src weights.Source, c Config) (_ *Runner, err error) {
	tuning := kernels.TuningFor(dev.Info())
	tuning.Deterministic = c.Deterministic
	r := &Runner{
		dev: dev, cfg: src.Config(), set: kernels.NewTuned(dev, tuning),
		trunks: map[int]gpu.Program{}, heads: map[headKey]gpu.Program{},
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.cfg.RopeFrequenciesBF16 {
		r.desc.Notes = append(r.desc.Notes, "rotary frequencies are rounded to bf16, as in the model object that config.json was dumped from")
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = max(defaultMaxTokens(dev.Info().Kind), c.MaxSeqs)
	}
	if err := r.planMemory(src, &c); err != nil {
		return nil, err
	}
	total := src.Bytes()
	r.weights, err = model.LoadWeights(ctx, dev, src, func(done int64, name string) { c.Progress("upload", done, total, name) })
	if err != nil {
		return nil, memoryError("weights", total, err)
	}
	if err := dev.Wait(ctx); err != nil {
		return nil, memoryError("weights", total, err)
	}
	if err := r.allocate(&c); err != nil {
		return nil, err
	}
	shape := model.Shape{
		MaxTokens: c.MaxTokens, MaxLogits: c.MaxLogits, MaxSeqs: c.MaxSeqs, NumTokens: c.NumTokens,
		MaxBlocksPerSeq: kvcache.NumBlocksFor(r.limits.MaxModelLen),
	}
	if r.fwd, err = model.NewForward(dev, r.set, r.cfg, r.weights, r.cache, shape); err != nil {
		return nil, memoryError("scratch", model.ScratchBytes(r.cfg, shape), err)
	}
	err = r.set.Compile(ctx, func(done, total int) { c.Progress("compile", int64(done), int64(total), "") })
	if err != nil {
		return nil, err
	}
	r.desc.Kernels = r.set.Names()
	c.Progress("warmup", 0, 1, "")
	if err := r.warmup(ctx); err != nil {
		return nil, fmt.Errorf("first step: %w", err)
	}
	c.Progress("warmup", 1, 1, "")
	return r, nil
}

// planMemory decides the length of a sequence and the number of blocks from the budget and the device's limits.
func (r *Runner) planMemory(src weights.Source, c *Config) error {
	cfg := r.cfg
	longest := cfg.MaxPositions
	if c.MaxModelLen > longest {
		return fmt.Errorf("a context of %d tokens was asked for, but the model was made for %d", c.MaxModelLen, longest)
	}
	if c.MaxModelLen > 0 {
		longest = c.MaxModelLen
	} else {
		longest = min(longest, model.MaxPositions(cfg, r.dev.Limits())/kvcache.BlockSize*kvcache.BlockSize)
	}
	perSeq := kvcache.NumBlocksFor(longest)
	// scratch grows with the longest sequence that a pool can hold: each position has its row of the rotary table.
	scratch := func(blocks int) int64 {
		return model.ScratchBytes(cfg, model.Shape{MaxTokens: c.MaxTokens, MaxLogits: c.MaxLogits, MaxSeqs: c.MaxSeqs, MaxBlocksPerSeq: min(blocks, perSeq)})
	}
	need := func(blocks int) int64 {
		return src.Bytes() + scratch(blocks) + int64(blocks)*model.BlockBytes(cfg, c.KV)
	}
	most := min(perSeq*c.MaxSeqs, model.MaxBlocks(cfg, c.KV, r.dev.Limits()))
	blocks := sort.Search(most, func(n int) bool { return need(n+1) > c.Budget })
	least := max(1, kvcache.NumBlocksFor(c.MaxModelLen))
	if tokens := min(most*kvcache.BlockSize, model.MaxPositions(cfg, r.dev.Limits())); tokens < c.MaxModelLen {
		return fmt.Errorf("a context of %d tokens was asked for, but on %s the kernels reach %d at most", c.MaxModelLen, r.dev.Info().Name, tokens)
	}
	if blocks < least {
		return &MemoryError{What: "weights and KV cache", Need: need(least), Have: c.Budget, Err: errBudget}
	}
	r.limits = Limits{
		NumBlocks: blocks, MaxModelLen: min(longest, blocks*kvcache.BlockSize),
		MaxTokens: c.MaxTokens, MaxLogits: c.MaxLogits, MaxSeqs: c.MaxSeqs,
	}
	r.desc.ScratchBytes = scratch(blocks)
	return nil
}

// allocate makes the cache, halving it while the device refuses, and the buffers that are read back.
func (r *Runner) allocate(c *Config) (err error) {
	blockBytes := model.BlockBytes(r.cfg, c.KV)
	for {
		r.cache, err = model.NewCache(r.dev, r.cfg, r.limits.NumBlocks, c.KV)
		if err == nil {
			break
		}
		half := r.limits.NumBlocks / 2
		if !errors.Is(err, gpu.ErrOutOfMemory) || half < 1 || c.MaxModelLen > 0 && half*kvcache.BlockSize < c.MaxModelLen {
			return memoryError("KV cache", int64(r.limits.NumBlocks)*blockBytes, err)
		}
		r.desc.Notes = append(r.desc.Notes, fmt.Sprintf("the device refused a KV cache of %d blocks; trying %d", r.limits.NumBlocks, half))
		r.limits.NumBlocks = half
		r.limits.MaxModelLen = min(r.limits.MaxModelLen, half*kvcache.BlockSize)
	}
	back := int64(4 * c.MaxLogits * r.cfg.VocabSize)
	if r.logitsBack, err = r.dev.NewBuffer("logits to read", back, gpu.UsageMapRead|gpu.UsageCopyDst); err != nil {
		return memoryError("scratch", back, err)
	}
	if r.idsBack, err = r.dev.NewBuffer("ids to read", int64(4*c.MaxLogits), gpu.UsageMapRead|gpu.UsageCopyDst); err != nil {
		return memoryError("scratch", back, err)
	}
	if err := r.openTop(c.MaxLogits); err != nil {
		return err
	}
	r.ids, r.out = make([]int32, c.MaxLogits), make([]float32, c.MaxLogits*r.cfg.VocabSize)
	r.desc.Parameters, r.desc.Formats, r.desc.WeightBytes = r.weights.Parameters, r.weights.Formats(), r.weights.Bytes
	r.desc.KVBytes = int64(r.limits.NumBlocks) * blockBytes
	return nil
}

// memoryError wraps an error of the device as one of memory when it is one.
func memoryError(what string, need int64, err error) error {
	if errors.Is(err, gpu.ErrOutOfMemory) {
		return &MemoryError{What: what, Need: need, Err: err}
	}
	return err
}
