package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/tokenizer"
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
}

// Open puts a model on a device and makes it ready to answer. When it fails it has closed the device and the source.
func Open(ctx context.Context, cfg Config) (_ *Engine, err error) {
	e := &Engine{dev: cfg.Device, src: cfg.Source, config: cfg.Source.Config()}
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(Progress) {}
	}
	if cfg.KV == "" {
		cfg.KV = KVF16
	}
	if _, ok := kvTypes[cfg.KV]; !ok {
		return nil, &ParamError{"kv", fmt.Sprintf("must be f16, f32 or int8, got %q", cfg.KV)}
	}
	if n, most := cfg.MaxModelLen, e.config.MaxPositions; n < 0 || n > most {
		return nil, &ParamError{"max_model_len", fmt.Sprintf("must be 1 to %d, which this model was made for, got %d", most, n)}
	}
	if cfg.GPUMemory < 0 {
		return nil, &ParamError{"gpu_memory", fmt.Sprintf("must be a number of bytes, got %d", cfg.GPUMemory)}
	}
	if e.Text, err = OpenText(ctx, e.src); err != nil {
		return nil, err
	}
	numTokens := e.config.VocabSize
	if e.tok != nil {
		numTokens = min(numTokens, e.tok.NumTokens())
	}
	r, err := e.openRunner(ctx, &cfg, numTokens)
	if err != nil {
		return nil, err
	}
	limits := r.Limits()
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: limits.NumBlocks, Namespace: e.config.Name})
	s := sched.New(sched.Config{MaxBatchedTokens: limits.MaxTokens, MaxLogits: limits.MaxLogits, MaxSeqs: limits.MaxSeqs}, pool)
	e.loop = newLoop(r, s, pool, cfg.Logger)
	e.loop.stats.DispatchesPerToken, e.loop.stats.SubmitsPerToken = r.DispatchesPerToken(), 1
	go e.loop.run()
	return e, nil
}

// openRunner loads the weights and sizes the cache.
func (e *Engine) openRunner(ctx context.Context, cfg *Config, numTokens int) (*runner.Runner, error) {
	budget := cfg.GPUMemory
	if budget == 0 {
		budget = DefaultGPUMemory(e.dev.Info())
	}
	r, err := runner.Open(ctx, e.dev, e.src, runner.Config{
		KV: kvTypes[cfg.KV], Budget: budget, MaxModelLen: cfg.MaxModelLen, MaxTokens: cfg.MaxBatchedTokens,
		MaxLogits: max(1, cfg.LogitRows), MaxSeqs: 1, NumTokens: numTokens,
		Progress: func(phase string, done, total int64, name string) {
			cfg.Progress(Progress{Phase(phase), done, total, name})
		},
	})
	if m := (*runner.MemoryError)(nil); errors.As(err, &m) {
		return nil, &MemoryError{What: m.What, Need: m.Need, Have: m.Have, Err: err}
	}
	if err != nil {
		return nil, err
	}
	l, d := r.Limits(), r.Description()
	e.info = Info{
		Model: e.config.Name, Architecture: e.config.Architecture, Parameters: d.Parameters, Weights: d.Formats, WeightBytes: d.WeightBytes,
		ScratchBytes: d.ScratchBytes, KVBytes: d.KVBytes, KVType: cfg.KV, BlockSize: kvcache.BlockSize, NumBlocks: l.NumBlocks,
		MaxModelLen: l.MaxModelLen, MemoryBudget: budget, Adapter: e.dev.Info(), Limits: e.dev.Limits(), Kernels: d.Kernels,
		HasChat: e.template != nil && e.tok != nil, Synthetic: e.config.SyntheticTokenizer, Notes: d.Notes,
	}
	return r, nil
}

// DefaultGPUMemory is the memory budget for weights, cache and scratch when none is stated. WebGPU tells no free memory,
// so this is an estimate of what a device of that kind can spare.
func DefaultGPUMemory(info gpu.Info) int64 {
	switch {
	case info.Kind == gpu.KindHardware && info.Driver != "webgpujs":
		return 8 << 30
	case info.Kind == gpu.KindHardware:
		return 4 << 30
	case info.Driver != "webgpujs" && !wasm:
		return 4 << 30
	default:
		return 2 << 30
	}
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
// ctx cancels the request within one step.
func (e *Engine) Generate(ctx context.Context, req Request) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		j, err := e.prepare(ctx, &req)
		if err == nil {
			err = e.loop.submit(j)
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		for {
			events, end, err := j.out.take(ctx)
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

// prepare turns a request into a job, or says what is wrong with it. It runs on the caller's goroutine.
func (e *Engine) prepare(ctx context.Context, req *Request) (*job, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := e.samplingParams(&req.Params)
	if err != nil {
		return nil, err
	}
	ids, err := e.promptIDs(ctx, req)
	if err != nil {
		return nil, err
	}
	limit := e.info.MaxModelLen
	if len(ids) >= limit || req.Params.MaxTokens > limit-len(ids) {
		return nil, &ContextLengthError{PromptTokens: len(ids), MaxTokens: req.Params.MaxTokens, MaxModelLen: limit}
	}
	j := &job{ctx: ctx, prompt: len(ids), maxNew: req.Params.MaxTokens, out: newQueue(), keepEOS: req.Params.KeepSpecial}
	if j.maxNew == 0 {
		j.maxNew = limit - len(ids)
		if n := e.config.Sampling.MaxNewTokens; n != nil {
			j.maxNew = min(j.maxNew, *n)
		}
	}
	if !req.Params.IgnoreEOS {
		j.eos = e.config.EOS
	}
	id := req.ID
	if id == "" {
		id = fmt.Sprintf("r%d", e.nextID.Add(1))
	}
	j.seq = &sched.Sequence{ID: id, Tokens: ids, MaxTokens: len(ids) + j.maxNew, LogitsFrom: len(ids) - 1}
	numTokens := e.config.VocabSize
	if e.tok != nil {
		numTokens = min(numTokens, e.tok.NumTokens())
		j.stream = tokenizer.NewStream(e.tok, !req.Params.KeepSpecial)
		j.stop.stops = req.Params.Stop
	}
	j.sampler = sample.New(p, numTokens, ids...)
	return j, nil
}

// samplingParams fills in what the request leaves open from generation_config.json and checks the result.
func (e *Engine) samplingParams(r *Params) (sample.Params, error) {
	p := sample.Default()
	d := &e.config.Sampling
	pick(&p.Temperature, d.Temperature)
	if d.DoSample != nil && !*d.DoSample {
		p.Temperature = 0 // a model that says "do not sample" is greedy whatever temperature it also states
	}
	pick(&p.Temperature, r.Temperature)
	pick(&p.TopP, d.TopP, r.TopP)
	pick(&p.TopK, d.TopK, r.TopK)
	pick(&p.MinP, d.MinP, r.MinP)
	pick(&p.RepetitionPenalty, d.RepetitionPenalty, nil)
	p.Seed = r.Seed
	if err := p.Validate(); err != nil {
		if s := (*sample.ParamError)(nil); errors.As(err, &s) {
			return p, &ParamError{s.Field, s.Reason}
		}
		return p, err
	}
	if r.MaxTokens < 0 {
		return p, &ParamError{"max_tokens", fmt.Sprintf("must be at least 1, got %d", r.MaxTokens)}
	}
	for _, s := range r.Stop {
		if s == "" {
			return p, &ParamError{"stop", "must not hold an empty string"}
		}
	}
	if len(r.Stop) > 0 && e.tok == nil {
		return p, &ParamError{"stop", "needs a tokenizer, and this model has none"}
	}
	return p, nil
}

func pick[T any](dst *T, from ...*T) {
	for _, f := range from {
		if f != nil {
			*dst = *f
		}
	}
}
