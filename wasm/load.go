//go:build js && wasm

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu/webgpujs"
	"github.com/pagelight/pagelight/internal/openai"
	"github.com/pagelight/pagelight/internal/weights"
)

type loadFields struct {
	Model   modelFields `json:"model"`
	Options struct {
		Device      string        `json:"device"` // "auto", "gpu" or "cpu"
		KV          engine.KVType `json:"kv"`
		GPUMemory   int64         `json:"gpu_memory"`
		MaxModelLen int           `json:"max_model_len"`
		Quant       string        `json:"quant"` // "none", "q8" or "q4"
		LogitRows   int           `json:"logit_rows"`
		// For measuring: answers at once, and whether prompts are to be computed anew whatever was asked before.
		MaxSeqs          int      `json:"max_seqs"`
		MaxBatchedTokens int      `json:"max_batched_tokens"`
		NoPrefixCache    bool     `json:"no_prefix_cache"`
		Prefer           []string `json:"prefer"` // variants of kernels
		Tuning           string   `json:"tuning"` // "auto" or "off"
	} `json:"options"`
}

type progressMessage struct {
	simpleMessage
	Phase engine.Phase `json:"phase"`
	Done  int64        `json:"done"`
	Total int64        `json:"total"`
	Name  string       `json:"name"`
}

type readyMessage struct {
	simpleMessage
	Info  engine.Info `json:"info"`
	Vocab int         `json:"vocab"` // ids that a prompt may hold are smaller
}

// lostMessage says that the device is gone; it answers nothing.
type lostMessage struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// load closes the model that is open and opens another.
func (w *worker) load(ctx context.Context, id string, f loadFields) error {
	w.opening.Lock()
	defer w.opening.Unlock()
	if err := ctx.Err(); err != nil {
		return err // cancelled while another load went on
	}
	w.closeModel()
	w.mu.Lock()
	w.loading, w.lost = true, ""
	w.mu.Unlock()
	m, err := w.open(ctx, id, f, nil)
	w.mu.Lock()
	w.loading, w.model = false, m
	w.mu.Unlock()
	if err != nil {
		return err
	}
	go w.watch(m)
	if m.tuningKey != "" {
		go w.tuneWhenIdle(m)
	}
	w.say(readyMessage{simpleMessage{"ready", id}, m.Info(), m.Config().VocabSize})
	return nil
}

// unload closes the model that is open, if any.
func (w *worker) unload(_ context.Context, id string, _ struct{}) error {
	w.opening.Lock()
	defer w.opening.Unlock()
	w.closeModel()
	w.say(simpleMessage{"unloaded", id})
	return nil
}

func (w *worker) closeModel() {
	w.mu.Lock()
	m := w.model
	w.model = nil
	w.mu.Unlock()
	if m != nil {
		close(m.closed)
		_ = m.Close() // nothing was written
	}
}

// watch tells the page when the device is lost.
func (w *worker) watch(m *model) {
	select {
	case <-m.closed:
		return
	case <-m.Lost():
	}
	w.mu.Lock()
	if w.model != m {
		w.mu.Unlock()
		return // closed, and not yet noticed here
	}
	const why = "the GPU was reset or taken away; the model has to be loaded again"
	w.model, w.lost = nil, why
	w.mu.Unlock()
	_ = m.Close() // its requests end before the page hears of the loss
	w.say(lostMessage{"lost", why})
}

// open puts a model on a device. prepare, which may be nil, has a last word on the configuration when device and source are in it.
func (w *worker) open(ctx context.Context, id string, f loadFields, prepare func(*engine.Config)) (*model, error) {
	if err := cmp.Or(checkDevice(f.Options.Device), checkTuning(f.Options.Tuning)); err != nil {
		return nil, err
	}
	report := &reporter{w: w, id: id}
	src, coming, err := w.source(ctx, f, report)
	if coming != nil {
		defer coming.close()
	}
	if err != nil {
		return nil, err
	}
	dev, notes, err := chooseDevice(ctx, f.Options.Device, src)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	m := &model{closed: make(chan struct{})}
	var known engine.Tuning
	if f.Options.Tuning != tuningOff && tunes(dev.Info()) {
		m.tuningKey = tuningKey(dev)
		known = w.readTuning(ctx, m.tuningKey)
	}
	cfg := engine.Config{
		Device: dev, Source: src, KV: f.Options.KV, GPUMemory: f.Options.GPUMemory, MaxModelLen: f.Options.MaxModelLen,
		LogitRows: f.Options.LogitRows, MaxSeqs: f.Options.MaxSeqs, MaxBatchedTokens: f.Options.MaxBatchedTokens, NoPrefixCache: f.Options.NoPrefixCache, Prefer: f.Options.Prefer,
		Choices: known.Choices, Breathe: report.breathe,
		Progress: func(p engine.Progress) {
			// Files are fetched while others are uploaded; the page is told of one thing at a time.
			if p.Phase != engine.PhaseUpload || coming == nil || coming.complete() {
				report.progress(p)
			}
			report.breathe()
		},
	}
	if prepare != nil {
		prepare(&cfg)
	}
	if m.Engine, err = engine.Open(ctx, cfg); err != nil {
		return nil, err
	}
	if coming != nil && !coming.kept() {
		notes = append(notes, "the browser does not keep this model for next time: storage is full or private, or the server does not say when a file changes")
	}
	m.notes, m.known = notes, known
	return m, nil
}

// reporter sends progress, at most every 50 ms within a phase. It is used by callbacks and by the goroutine of Open, which
// do not run at the same time.
type reporter struct {
	w       *worker
	id      string
	phase   engine.Phase
	sent    time.Time
	breaths time.Time
}

func (r *reporter) progress(p engine.Progress) {
	now := time.Now()
	if p.Phase == r.phase && p.Done < p.Total && now.Sub(r.sent) < 50*time.Millisecond {
		return
	}
	r.phase, r.sent = p.Phase, now
	r.w.say(progressMessage{simpleMessage{"progress", r.id}, p.Phase, p.Done, p.Total, p.Name})
}

// breathe lets messages in now and then while the engine computes.
func (r *reporter) breathe() {
	if now := time.Now(); now.Sub(r.breaths) > 8*time.Millisecond {
		webgpujs.Turn()
		r.breaths = time.Now()
	}
}

// Codes of load errors that internal/openai does not know.
const (
	codeBrokenFile = "broken_file"
	codeNoWebGPU   = "no_webgpu"
	codeInsecure   = "insecure_origin"
	codeBadModel   = "bad_model"   // what was read cannot be loaded
	codeNotAModel  = "not_a_model" // nor was it meant to be

	codeNothingToTune = "nothing_to_tune"
)

// wireError gives the errors of the worker's own messages their codes; the rest is left to internal/openai.
func wireError(err error) error {
	var (
		shard   *weights.ShardError
		missing *missingError
		adapter *webgpujs.AdapterError
		read    *fileError
		bad     *modelError
	)
	var file string
	switch {
	case errors.As(err, &read):
		e := openai.NewError(502, read.code(), "", read.Error())
		e.Detail.File = read.file
		return e
	case errors.As(err, &bad):
		e := openai.NewError(422, codeBadModel, "", bad.Error())
		if e.Detail.File = bad.file; errors.Is(err, weights.ErrNotAModel) {
			*e.Detail.Code = codeNotAModel
		}
		return e
	case errors.As(err, &shard):
		file = shard.File
	case errors.As(err, &missing):
		file = missing.file
	case errors.As(err, &adapter):
		code := openai.CodeNoAdapter
		switch adapter.Reason {
		case webgpujs.ReasonNoWebGPU:
			code = codeNoWebGPU
		case webgpujs.ReasonInsecure:
			code = codeInsecure
		}
		return openai.NewError(503, code, "", adapter.Message)
	default:
		return err
	}
	e := openai.NewError(502, codeBrokenFile, "", err.Error())
	e.Detail.File = file
	return e
}

// checkDevice names the devices that can be asked for.
func checkDevice(name string) error {
	switch name {
	case "", "auto", "gpu", "cpu":
		return nil
	}
	return openai.NewError(400, openai.CodeInvalidValue, "options.device", fmt.Sprintf("'options.device' must be auto, gpu or cpu, not %.40q", name))
}

// tuningOff has kernels neither measured nor chosen by what was measured.
const tuningOff = "off"

func checkTuning(name string) error {
	switch name {
	case "", "auto", tuningOff:
		return nil
	}
	return openai.NewError(400, openai.CodeInvalidValue, "options.tuning", fmt.Sprintf("'options.tuning' must be auto or off, not %.40q", name))
}

// policyFor is how the matrices of a model are to be stored; nil leaves them as they are.
func policyFor(name string) (weights.Policy, error) {
	switch name {
	case "", "none":
		return nil, nil
	case "q8":
		return weights.PolicyQ8(nil), nil
	case "q4":
		return weights.PolicyQ4(nil), nil
	}
	return nil, openai.NewError(400, openai.CodeInvalidValue, "options.quant", fmt.Sprintf("'options.quant' must be none, q8 or q4, not %.40q", name))
}
