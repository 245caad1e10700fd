package openai

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"

	"github.com/pagelight/pagelight/engine"
)

// Engine is what answering needs of *engine.Engine.
type Engine interface {
	Generate(ctx context.Context, r engine.Request) iter.Seq2[engine.Event, error]
	Detokenize(ids []int32, skipSpecial bool) (string, error)
	Info() engine.Info
	Stats() engine.Stats
}

// Event is an engine's event and the prompt that it is about, counted from 0.
type Event struct {
	Prompt int
	engine.Event
}

// Run asks the engine and gives its events: those of several prompts as they come, which the engine computes together. The
// first error ends everything. When Run returns nothing of the call runs any more.
func (r *Reply) Run(ctx context.Context, eng Engine) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		requests := r.requests()
		if err := r.readEcho(eng, requests); err != nil {
			yield(Event{}, err)
			return
		}
		if len(requests) > 1 {
			runAll(ctx, eng, requests, yield)
			return
		}
		for ev, err := range eng.Generate(ctx, requests[0]) {
			if !yield(Event{0, ev}, err) {
				return
			}
		}
	}
}

// requests gives one request for each prompt.
func (r *Reply) requests() []engine.Request {
	q := r.call.Request
	q.ID = r.id
	if len(r.call.Prompts) == 0 {
		return []engine.Request{q}
	}
	list := make([]engine.Request, len(r.call.Prompts))
	for i, p := range r.call.Prompts {
		q.ID, q.Prompt, q.TokenIDs = fmt.Sprintf("%s-%d", r.id, i), p.Text, p.TokenIDs
		list[i] = q
	}
	return list
}

// readEcho finds the text of each prompt.
func (r *Reply) readEcho(eng Engine, requests []engine.Request) (err error) {
	if !r.call.Echo {
		return nil
	}
	for i, q := range requests {
		if q.Prompt != nil {
			r.prompts[i].echo = *q.Prompt
		} else if r.prompts[i].echo, err = eng.Detokenize(q.TokenIDs, false); err != nil {
			return err
		}
	}
	return nil
}

// runAll runs several requests side by side.
func runAll(ctx context.Context, eng Engine, requests []engine.Request, yield func(Event, error) bool) {
	type item struct {
		ev  Event
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	items := make(chan item)
	var running sync.WaitGroup
	for i, q := range requests {
		running.Go(func() {
			send := func(ev engine.Event, err error) bool {
				select {
				case items <- item{Event{i, ev}, err}:
					return err == nil
				case <-ctx.Done():
					return false
				}
			}
			defer func() {
				if v := recover(); v != nil { // the caller's goroutine, which has a handler for it, is another one
					send(engine.Event{}, &panicError{v, debug.Stack()})
				}
			}()
			for ev, err := range eng.Generate(ctx, q) {
				if !send(ev, err) {
					return
				}
			}
		})
	}
	go func() {
		running.Wait()
		close(items)
	}()
	defer func() {
		cancel()
		for range items { // until all have ended
		}
	}()
	for it := range items {
		if !yield(it.ev, it.err) || it.err != nil {
			return
		}
	}
}
