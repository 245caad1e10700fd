package openai

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

var created = time.Unix(1700000000, 0)

// answer is a stream of events: a held back character, text, and the end by a stop string.
func answer() []engine.Event {
	return []engine.Event{
		{TokenIDs: []int32{5}, Usage: engine.Usage{PromptTokens: 3, CompletionTokens: 1, TotalTokens: 4}},
		{Text: "<é>", TokenIDs: []int32{6}, Usage: engine.Usage{PromptTokens: 3, CompletionTokens: 2, TotalTokens: 5}},
		{
			Text: "!", TokenIDs: []int32{7, 2}, Usage: engine.Usage{PromptTokens: 3, CompletionTokens: 4, TotalTokens: 7}, FinishReason: engine.FinishStop,
			StopReason: "END", Timing: engine.Timing{Queued: 1500 * time.Microsecond, FirstToken: 20 * time.Millisecond, Decode: time.Second},
		},
	}
}

func TestChunks(t *testing.T) {
	t.Parallel()
	const chat = `"object":"chat.completion.chunk","created":1700000000,"model":"m"`
	const text = `"object":"text_completion","created":1700000000,"model":"m"`
	for _, c := range []struct {
		name  string
		call  Call
		place string
		want  []string
	}{
		{"chat", Call{Endpoint: ChatCompletions, Ignored: []string{"x"}}, "", []string{
			`{"id":"i",` + chat + `,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
			`{"id":"i",` + chat + `,"choices":[{"index":0,"delta":{"content":"<é>"},"logprobs":null,"finish_reason":null}]}`,
			`{"id":"i",` + chat + `,"choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":"stop","stop_reason":"END"}]}`,
		}},
		{"completion with usage", Call{Endpoint: Completions, IncludeUsage: true}, "", []string{
			`{"id":"i",` + text + `,"choices":[{"index":0,"text":"<é>","logprobs":null,"finish_reason":null}],"usage":null}`,
			`{"id":"i",` + text + `,"choices":[{"index":0,"text":"!","logprobs":null,"finish_reason":"stop","stop_reason":"END"}],"usage":null}`,
			`{"id":"i",` + text + `,"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}}`,
		}},
		{"chat with the extension", Call{Endpoint: ChatCompletions, Ignored: []string{"x"}}, "tab", []string{
			`{"id":"i",` + chat + `,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"pagelight":{"ignored":["x"]}}`,
			`{"id":"i",` + chat + `,"choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null}],"pagelight":{"token_ids":[5]}}`,
			`{"id":"i",` + chat + `,"choices":[{"index":0,"delta":{"content":"<é>"},"logprobs":null,"finish_reason":null}],"pagelight":{"token_ids":[6]}}`,
			`{"id":"i",` + chat + `,"choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":"stop","stop_reason":"END"}],"pagelight":{"token_ids":[7,2],"timing":{"queued_ms":1.5,"first_token_ms":20,"decode_ms":1000},"place":"tab","stop_reason":"END"}}`,
		}},
		{"completion with the extension", Call{Endpoint: Completions, Ignored: []string{"x"}}, "server", []string{
			`{"id":"i",` + text + `,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null}],"pagelight":{"token_ids":[5],"ignored":["x"]}}`,
			`{"id":"i",` + text + `,"choices":[{"index":0,"text":"<é>","logprobs":null,"finish_reason":null}],"pagelight":{"token_ids":[6]}}`,
			`{"id":"i",` + text + `,"choices":[{"index":0,"text":"!","logprobs":null,"finish_reason":"stop","stop_reason":"END"}],"pagelight":{"token_ids":[7,2],"timing":{"queued_ms":1.5,"first_token_ms":20,"decode_ms":1000},"place":"server","stop_reason":"END"}}`,
		}},
	} {
		r := NewReply(&c.call, "i", "m", c.place, created)
		var got []string
		for _, ev := range answer() {
			if err := r.Check(t.Context()); err == nil {
				t.Errorf("%s: finished early", c.name)
			}
			for _, chunk := range r.Chunks(Event{Event: ev}) {
				b, err := Marshal(chunk)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(b))
			}
		}
		if g, w := strings.Join(got, "\n"), strings.Join(c.want, "\n"); g != w {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, g, w)
		}
		if err := r.Check(t.Context()); err != nil || r.Usage().TotalTokens != 7 {
			t.Errorf("%s: %v, %+v", c.name, err, r.Usage())
		}
	}
}

func TestFinalChunkWithoutTextHasAnEmptyDelta(t *testing.T) {
	t.Parallel()
	r := NewReply(&Call{Endpoint: ChatCompletions}, "i", "m", "", created)
	chunks := r.Chunks(Event{Event: engine.Event{FinishReason: engine.FinishLength}})
	b, err := Marshal(chunks[len(chunks)-1].Choices)
	if want := `[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]`; err != nil || len(chunks) != 2 || string(b) != want {
		t.Errorf("got %d chunks, %s, %v", len(chunks), b, err)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[Endpoint]string{
		ChatCompletions: `{"id":"i","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"<é>!","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":"END"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}}`,
		Completions:     `{"id":"i","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,"text":"<é>!","logprobs":null,"finish_reason":"stop","stop_reason":"END"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}}`,
	} {
		r := NewReply(&Call{Endpoint: endpoint, IncludeUsage: true}, "i", "m", "", created)
		for _, ev := range answer() {
			r.Add(Event{Event: ev})
		}
		if b, err := Marshal(r.Completion()); err != nil || string(b) != want {
			t.Errorf("got %s, %v\nwant %s", b, err, want)
		}
	}
}

func TestErrorFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{
			&engine.ContextLengthError{PromptTokens: 90, MaxTokens: 20, MaxModelLen: 100}, 400,
			`{"message":"this model's maximum context length is 100 tokens, but 110 were requested (90 in the prompt, 20 for the answer)","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}`,
		},
		{&engine.ParamError{Field: "top_k", Reason: "no"}, 400, `{"message":"top_k: no","type":"invalid_request_error","param":"top_k","code":"invalid_value"}`},
		{fmt.Errorf("submit: %w", engine.ErrClosed), 503, `{"message":"submit: engine is closed","type":"service_unavailable","param":null,"code":"engine_closed"}`},
		{fmt.Errorf("%w: reset", engine.ErrDeviceLost), 500, `{"message":"device lost: reset","type":"server_error","param":null,"code":"device_lost"}`},
		{
			&engine.MemoryError{What: "weights", Need: 10, Have: 5, Err: engine.ErrOutOfMemory}, 503,
			`{"message":"not enough memory for the weights: needs 10 bytes, 5 are available","type":"service_unavailable","param":null,"code":"not_enough_memory","need":10,"have":5}`,
		},
		{fmt.Errorf("submit: %w", engine.ErrQueueFull), 429, `{"message":"submit: the waiting queue is full; try again later","type":"rate_limit_error","param":null,"code":"queue_full"}`},
		{engine.ErrNoChatTemplate, 400, `{"message":"this model has no chat template: use a plain prompt","type":"invalid_request_error","param":null,"code":"invalid_value"}`},
		{engine.ErrNoTokenizer, 400, `{"message":"this model has no tokenizer: use token ids","type":"invalid_request_error","param":null,"code":"invalid_value"}`},
		{&engine.TemplateError{File: "x.jinja", Err: errors.New("limit exceeded")}, 500, `{"message":"x.jinja: the model's chat template cannot be used: limit exceeded","type":"server_error","param":null,"code":"error"}`},
		{engine.ErrOutOfMemory, 503, `{"message":"out of device memory","type":"service_unavailable","param":null,"code":"not_enough_memory"}`},
		{engine.ErrNoAdapter, 503, `{"message":"no adapter","type":"service_unavailable","param":null,"code":"no_adapter"}`},
		{context.Canceled, 499, `{"message":"the request was cancelled","type":"cancelled","param":null,"code":"cancelled"}`},
		{context.DeadlineExceeded, 504, `{"message":"the request took too long","type":"server_error","param":null,"code":"timeout"}`},
		{NewError(401, "invalid_api_key", "", "no"), 401, `{"message":"no","type":"authentication_error","param":null,"code":"invalid_api_key"}`},
		{&panicError{"prompt", nil}, 500, `{"message":"internal error; the server's log says more","type":"server_error","param":null,"code":"error"}`},
		{errors.New("logits hold a NaN"), 500, `{"message":"logits hold a NaN","type":"server_error","param":null,"code":"error"}`},
	} {
		status, e := ErrorFor(c.err)
		if b, err := Marshal(e); err != nil || status != c.status || string(b) != c.want {
			t.Errorf("%v: got %d %s, want %d %s", c.err, status, b, c.status, c.want)
		}
	}
}

func TestNewID(t *testing.T) {
	t.Parallel()
	a, b := NewID(ChatCompletions), NewID(Completions)
	if len(a) != len("chatcmpl-")+32 || !strings.HasPrefix(a, "chatcmpl-") || !strings.HasPrefix(b, "cmpl-") || a[9:] == b[5:] {
		t.Errorf("got %q, %q", a, b)
	}
}
