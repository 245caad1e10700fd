//go:build js && wasm

package main

import (
	"context"
	"errors"
	"runtime"
	"syscall/js"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/bench"
	"github.com/pagelight/pagelight/internal/gpu/webgpujs"
)

type benchFields struct {
	loadFields
	Tests   bench.Options `json:"tests"`
	Command []string      `json:"command"` // what the report is to say about how it was asked for
}

// benchProgress says how far a measurement is: one of its fields.
type benchProgress struct {
	simpleMessage
	Phase string          `json:"phase"`           // "bench"
	About *bench.Report   `json:"about,omitempty"` // the report so far, once the model is open
	Doing *bench.Progress `json:"doing,omitempty"`
	Test  *bench.Test     `json:"test,omitempty"` // that was measured
}

type benchMessage struct {
	simpleMessage
	Report bench.Report `json:"report"`
	Wrong  string       `json:"wrong,omitempty"` // what was wrong with the answers; then there is no speed
}

// bench opens a model, measures it and closes it. It does what the native program does, with the same code. Whatever else was open is
// closed, and other models wait until it is done.
func (w *worker) bench(ctx context.Context, id string, f benchFields) error {
	say := func(p benchProgress) {
		p.simpleMessage, p.Phase = simpleMessage{"progress", id}, typeBench
		w.say(p)
		webgpujs.Turn()
	}
	f.Tests.Progress = func(p bench.Progress) { say(benchProgress{Doing: &p}) }
	f.Tests.Measured = func(t bench.Test) { say(benchProgress{Test: &t}) }
	b, err := bench.New(f.Tests)
	if err != nil {
		return err
	}
	report := bench.Report{
		Schema: bench.Schema, Tool: "pagelight bench page", Version: version, Commit: bench.Commit(commit), Date: time.Now(), Command: f.Command,
		Machine: thisBrowser(), Options: f.Tests,
	}
	w.opening.Lock()
	defer w.opening.Unlock()
	if err := ctx.Err(); err != nil {
		return err // cancelled while it waited
	}
	w.closeModel()
	began := time.Now()
	var probing time.Duration
	m, err := w.open(ctx, id, f.loadFields, func(cfg *engine.Config) {
		*cfg = b.Configure(*cfg)
		report.Adapter = cfg.Device.Info()
		if !f.Tests.NoProfile {
			say(benchProgress{Doing: &bench.Progress{Doing: bench.DoingDevice}})
			from := time.Now()
			report.Device = bench.MeasureDevice(ctx, cfg.Device)
			probing = time.Since(from)
		}
	})
	if err != nil {
		return err
	}
	defer func() {
		_ = m.Close() // nothing was written
	}()
	opened := time.Since(began) - probing
	run := bench.NewRun(m.Info())
	run.OpenS = opened.Seconds()
	report.Runs = []bench.Run{run}
	say(benchProgress{About: &report})
	run, err = b.Run(ctx, m.Engine, report.Device)
	if err != nil && !errors.Is(err, bench.ErrWrong) {
		return err
	}
	run.OpenS = opened.Seconds()
	run.Notes = append(run.Notes, m.notes...)
	report.Runs[0] = run
	out := benchMessage{simpleMessage: simpleMessage{typeBench, id}, Report: report}
	if err != nil {
		out.Wrong = err.Error()
	}
	w.say(out)
	return nil
}

// thisBrowser is what a tab knows of where it runs.
func thisBrowser() bench.Machine {
	m := bench.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	if n := js.Global().Get("navigator"); n.Type() == js.TypeObject {
		m.Browser = n.Get("userAgent").String()
		if c := n.Get("hardwareConcurrency"); c.Type() == js.TypeNumber {
			m.Cores = c.Int()
		}
	}
	return m
}
