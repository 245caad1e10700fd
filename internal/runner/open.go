package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/planner"
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

	// Deterministic makes the logits of a row the same to the bit whatever else is in the step, however its sequence was cut
	// into chunks, and whether its keys and values were computed now or before. See kernels.Tuning.
	Deterministic bool

	Choices map[string]string // of variants of kernels, see kernels.Tuning; not with Deterministic
	Prefer  []string          // the same

	Tuning *kernels.Tuning // the choice of kernels; nil: what suits the device

	Breathe func() // see kernels.Set; nil: nothing

	Progress func(phase string, done, total int64, name string)
}

// MemoryError says what did not fit.
type MemoryError struct {
	What       string
	Need, Have int64
	Remedies   []planner.Remedy // what would fit, when the budget is at fault
	Err        error
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s: needs %d bytes, %d available: %v", e.What, e.Need, e.Have, e.Err)
}

func (e *MemoryError) Unwrap() error { return e.Err }

// errBudget is the reason when the stated budget, not the device, is too small.
var errBudget = fmt.Errorf("the memory budget is too small: %w", gpu.ErrOutOfMemory)

// Open loads a model and sizes its cache. The device and the source stay the caller's.
func Open(ctx context.Context, dev gpu.Device, src weights.Source, c Config) (_ *Runner, err error) {
	tuning := kernels.TuningFor(dev.Info())
	if c.Tuning != nil {
		tuning = *c.Tuning
	}
	tuning.Deterministic = c.Deterministic
	if c.Choices != nil && !c.Deterministic {
		tuning.Choices = c.Choices
	}
	if len(c.Prefer) > 0 && !c.Deterministic {
		tuning.Prefer = c.Prefer
	}
	r := &Runner{
		dev: dev, cfg: src.Config(), set: kernels.NewTuned(dev, tuning),
		trunks: map[trunkKey]gpu.Program{}, heads: map[headKey]gpu.Program{},
		dispatches: map[gpu.Program]int{},
	}
	r.set.Breathe = c.Breathe
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.cfg.RopeFrequenciesBF16 {
		r.desc.Notes = append(r.desc.Notes, "rotary frequencies are rounded to bf16, as in the model object that config.json was dumped from")
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = planner.DefaultMaxTokens(dev.Info().Kind, c.MaxSeqs)
	}
	if err := r.planMemory(src, &c, tuning); err != nil {
		return nil, err
	}
	if err := r.load(ctx, src, &c); err != nil {
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

// load puts the weights on the device and compiles what runs over them. Kernels need the shapes and formats of weights and not their
// content, so they are compiled while the weights arrive: first all buffers are made, then ops are built and their kernels begun,
// then the buffers are filled. Progress tells of the upload first and then of what is left to compile.
func (r *Runner) load(ctx context.Context, src weights.Source, c *Config) (err error) {
	total := src.Bytes()
	report := func(done int64, name string) { c.Progress("upload", done, total, name) }
	if r.weights, err = model.NewWeights(ctx, r.dev, src, report); err != nil {
		return memoryError("weights", total, err)
	}
	if err := r.allocate(c); err != nil {
		return err
	}
	r.shape = model.Shape{
		MaxTokens: c.MaxTokens, MaxLogits: c.MaxLogits, MaxSeqs: c.MaxSeqs, NumTokens: c.NumTokens,
		MaxBlocksPerSeq: kvcache.NumBlocksFor(r.limits.MaxModelLen),
	}
	if r.fwd, err = model.NewForward(r.dev, r.set, r.cfg, r.weights, r.cache, r.shape); err != nil {
		return memoryError("scratch", r.desc.ScratchBytes, err)
	}
	r.in = newInputs(r.limits, r.fwd.MaxBlocksPerSeq)
	if err := r.set.Start(); err != nil {
		return err
	}
	err = r.weights.Upload(ctx)
	if err == nil {
		err = r.dev.Wait(ctx)
	}
	if errors.Is(err, gpu.ErrInvalid) {
		err = cmp.Or(r.set.Compile(ctx, nil), err) // it may be a kernel's
	}
	if err != nil {
		return memoryError("weights", total, err)
	}
	r.desc.Formats, r.desc.WeightBytes = r.weights.Formats(), r.weights.Bytes
	return r.set.Compile(ctx, func(done, total int) { c.Progress("compile", int64(done), int64(total), "") })
}

// planMemory decides the length of a sequence and the number of blocks from the budget and the device's limits.
func (r *Runner) planMemory(src weights.Source, c *Config, tuning kernels.Tuning) error {
	asLoaded, q4 := planner.SourceBytes(src)
	p, err := planner.Make(planner.Request{
		Config: r.cfg, WeightBytes: asLoaded, Q4Bytes: q4, KV: c.KV, Budget: c.Budget,
		Device: r.dev.Info().Name, Limits: r.dev.Limits(), Tuning: tuning,
		MaxModelLen: c.MaxModelLen, MaxSeqs: c.MaxSeqs, MaxTokens: c.MaxTokens, MaxLogits: c.MaxLogits, NumTokens: c.NumTokens,
	})
	if err != nil {
		return err
	}
	if !p.Fits {
		return &MemoryError{What: "weights and KV cache", Need: p.Need, Have: c.Budget, Remedies: p.Remedies, Err: errBudget}
	}
	r.limits = Limits{
		NumBlocks: p.NumBlocks, MaxModelLen: p.MaxModelLen, MaxTokens: c.MaxTokens, MaxLogits: c.MaxLogits, MaxSeqs: c.MaxSeqs,
	}
	r.desc.ScratchBytes = p.Scratch
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
	if err := r.openBursts(c.MaxSeqs); err != nil {
		return err
	}
	r.ids = make([]int32, c.MaxLogits)
	r.desc.Parameters, r.desc.ActiveParameters = weights.Parameters(r.cfg)
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
