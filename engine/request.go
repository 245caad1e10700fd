package engine

import "time"

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user" or "assistant"
	Content string `json:"content"`
}

// Params say how tokens are chosen and when to stop. The zero value of a pointer field means: what the model's
// generation_config.json says, else the default named here. The names on the wire, the ranges and the order in which they
// act are vLLM's.
type Params struct {
	Temperature *float64 // at least 0; 0 picks the best token; default 1
	TopP        *float64 // in (0, 1]; default 1
	TopK        *int     // 0 or -1 means all; default all
	MinP        *float64 // in [0, 1]; default 0
	Seed        *int64   // the same seed gives the same tokens; nil is a fresh one

	PresencePenalty   *float64 // in [-2, 2]; default 0; counts tokens of the answer
	FrequencyPenalty  *float64 // in [-2, 2]; default 0; counts tokens of the answer
	RepetitionPenalty *float64 // greater than 0; default 1; counts tokens of prompt and answer

	LogitBias       map[int32]float64 // added to the logits of these ids; cut to [-100, 100]
	AllowedTokenIDs []int32           // no other ids are chosen; nil: all. An empty list is refused
	BadWords        []string          // texts that must not come; the token that would complete one is not chosen

	MaxTokens int // at most this many new tokens; 0 means max_new_tokens of generation_config.json, else what the context has room for
	MinTokens int // no end-of-answer id and no id of StopTokenIDs is chosen, and no stop string ends the answer, before this many new tokens
	// PromptOnly asks for no new token at all: the prompt is computed for its PromptLogprobs, or just for the cache.
	// MaxTokens is 0 then. The answer is one event without tokens, and its reason is FinishLength.
	PromptOnly bool

	Stop         []string // the answer ends before the first of these, or with IncludeStop right after it
	StopTokenIDs []int32  // ids that end the answer; their text is no part of it unless IncludeStop
	IncludeStop  bool     // keep the stop string or the text of the stop id in the text
	IgnoreEOS    bool     // do not end at the model's end-of-answer ids
	KeepSpecial  bool     // keep special tokens in the text

	Logprobs       *int // per new token, its log-probability and so many alternatives, 0 to MaxLogprobs; nil: none
	PromptLogprobs *int // the same for the tokens of the prompt; what the cache holds of it is computed again
}

// MaxLogprobs is the most alternatives that a token can be given.
const MaxLogprobs = 20

// Request asks for one completion, or for N of one prompt. Exactly one of Messages, Prompt and TokenIDs is given; for the
// latter two a flag says so, since an empty prompt is a valid thing to refuse.
type Request struct {
	ID string // for logs; made up when empty

	Messages            []Message // rendered with the model's chat template
	AddGenerationPrompt *bool     // default true
	Prompt              *string   // plain text, no template
	TokenIDs            []int32   // ids as they are

	Params Params

	N         int    // how many answers; 0 and 1 mean one. Answer i is seeded with Params.Seed + i
	Priority  int    // lower comes first, where the engine schedules by priority
	CacheSalt string // cached blocks are shared only with requests of the same salt
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
	CachedTokens     int `json:"cached_tokens,omitempty"` // of the prompt's, those that were found in the prefix cache
}

// Timing says where the time of a request went.
type Timing struct {
	Queued     time.Duration `json:"queued"`      // waiting for its turn
	FirstToken time.Duration `json:"first_token"` // from being taken up to the first token: the prompt's work
	Decode     time.Duration `json:"decode"`      // from the first token to the last
}

// Event is one piece of a stream. Each of a request's N answers ends with an event that has a FinishReason; when all have,
// the stream ends. Events of different answers come in any order, those of one answer in its own.
type Event struct {
	Index    int            // which of the N answers this is about, from 0
	Text     string         // new text; may be empty while a character is incomplete or a stop string may be coming
	TokenIDs []int32        // the new ids, an end-of-answer id or a stop id included
	Logprobs []TokenLogprob // one for each of TokenIDs, where Params.Logprobs asks for them
	// PromptLogprobs has an element for each token of the prompt, on the first event of the stream and where they were
	// asked for. Nothing comes before the first token, so that its element has an id and a text but no probability: Rank
	// is 0.
	PromptLogprobs []TokenLogprob
	// Usage counts as of this event, the tokens of this one answer; on the first event it already has the prompt's tokens
	// and how many of them were cached.
	Usage        Usage
	FinishReason FinishReason // "" until the last event of the answer
	StopReason   any          // string or int32 that ended the answer; nil for the model's own end
	Timing       Timing       // set on the last event of the answer
}

// TokenLogprob is how probable a token was at its place, by the model's own logits before any parameter changed them.
type TokenLogprob struct {
	ID      int32
	Text    string  // the token's own text, valid UTF-8: bytes that are no character are U+FFFD
	Bytes   []byte  // the token's own bytes
	Logprob float64 // natural logarithm; never positive, and -Inf for a probability of 0
	Rank    int     // 1 for the most probable
	// Top has as many of the most probable tokens as were asked for, the most probable first; the token itself is among
	// them only if it belongs there. Theirs are empty.
	Top []TokenLogprob
}
