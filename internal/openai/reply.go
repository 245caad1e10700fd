package openai

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// Reply runs a call and turns its events into wire objects: as a stream with Chunks, or whole with Add and Completion.
type Reply struct {
	call    *Call
	id      string
	model   string
	created int64
	place   string // "" on plain HTTP

	perPrompt   int // answers to each prompt
	prompts     []promptState
	answers     []answerState // perPrompt for each prompt
	unfinished  int           // answers
	begun       bool          // the roles were sent
	ignoredSaid bool
}

// promptState is what is known of one prompt.
type promptState struct {
	known          bool
	tokens, cached int
	logprobs       []engine.TokenLogprob
	echo           string // its text, where that is wanted
}

// answerState is one choice.
type answerState struct {
	begun      bool // a chunk was sent
	tokens     int
	reason     engine.FinishReason
	stopReason any
	at         offset
	// Of Add:
	text     strings.Builder
	logprobs []engine.TokenLogprob
}

// NewReply makes the reply to call. id names the answer; model is the served name to give; place, "tab" or "server", turns
// on the extension and is "" on plain HTTP.
func NewReply(call *Call, id, model, place string, created time.Time) *Reply {
	n, prompts := max(1, call.Request.N), max(1, len(call.Prompts))
	return &Reply{
		call: call, id: id, model: model, place: place, created: created.Unix(), perPrompt: n,
		prompts: make([]promptState, prompts), answers: make([]answerState, n*prompts), unfinished: n * prompts,
	}
}

// Check is called after the last event: it returns the error of an answer that ended without a finish reason.
func (r *Reply) Check(ctx context.Context) error {
	switch {
	case r.unfinished == 0:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errors.New("the engine ended the answer without a reason")
}

// role is whose words a chat's answer are: the last message's, where nothing is to begin a turn of the assistant, as in vLLM.
func (r *Reply) role() string {
	q := &r.call.Request
	if q.AddGenerationPrompt != nil && !*q.AddGenerationPrompt && len(q.Messages) > 0 {
		return q.Messages[len(q.Messages)-1].Role
	}
	return "assistant"
}

// Usage counts the tokens so far, of all prompts and answers.
func (r *Reply) Usage() engine.Usage {
	var u engine.Usage
	for i := range r.prompts {
		u.PromptTokens += r.prompts[i].tokens
		u.CachedTokens += r.prompts[i].cached
	}
	for i := range r.answers {
		u.CompletionTokens += r.answers[i].tokens
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// note books an event and returns what it belongs to.
func (r *Reply) note(ev *Event) (p *promptState, a *answerState, index int) {
	index = ev.Prompt*r.perPrompt + ev.Index
	p, a = &r.prompts[ev.Prompt], &r.answers[index]
	if !p.known || ev.Index == 0 { // the others find in the cache what the first has just computed
		p.known, p.tokens, p.cached = true, ev.Usage.PromptTokens, ev.Usage.CachedTokens
	}
	if ev.PromptLogprobs != nil {
		p.logprobs = ev.PromptLogprobs
	}
	a.tokens = ev.Usage.CompletionTokens
	if ev.FinishReason != "" && a.reason == "" {
		a.reason, a.stopReason = ev.FinishReason, ev.StopReason
		r.unfinished--
	}
	return p, a, index
}

// Chunks translates an event into the chunks to send now; none when there is nothing new to say. The first chunks of a
// chat have the roles of its answers. An event with a finish reason gives the last chunk of its answer, and that of the
// last answer one more with the usage where that was asked for.
func (r *Reply) Chunks(ev Event) []Chunk {
	p, a, index := r.note(&ev)
	var out []Chunk
	first := !a.begun
	if !r.begun && r.call.Endpoint == ChatCompletions {
		for i := range r.answers {
			empty := ""
			c := r.chunk(ChunkChoice{Index: i, Delta: &Delta{Role: r.role(), Content: &empty}})
			r.continuousUsage(&c, p, 0)
			out = append(out, c)
		}
	}
	if first && r.call.Echo {
		ev.Text = p.echo + ev.Text
	}
	last := ev.FinishReason != ""
	if ev.Text != "" || last || len(ev.Logprobs) > 0 || r.place != "" && len(ev.TokenIDs) > 0 {
		choice := ChunkChoice{Index: index, StopReason: ev.StopReason}
		if r.call.Endpoint == ChatCompletions {
			choice.Delta = &Delta{}
			if ev.Text != "" || !last {
				choice.Delta.Content = &ev.Text
			}
		} else {
			choice.Text = &ev.Text
			if first && r.call.PromptLogprobs {
				choice.PromptLogprobs = promptLogprobs(p.logprobs)
			}
		}
		choice.Logprobs = r.logprobs(p, a, ev.Logprobs, first)
		if last {
			choice.FinishReason = &ev.FinishReason
		}
		c := r.chunk(choice)
		r.continuousUsage(&c, p, a.tokens)
		r.extend(&c, &ev)
		a.begun = true
		out = append(out, c)
	}
	if len(out) > 0 && !r.begun {
		r.begun = true
		if r.call.Endpoint == ChatCompletions && r.call.PromptLogprobs {
			out[0].PromptLogprobs = promptLogprobs(p.logprobs)
		}
	}
	if r.place != "" && len(out) > 0 && !r.ignoredSaid {
		r.ignoredSaid = true
		if len(r.call.Ignored) > 0 {
			if out[0].Pagelight == nil {
				out[0].Pagelight = &Extension{}
			}
			out[0].Pagelight.Ignored = r.call.Ignored
		}
	}
	if last && r.unfinished == 0 && r.call.IncludeUsage {
		c := r.chunk()
		c.Usage, _ = json.Marshal(usageOf(r.Usage()))
		out = append(out, c)
	}
	return out
}

// extend adds what only the protocol transports say.
func (r *Reply) extend(c *Chunk, ev *Event) {
	if r.place == "" {
		return
	}
	c.Pagelight = &Extension{TokenIDs: ev.TokenIDs}
	if ev.FinishReason != "" {
		c.Pagelight.Timing = &Timing{milliseconds(ev.Timing.Queued), milliseconds(ev.Timing.FirstToken), milliseconds(ev.Timing.Decode)}
		c.Pagelight.Place, c.Pagelight.StopReason = r.place, ev.StopReason
	}
}

// logprobs gives the tokens of an answer in the shape of its endpoint; nil when there are none to tell. first says that they
// are the answer's first, before which an echoed prompt stands.
func (r *Reply) logprobs(p *promptState, a *answerState, tokens []engine.TokenLogprob, first bool) any {
	if r.call.Request.Params.Logprobs == nil {
		return nil
	}
	if first && r.call.Echo && r.call.Endpoint == Completions {
		tokens = slices.Concat(p.logprobs, tokens)
	}
	switch {
	case len(tokens) == 0:
		return nil
	case r.call.Endpoint == ChatCompletions:
		return chatLogprobs(tokens)
	}
	return textLogprobs(tokens, &a.at)
}

// Add collects an event for Completion.
func (r *Reply) Add(ev Event) {
	_, a, _ := r.note(&ev)
	a.text.WriteString(ev.Text)
	a.logprobs = append(a.logprobs, ev.Logprobs...)
}

// Completion is the whole answer, after the last event was added.
func (r *Reply) Completion() Completion {
	c := Completion{ID: r.id, Object: "text_completion", Created: r.created, Model: r.model, Usage: usageOf(r.Usage())}
	if r.call.Endpoint == ChatCompletions {
		c.Object = "chat.completion"
		if r.call.PromptLogprobs {
			c.PromptLogprobs = promptLogprobs(r.prompts[0].logprobs)
		}
	}
	for i := range r.answers {
		a, p := &r.answers[i], &r.prompts[i/r.perPrompt]
		choice := Choice{Index: i, FinishReason: a.reason, StopReason: a.stopReason, Logprobs: r.logprobs(p, a, a.logprobs, true)}
		text := p.echo + a.text.String()
		if r.call.Endpoint == ChatCompletions {
			choice.Message = &AssistantMessage{Role: r.role(), Content: text}
		} else {
			choice.Text = &text
			if r.call.PromptLogprobs {
				choice.PromptLogprobs = promptLogprobs(p.logprobs)
			}
		}
		c.Choices = append(c.Choices, choice)
	}
	return c
}

func (r *Reply) chunk(choices ...ChunkChoice) Chunk {
	c := Chunk{ID: r.id, Object: "text_completion", Created: r.created, Model: r.model, Choices: choices}
	if r.call.Endpoint == ChatCompletions {
		c.Object = "chat.completion.chunk"
	}
	if choices == nil {
		c.Choices = []ChunkChoice{}
	}
	if r.call.IncludeUsage {
		c.Usage = json.RawMessage("null")
	}
	return c
}

// continuousUsage puts the usage of one answer on its chunk, where that was asked for.
func (r *Reply) continuousUsage(c *Chunk, p *promptState, tokens int) {
	if r.call.ContinuousUsage {
		u := engine.Usage{PromptTokens: p.tokens, CompletionTokens: tokens, TotalTokens: p.tokens + tokens, CachedTokens: p.cached}
		c.Usage, _ = json.Marshal(usageOf(u))
	}
}
