package engine

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/planner"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// Engine is an open model. Its methods may be called from any goroutine.
type Engine struct {
	info   Info
	dev    Device
	src    Source
	config *weights.Config
	*Text
	loop      *loop
	closeOnce sync.Once
	nextID    atomic.Int64

	numTokens int // ids from here on are never chosen
	maxTokens int // in one step
	maxSeqs   int // likewise
}

// Open puts a model on a device and makes it ready to answer. When it fails it has closed the device and the source.
func Open(ctx context.Context, cfg Config) (_ *Engine, err error) {
	e := &Engine{dev: cfg.Device, src: cfg.Source, config: cfg.Source.Config()}
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	if err := cfg.fill(e.dev.Info()); err != nil {
		return nil, err
	}
	if e.Text, err = openText(ctx, e.src, cfg.Breathe); err != nil {
		return nil, err
	}
	e.numTokens = e.config.VocabSize
	if e.tok != nil {
		e.numTokens = min(e.numTokens, e.tok.NumTokens())
	}
	r, err := e.openRunner(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	limits := r.Limits()
	e.maxTokens, e.maxSeqs = limits.MaxTokens, limits.MaxSeqs
	pool := kvcache.NewPool(kvcache.Config{
		NumBlocks: limits.NumBlocks, Namespace: e.config.Name + "/" + string(cfg.KV), NoPrefixCache: cfg.NoPrefixCache,
	})
	s := sched.New(sched.Config{
		MaxBatchedTokens: limits.MaxTokens, MaxLogits: limits.MaxLogits, MaxSeqs: limits.MaxSeqs, MaxWaiting: cfg.MaxWaiting,
		LongPrefillThreshold: cfg.LongPrefillThreshold, Policy: sched.Policy(cfg.Policy),
		MaxOvertakes: cfg.MaxOvertakes,
	}, pool)
	e.info.MaxAnswers = s.MaxSequences()
	e.loop = newLoop(r, s, pool, cfg.Logger, cfg.Observer)
	e.loop.stats.DispatchesPerToken, e.loop.stats.SubmitsPerToken = r.DispatchesPerToken(), 1
	e.loop.hardware = e.dev.Info().Kind == gpu.KindHardware
	e.loop.bursts.most, e.loop.bursts.flights = cfg.MaxBurst, nativeFlights
	if wasm {
		e.loop.bursts.flights = runner.MaxFlights
	}
	go e.loop.run()
	return e, nil
}

// openRunner loads the weights and sizes the cache.
func (e *Engine) openRunner(ctx context.Context, cfg *Config) (*runner.Runner, error) {
	budget := cfg.GPUMemory
	if budget == 0 {
		budget = DefaultGPUMemory(e.dev.Info())
	}
	r, err := runner.Open(ctx, e.dev, e.src, runner.Config{
		KV: kvTypes[cfg.KV], Budget: budget, MaxModelLen: cfg.MaxModelLen, MaxTokens: cfg.MaxBatchedTokens,
		MaxLogits: max(cfg.MaxSeqs, cfg.LogitRows), MaxSeqs: cfg.MaxSeqs, NumTokens: e.numTokens,
		Deterministic: cfg.Deterministic, Choices: cfg.Choices, Prefer: cfg.Prefer, Breathe: cfg.Breathe,
		Progress: func(phase string, done, total int64, name string) {
			cfg.Progress(Progress{Phase(phase), done, total, name})
		},
	})
	if m := (*runner.MemoryError)(nil); errors.As(err, &m) {
		return nil, &MemoryError{What: m.What, Need: m.Need, Have: m.Have, Remedies: m.Remedies, Err: err}
	}
	if err != nil {
		return nil, err
	}
	l, d := r.Limits(), r.Description()
	e.info = Info{
		Model: e.config.Name, Architecture: e.config.Architecture, Parameters: d.Parameters, Active: d.ActiveParameters, Weights: d.Formats, WeightBytes: d.WeightBytes,
		ScratchBytes: d.ScratchBytes, KVBytes: d.KVBytes, KVType: cfg.KV, BlockSize: kvcache.BlockSize, NumBlocks: l.NumBlocks,
		MaxModelLen: l.MaxModelLen, MemoryBudget: budget, Adapter: e.dev.Info(), Limits: e.dev.Limits(), Kernels: d.Kernels,
		HasChat: e.template != nil && e.tok != nil, Synthetic: e.config.SyntheticTokenizer, Notes: append(d.Notes, noteChoices(cfg)...),
	}
	return r, nil
}

// DefaultGPUMemory is the memory budget for weights, cache and scratch when none is stated. WebGPU tells no free memory,
// so this is an estimate of what a device of that kind can spare.
func DefaultGPUMemory(info gpu.Info) int64 {
	return planner.DefaultBudget(info.Kind, wasm || info.Driver == "webgpujs")
}

// Info describes the engine.
func (e *Engine) Info() Info { return e.info }

// Stats tells what the engine is doing now.
func (e *Engine) Stats() Stats { return e.loop.snapshot() }

// Config is what the model's files say about it.
func (e *Engine) Config() weights.Config { return *e.config }

// Lost is closed when the device is gone; the engine then answers nothing but errors that wrap ErrDeviceLost.
func (e *Engine) Lost() <-chan struct{} { return e.dev.Lost() }

// Close ends running requests with ErrClosed and frees the device.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.loop.close()
		e.release()
	})
	return nil
}

func (e *Engine) release() {
	e.dev.Close()
	_ = e.src.Close() // nothing was written
}

// Generate answers a request as a stream of events. A failed stream ends with an error; leaving the loop early or ending
// ctx cancels the request, with all of its answers, within one step.
func (e *Engine) Generate(ctx context.Context, req Request) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		jobs, err := e.prepare(ctx, &req)
		if err == nil {
			err = e.loop.submit(jobs)
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		for {
			events, end, err := jobs[0].out.take(ctx)
			for _, ev := range events {
				if !yield(ev, nil) {
					return
				}
			}
			if end {
				if err != nil {
					yield(Event{}, err)
				}
				return
			}
		}
	}
}

// MaxBatchedTokens is the largest number of tokens in one step.
func (e *Engine) MaxBatchedTokens() int { return e.maxTokens }
