package openai

import (
	"encoding/json"
	"math"
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
	// Usage is left out unless the request asks for it; then it is null in all chunks but the last, or in none.
	Usage          json.RawMessage  `json:"usage,omitempty"`
	PromptLogprobs []PromptLogprobs `json:"prompt_logprobs,omitempty"` // of a chat, on one chunk where asked for
	Pagelight      *Extension       `json:"pagelight,omitempty"`       // on the protocol transports only
}

// ChunkChoice is what a chunk says of one answer: with a Delta in a chat, with Text otherwise. A chunk has one of them, or
// none.
type ChunkChoice struct {
	Index          int                  `json:"index"`
	Delta          *Delta               `json:"delta,omitempty"`
	Text           *string              `json:"text,omitempty"`
	Logprobs       any                  `json:"logprobs"` // *ChatLogprobs, *TextLogprobs or null
	FinishReason   *engine.FinishReason `json:"finish_reason"`
	StopReason     any                  `json:"stop_reason,omitempty"`     // the stop string or id that ended the answer; absent for the model's own end
	PromptLogprobs []PromptLogprobs     `json:"prompt_logprobs,omitempty"` // of a completion, on its first chunk where asked for
}

// Delta is what a chunk adds to the assistant's message.
type Delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// Completion is a whole answer, of either endpoint.
type Completion struct {
	ID             string           `json:"id"`
	Object         string           `json:"object"` // "chat.completion" or "text_completion"
	Created        int64            `json:"created"`
	Model          string           `json:"model"`
	Choices        []Choice         `json:"choices"`
	Usage          Usage            `json:"usage"`
	PromptLogprobs []PromptLogprobs `json:"prompt_logprobs,omitempty"` // of a chat, where asked for
}

// Choice is one answer: with a Message in a chat, with Text otherwise. Those of several prompts follow one another: with n
// answers to each, answer i to prompt p has the index p*n+i.
type Choice struct {
	Index          int                 `json:"index"`
	Message        *AssistantMessage   `json:"message,omitempty"`
	Text           *string             `json:"text,omitempty"`
	Logprobs       any                 `json:"logprobs"` // *ChatLogprobs, *TextLogprobs or null
	FinishReason   engine.FinishReason `json:"finish_reason"`
	StopReason     any                 `json:"stop_reason,omitempty"`     // as in ChunkChoice
	PromptLogprobs []PromptLogprobs    `json:"prompt_logprobs,omitempty"` // of a completion, where asked for
}

// AssistantMessage is the answer of a chat.
type AssistantMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"` // always null
}

// Usage counts tokens: those of each prompt once, those of all its answers together.
type Usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	PromptDetails    PromptDetails `json:"prompt_tokens_details"`
}

// PromptDetails says more of the tokens of prompts.
type PromptDetails struct {
	CachedTokens int `json:"cached_tokens"` // those that were found in the prefix cache
}

func usageOf(u engine.Usage) Usage {
	return Usage{u.PromptTokens, u.CompletionTokens, u.TotalTokens, PromptDetails{u.CachedTokens}}
}

// Extension is what the protocol transports say beyond the API.
type Extension struct {
	TokenIDs []int32  `json:"token_ids,omitempty"`
	Ignored  []string `json:"ignored,omitempty"` // on the first chunk: fields that nobody understood
	// The rest is on the chunk with the finish reason.
	Timing     *Timing `json:"timing,omitempty"`
	Place      string  `json:"place,omitempty"`       // "tab" or "server"
	StopReason any     `json:"stop_reason,omitempty"` // as in ChunkChoice
}

// Timing is engine.Timing in milliseconds.
type Timing struct {
	Queued     float64 `json:"queued_ms"`
	FirstToken float64 `json:"first_token_ms"`
	Decode     float64 `json:"decode_ms"`
}

func milliseconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }
