// Package openai is the wire side of the API: the bodies of /v1/chat/completions and /v1/completions, the objects that
// answer them, and the messages in which both travel over a WebSocket or to a web worker. The native host and the browser
// build share it, so it imports no net/http and stays small.
//
// It converts and checks; it knows no transport and nothing of how an engine works. What a request says is either done,
// refused with the field's name, or reported as ignored; nothing is dropped silently.
package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/pagelight/pagelight/engine"
)

// Endpoint is one of the two things that can be asked for, in the protocol's spelling.
type Endpoint string

// The endpoints.
const (
	ChatCompletions Endpoint = "chat.completions"
	Completions     Endpoint = "completions"
)

// Call is a request body that was understood and checked.
type Call struct {
	Endpoint        Endpoint
	Model           string // as asked for; "" means the served one
	Stream          bool
	IncludeUsage    bool // stream_options.include_usage
	ContinuousUsage bool // stream_options.continuous_usage_stats: on every chunk, that of its answer so far
	Echo            bool // the text of a completion begins with its prompt, that of a chat with its last message: see readEcho
	PromptLogprobs  bool // prompt_logprobs were asked for, and not just those that echo needs
	// Request is what to ask the engine for. It has no prompt when there are several: Prompts has them then.
	Request engine.Request
	Prompts []Prompt
	// Ignored names the fields that were understood by nobody and left out, sorted.
	Ignored []string
}

// Prompt is one of several prompts: text or token ids.
type Prompt struct {
	Text     *string
	TokenIDs []int32
}

// NewID makes an id for an answer: "chatcmpl-" or "cmpl-" and 32 hexadecimal digits.
func NewID(e Endpoint) string {
	prefix := "cmpl-"
	if e == ChatCompletions {
		prefix = "chatcmpl-"
	}
	return fmt.Sprintf("%s%016x%016x", prefix, rand.Uint64(), rand.Uint64())
}

// Marshal encodes v as JSON on one line, without the \u003c that encoding/json writes for use inside HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
