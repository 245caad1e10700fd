//go:build js && wasm

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall/js"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/webgpujs"
	"github.com/pagelight/pagelight/internal/openai"
)

// worker answers the page. One model is open at a time.
type worker struct {
	ctx     context.Context
	fetch   *fetcher
	ranges  *ranges
	storage js.Value // tuning.js
	session *openai.Session
	tasks   tasks

	sending sync.Mutex
	out     js.Value // send of worker.js

	opening sync.Mutex // held while a model is loaded or unloaded

	mu      sync.Mutex
	model   *model // nil when none is open
	loading bool
	lost    string // why the last device went away, until a model is loaded again
}

// model is an open engine.
type model struct {
	*engine.Engine
	notes  []string
	closed chan struct{} // closed before the engine is, so that its end is not taken for a loss

	tuning    sync.Mutex    // held while kernels are measured
	tuningKey string        // of what is kept about the adapter; "" where nothing is to be measured
	known     engine.Tuning // what was kept when the model was opened
}

// Info is the engine's, with what the worker has to say.
func (m *model) Info() engine.Info {
	info := m.Engine.Info()
	info.Notes = slices.Concat(info.Notes, m.notes)
	return info
}

func newWorker(ctx context.Context, fetch *fetcher, ranges *ranges, storage, out js.Value) *worker {
	w := &worker{ctx: ctx, fetch: fetch, ranges: ranges, storage: storage, out: out, tasks: tasks{running: map[string]context.CancelFunc{}}}
	w.session = openai.NewSession(ctx, openai.SessionConfig{Engine: w.engine, Send: w.send, Place: "tab"})
	return w
}

// send passes a message to the page.
func (w *worker) send(msg any) error {
	text, err := openai.Marshal(msg)
	if err != nil {
		return err
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	w.out.Invoke(string(text))
	return nil
}

// say sends a message that cannot fail to be encoded.
func (w *worker) say(msg any) {
	if err := w.send(msg); err != nil {
		panic("BUG: " + err.Error())
	}
}

// engine is the one that answers requests.
func (w *worker) engine() (openai.Engine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.model != nil:
		return w.model, nil
	case w.loading:
		return nil, openai.NewError(503, openai.CodeLoading, "", "the model is still loading")
	case w.lost != "":
		return nil, openai.NewError(500, openai.CodeDeviceLost, "", w.lost)
	}
	return nil, openai.NewError(503, "no_model", "", "no model is loaded")
}

// tasks are what runs besides requests, by the id of the message that asked for it.
type tasks struct {
	mu      sync.Mutex
	running map[string]context.CancelFunc
}

func (t *tasks) add(ctx context.Context, id string) (context.Context, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id == "" || t.running[id] != nil {
		return nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	t.running[id] = cancel
	return ctx, true
}

func (t *tasks) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[id]()
	delete(t.running, id)
}

// cancel says whether there was such a task.
func (t *tasks) cancel(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	cancel := t.running[id]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// start runs f with the fields of a message as a task of its own; an error of f is the answer.
func start[T any](w *worker, id, text string, f func(ctx context.Context, id string, fields T) error) {
	var fields T
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		w.session.Fail(id, openai.NewError(400, openai.CodeInvalidType, "", err.Error()))
		return
	}
	ctx, ok := w.tasks.add(w.ctx, id)
	if !ok {
		w.session.Fail(id, openai.NewError(400, openai.CodeInvalidValue, "id", "'id' is missing, or that of a task that is still running"))
		return
	}
	go func() {
		err := f(ctx, id, fields)
		if err != nil && ctx.Err() != nil {
			err = ctx.Err() // however it words that it was cancelled
		}
		w.tasks.remove(id)
		if err != nil {
			w.session.Fail(id, wireError(err))
		}
	}()
}

type simpleMessage struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type adapterMessage struct {
	simpleMessage
	Available bool            `json:"available"`
	Reason    webgpujs.Reason `json:"reason"` // why it is not available
	Message   string          `json:"message,omitempty"`
	Info      *gpu.Info       `json:"info,omitempty"`
	Limits    *gpu.Limits     `json:"limits,omitempty"`
}

// adapter answers what the browser offers. It opens no device.
func (w *worker) adapter(ctx context.Context, id string, _ struct{}) error {
	info, limits, err := webgpujs.Probe(ctx)
	var no *webgpujs.AdapterError
	switch {
	case errors.As(err, &no):
		w.say(adapterMessage{simpleMessage: simpleMessage{typeAdapter, id}, Reason: no.Reason, Message: no.Message})
	case err != nil:
		return err
	default:
		w.say(adapterMessage{simpleMessage: simpleMessage{typeAdapter, id}, Available: true, Info: &info, Limits: &limits})
	}
	return nil
}

type logitsFields struct {
	Cases []struct {
		Name     string  `json:"name"`
		InputIDs []int32 `json:"input_ids"`
		From     int     `json:"from"`  // the first position whose logits are wanted
		Steps    int     `json:"steps"` // tokens to continue greedily
	} `json:"cases"`
}

type logitsResult struct {
	Name   string  `json:"name"`
	Greedy []int32 `json:"greedy"`
	Rows   int     `json:"rows"`   // positions from..., those of the continuation included
	Logits string  `json:"logits"` // [rows, vocab] little-endian f32 in base64
}

type logitsMessage struct {
	simpleMessage
	Results []logitsResult `json:"results"`
}

// logits computes raw logits, for tests that compare them with those of others.
func (w *worker) logits(ctx context.Context, id string, fields logitsFields) error {
	if _, err := w.engine(); err != nil {
		return err
	}
	w.mu.Lock()
	m := w.model
	w.mu.Unlock()
	out := logitsMessage{simpleMessage: simpleMessage{typeLogits, id}}
	for _, c := range fields.Cases {
		r := logitsResult{Name: c.Name}
		var raw []byte
		var err error
		r.Greedy, err = m.Logits(ctx, engine.LogitsRequest{TokenIDs: c.InputIDs, From: c.From, Steps: c.Steps},
			func(_ int, row []float32) error {
				raw = append(raw, gpu.Bytes(row)...)
				r.Rows++
				return nil
			})
		if err != nil {
			return fmt.Errorf("case %s: %w", c.Name, err)
		}
		r.Logits = base64.StdEncoding.EncodeToString(raw)
		out.Results = append(out.Results, r)
	}
	w.say(out)
	return nil
}
