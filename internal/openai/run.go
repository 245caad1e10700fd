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
		err := r.checkRoom(eng.Info().MaxAnswers)
		if err == nil {
			err = r.readEcho(eng, requests)
		}
		if err != nil {
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

// checkRoom refuses a call of more answers than can ever run and wait at once: to try again later, which is what a full queue
// says, would never help. most is 0 where there may be any number.
func (r *Reply) checkRoom(most int) error {
	if most == 0 || len(r.answers) <= most {
		return nil
	}
	if len(r.prompts) == 1 {
		return NewError(400, CodeInvalidValue, "n", fmt.Sprintf("'n' must be at most %d, the number of answers that run or wait here at once, but is %d", most, r.perPrompt))
	}
	return NewError(400, CodeInvalidValue, "prompt", fmt.Sprintf("'prompt' has %d prompts, for which 'n' asks for %d answers each; at most %d answers together run or wait here at once",
		len(r.prompts), r.perPrompt, most))
}

// readEcho finds the text of each prompt. That of a chat is its last message, if it is of the role that answers, as in vLLM.
func (r *Reply) readEcho(eng Engine, requests []engine.Request) (err error) {
	if !r.call.Echo {
		return nil
	}
	if r.call.Endpoint == ChatCompletions {
		if m := r.call.Request.Messages; m[len(m)-1].Role == r.role() {
			r.prompts[0].echo = m[len(m)-1].Content
		}
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
