package openai

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// Chunk is one object of a stream, of either endpoint.
type Chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"` // "chat.completion.chunk" or "text_completion"
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []ChunkChoice `json:"choices"`
	// Usage is left out unless the request asks for it; then it is null in all chunks but the last.
	Usage     json.RawMessage `json:"usage,omitempty"`
	Pagelight *Extension      `json:"pagelight,omitempty"` // on the protocol transports only
}

// ChunkChoice is the one choice of a chunk: with a Delta in a chat, with Text otherwise.
type ChunkChoice struct {
	Index        int                  `json:"index"`
	Delta        *Delta               `json:"delta,omitempty"`
	Text         *string              `json:"text,omitempty"`
	Logprobs     *struct{}            `json:"logprobs"` // always null
	FinishReason *engine.FinishReason `json:"finish_reason"`
}

// Delta is what a chunk adds to the assistant's message.
type Delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// Completion is a whole answer, of either endpoint.
type Completion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"` // "chat.completion" or "text_completion"
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []Choice     `json:"choices"`
	Usage   engine.Usage `json:"usage"`
}

// Choice is the one choice of an answer: with a Message in a chat, with Text otherwise.
type Choice struct {
	Index        int                 `json:"index"`
	Message      *AssistantMessage   `json:"message,omitempty"`
	Text         *string             `json:"text,omitempty"`
	Logprobs     *struct{}           `json:"logprobs"` // always null
	FinishReason engine.FinishReason `json:"finish_reason"`
}

// AssistantMessage is the answer of a chat.
type AssistantMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"` // always null
}

// Extension is what the protocol transports say beyond the API.
type Extension struct {
	TokenIDs []int32  `json:"token_ids,omitempty"`
	Ignored  []string `json:"ignored,omitempty"` // on the first chunk: fields that nobody understood
	// The rest is on the chunk with the finish reason.
	Timing     *Timing `json:"timing,omitempty"`
	Place      string  `json:"place,omitempty"`       // "tab" or "server"
	StopReason any     `json:"stop_reason,omitempty"` // the stop string or id; absent for the model's own end
}

// Timing is engine.Timing in milliseconds.
type Timing struct {
	Queued     float64 `json:"queued_ms"`
	FirstToken float64 `json:"first_token_ms"`
	Decode     float64 `json:"decode_ms"`
}

// Reply turns the events of one request into wire objects: as a stream with Chunks, or whole with Add and Completion.
type Reply struct {
	call    *Call
	id      string
	model   string
	created int64
	place   string // "" on plain HTTP

	started     bool // the role was sent
	ignoredSaid bool
	finished    bool
	text        strings.Builder // of Add
	usage       engine.Usage
	reason      engine.FinishReason
}

// NewReply makes the reply to call. model is the served name to give; place, "tab" or "server", turns on the extension
// and is "" on plain HTTP.
func NewReply(call *Call, id, model, place string, created time.Time) *Reply {
	return &Reply{call: call, id: id, model: model, place: place, created: created.Unix()}
}

// Check is called after the last event: it returns the error of an answer that ended without a finish reason.
func (r *Reply) Check(ctx context.Context) error {
	switch {
	case r.finished:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errors.New("the engine ended the answer without a reason")
}

// Usage counts the tokens so far.
func (r *Reply) Usage() engine.Usage { return r.usage }

// Chunks translates an event into the chunks to send now; none when there is nothing new to say. The first chunk of a
// chat has the role. The event with the finish reason gives the last chunk, and after it one with the usage where that
// was asked for.
func (r *Reply) Chunks(ev engine.Event) []Chunk {
	var out []Chunk
	if !r.started {
		r.started = true
		if r.call.Endpoint == ChatCompletions {
			empty := ""
			out = append(out, r.chunk(ChunkChoice{Delta: &Delta{Role: "assistant", Content: &empty}}))
		}
	}
	r.usage = ev.Usage
	last := ev.FinishReason != ""
	if ev.Text != "" || last || r.place != "" && len(ev.TokenIDs) > 0 {
		var choice ChunkChoice
		if r.call.Endpoint == ChatCompletions {
			choice.Delta = &Delta{}
			if ev.Text != "" || !last {
				choice.Delta.Content = &ev.Text
			}
		} else {
			choice.Text = &ev.Text
		}
		if last {
			choice.FinishReason = &ev.FinishReason
		}
		c := r.chunk(choice)
		if r.place != "" {
			c.Pagelight = &Extension{TokenIDs: ev.TokenIDs}
			if last {
				c.Pagelight.Timing = &Timing{milliseconds(ev.Timing.Queued), milliseconds(ev.Timing.FirstToken), milliseconds(ev.Timing.Decode)}
				c.Pagelight.Place, c.Pagelight.StopReason = r.place, ev.StopReason
			}
		}
		out = append(out, c)
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
	if last {
		r.finished, r.reason = true, ev.FinishReason
		if r.call.IncludeUsage {
			c := r.chunk()
			c.Usage, _ = json.Marshal(ev.Usage)
			out = append(out, c)
		}
	}
	return out
}

// Add collects an event for Completion.
func (r *Reply) Add(ev engine.Event) {
	r.text.WriteString(ev.Text)
	r.usage = ev.Usage
	if ev.FinishReason != "" {
		r.finished, r.reason = true, ev.FinishReason
	}
}

// Completion is the whole answer, after the last event was added.
func (r *Reply) Completion() Completion {
	text := r.text.String()
	c := Completion{ID: r.id, Object: "text_completion", Created: r.created, Model: r.model, Usage: r.usage}
	choice := Choice{FinishReason: r.reason}
	if r.call.Endpoint == ChatCompletions {
		c.Object = "chat.completion"
		choice.Message = &AssistantMessage{Role: "assistant", Content: text}
	} else {
		choice.Text = &text
	}
	c.Choices = []Choice{choice}
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

func milliseconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }
