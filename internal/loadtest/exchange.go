package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Exchange is what came back for one request. Times count from the start of the measurement.
type Exchange struct {
	First        time.Duration   // when the first chunk with output came; 0 where none did
	Last         time.Duration   // when the last chunk of the answer came, that with the finish reason too
	End          time.Duration   // when it was over, however it ended
	Gaps         []time.Duration // between chunks with output that follow each other
	Chunks       int             // with output
	Usage        *Usage          // nil where the server did not say
	FinishReason string
	Done         bool   // the stream ended with [DONE]
	Err          *Fault // nil when the answer is whole

	lastOutput time.Duration // when the last chunk with output came
}

// Usage is the server's count of tokens.
type Usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	PromptTokensDetails *struct {
		CachedTokens *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// OutputTokens is how many tokens the answer has: by the server's usage, else the number of chunks, which is too few where
// a chunk has several.
func (x *Exchange) OutputTokens() int {
	if x.Usage != nil {
		return x.Usage.CompletionTokens
	}
	return x.Chunks
}

// chunk is one object of a stream, of either endpoint, or an error in its place.
type chunk struct {
	Choices []struct {
		Text  *string `json:"text"`
		Delta *struct {
			Role             string          `json:"role"`
			Content          *string         `json:"content"`
			Reasoning        *string         `json:"reasoning"`
			ReasoningContent *string         `json:"reasoning_content"`
			ToolCalls        json.RawMessage `json:"tool_calls"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage   *Usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`  // "error" in older servers
	Message string          `json:"message"` // of such an error
}

// output says whether the chunk carries output. A token may have no text of its own (a special token, the first bytes of a
// character), so a chunk without text counts too; but one that only names the role or only ends the answer does not,
// for many servers send the one before and the other after all tokens.
func (c *chunk) output() bool {
	some := func(s *string) bool { return s != nil && *s != "" }
	for _, choice := range c.Choices {
		if d := choice.Delta; d != nil {
			tools := len(d.ToolCalls) > 0 && string(d.ToolCalls) != "null" && string(d.ToolCalls) != "[]"
			if some(d.Content) || some(d.Reasoning) || some(d.ReasoningContent) || tools {
				return true
			}
			if d.Role == "" && d.Content != nil && choice.FinishReason == nil {
				return true
			}
		}
		if some(choice.Text) || choice.Text != nil && choice.FinishReason == nil {
			return true
		}
	}
	return false
}

// read takes the events of a stream until its end and notes when each came.
func (x *Exchange) read(ctx context.Context, body io.Reader, epoch time.Time) {
	ev := newEvents(body)
	for {
		name, data, err := ev.next()
		now := time.Since(epoch)
		switch {
		case errors.Is(err, io.EOF) && x.FinishReason != "":
			x.check() // a server without [DONE]; the summary says so
			return
		case errors.Is(err, io.EOF):
			x.Err = &Fault{Kind: KindDisconnect, Message: "the stream ended before the answer did"}
			return
		case errors.Is(err, errEventTooLarge):
			x.Err = &Fault{Kind: KindProtocol, Message: err.Error()}
			return
		case err != nil:
			x.Err = streamFault(ctx, err)
			return
		}
		if string(data) == "[DONE]" {
			x.Done = true
			x.check()
			return
		}
		if !x.take(name, data, now) {
			return
		}
	}
}

// take books one event; false when it ends the stream.
func (x *Exchange) take(name string, data []byte, now time.Duration) bool {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		if name == "error" {
			x.Err = &Fault{Kind: KindStream, Message: clip(string(data), 200)}
		} else {
			x.Err = &Fault{Kind: KindProtocol, Message: "an event is no chunk: " + err.Error()}
		}
		return false
	}
	if len(c.Error) > 0 && string(c.Error) != "null" || c.Object == "error" || name == "error" {
		x.Err = &Fault{Kind: KindStream, Message: errorMessage(data)}
		return false
	}
	if c.Usage != nil {
		x.Usage = c.Usage
	}
	if len(c.Choices) == 0 {
		return true
	}
	if c.output() {
		if x.Chunks == 0 {
			x.First = now
		} else {
			x.Gaps = append(x.Gaps, now-x.lastOutput)
		}
		x.lastOutput = now
		x.Chunks++
	}
	x.Last = now
	for _, choice := range c.Choices {
		if choice.FinishReason != nil && *choice.FinishReason != "" {
			x.FinishReason = *choice.FinishReason
		}
	}
	return true
}

// check looks at an answer that ended in good order.
func (x *Exchange) check() {
	if x.Chunks == 0 {
		x.Err = &Fault{Kind: KindEmpty, Message: "the answer has no output (finish reason " + quoted(x.FinishReason) + ")"}
	}
}

func quoted(s string) string {
	if s == "" {
		return "none"
	}
	return string(marshal(s))
}
