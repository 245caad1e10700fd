//go:build js && wasm

// Command wasm is the engine of a browser tab: it runs in the web worker static/worker.js and speaks the page's protocol,
// which internal/openai has in common with the server. It adds what only a tab needs: loading a model with progress,
// asking for the adapter, the self-test of the kernels, and measuring.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/openai"
)

// Set by the linker, as those of the native program.
var (
	version = "dev"
	commit  string
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pagelight:", err)
		os.Exit(1)
	}
}

// run serves the page until the worker is terminated.
func run() error {
	bridge := js.Global().Get("pagelightBridge")
	if bridge.Type() != js.TypeObject {
		return fmt.Errorf("worker.js is not loaded")
	}
	fetch, err := newFetcher()
	if err != nil {
		return err
	}
	ranges, err := newRanges()
	if err != nil {
		return err
	}
	storage := js.Global().Get("pagelightTuning")
	if storage.Type() != js.TypeObject {
		return fmt.Errorf("tuning.js is not loaded")
	}
	var in inbox
	in.wake = make(chan struct{}, 1)
	receive := js.FuncOf(func(_ js.Value, args []js.Value) any {
		in.put(args[0].String())
		return nil
	})
	w := newWorker(context.Background(), fetch, ranges, storage, bridge.Get("send"))
	bridge.Call("start", receive)
	for {
		w.handle(in.take())
	}
}

// inbox holds messages between the callback that receives them, which must not block, and the goroutine that acts on them.
type inbox struct {
	mu       sync.Mutex
	messages []string
	wake     chan struct{}
}

func (in *inbox) put(message string) {
	in.mu.Lock()
	in.messages = append(in.messages, message)
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) take() string {
	for {
		in.mu.Lock()
		if len(in.messages) > 0 {
			message := in.messages[0]
			in.messages = in.messages[1:]
			in.mu.Unlock()
			return message
		}
		in.mu.Unlock()
		<-in.wake
	}
}

// The types of messages that only the worker knows.
const (
	typePing        = "ping"
	typeAdapter     = "adapter"
	typeLoad        = "load"
	typeUnload      = "unload"
	typeConformance = "conformance"
	typeLogits      = "logits"
	typeBench       = "bench"
	typeTune        = "tune"
	typeTuned       = "tuned"
)

// handle acts on one message and does not wait for what it starts. That pings come this way shows that goroutines run.
func (w *worker) handle(text string) {
	m, err := openai.DecodeMessage([]byte(text))
	if err != nil {
		w.session.Fail(m.ID, err)
		return
	}
	switch m.Type {
	case typePing:
		w.say(simpleMessage{"pong", m.ID})
	case typeAdapter:
		start(w, m.ID, text, w.adapter)
	case typeLoad:
		start(w, m.ID, text, w.load)
	case typeUnload:
		start(w, m.ID, text, w.unload)
	case typeConformance:
		start(w, m.ID, text, w.conformance)
	case typeLogits:
		start(w, m.ID, text, w.logits)
	case typeBench:
		start(w, m.ID, text, w.bench)
	case typeTune:
		start(w, m.ID, text, w.tuneNow)
	case openai.TypeCancel:
		if !w.tasks.cancel(m.ID) {
			w.session.Handle(m)
		}
	default:
		w.session.Handle(m)
	}
}
