package engine

import "time"

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user" or "assistant"
	Content string `json:"content"`
}

// Params say how tokens are chosen and when to stop. The zero value of a pointer field means: what the model's
// generation_config.json says, else the default named here.
type Params struct {
	Temperature *float64 // 0 picks the best token; default 1
	TopP        *float64 // in (0, 1]; default 1
	TopK        *int     // 0 or -1 means all; default all
	MinP        *float64 // in [0, 1]; default 0
	Seed        *int64   // the same seed gives the same tokens; nil is a fresh one

	MaxTokens   int      // at most this many new tokens; 0 means max_new_tokens of generation_config.json, else what the context has room for
	Stop        []string // the answer ends before the first of these
	IgnoreEOS   bool     // do not end at the model's end-of-answer ids
	KeepSpecial bool     // keep special tokens in the text
}

// Request asks for one completion. Exactly one of Messages, Prompt and TokenIDs is given; for the latter two a flag says
// so, since an empty prompt is a valid thing to refuse.
type Request struct {
	ID string // for logs; made up when empty

	Messages            []Message // rendered with the model's chat template
	AddGenerationPrompt *bool     // default true
	Prompt              *string   // plain text, no template
	TokenIDs            []int32   // ids as they are

	Params Params
}

// FinishReason says why an answer ended, in OpenAI's words.
type FinishReason string

// The reasons. A cancelled request ends with the error of its context instead.
const (
	FinishStop   FinishReason = "stop"   // an end-of-answer id or a stop string
	FinishLength FinishReason = "length" // MaxTokens or the context is full
)

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// Timing says where the time of a request went.
type Timing struct {
	Queued     time.Duration `json:"queued"`      // waiting for its turn
	FirstToken time.Duration `json:"first_token"` // from being taken up to the first token: the prompt's work
	Decode     time.Duration `json:"decode"`      // from the first token to the last
}

// Event is one piece of a stream. The last event of a stream that did not fail has a FinishReason.
type Event struct {
	Text     string  // new text; may be empty while a character is incomplete or a stop string may be coming
	TokenIDs []int32 // the new ids, an end-of-answer id included
	// Usage counts as of this event; on the first event it already has the prompt's tokens.
	Usage        Usage
	FinishReason FinishReason // "" until the last event
	StopReason   any          // string or int32 that ended the answer; nil for the model's own end
	Timing       Timing       // set on the last event
}
