package openai

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// countingEngine counts what runs, and keeps the ids of requests.
type countingEngine struct {
	fakeEngine
	running atomic.Int64
	ids     chan string
}

func (e *countingEngine) Generate(ctx context.Context, r engine.Request) iter.Seq2[engine.Event, error] {
	return func(yield func(engine.Event, error) bool) {
		e.running.Add(1)
		defer e.running.Add(-1)
		if e.ids != nil {
			e.ids <- r.ID
		}
		e.fakeEngine.Generate(ctx, r)(yield)
	}
}

func completionCall(t *testing.T, body string) *Call {
	t.Helper()
	call, err := ParseCompletion([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return call
}

func TestRunGivesEachPromptItsIndexAndID(t *testing.T) {
	t.Parallel()
	eng := &countingEngine{ids: make(chan string, 3)}
	call := completionCall(t, `{"prompt":["ab","c","de"],"echo":true,"stream_options":{"include_usage":true}}`)
	r := NewReply(call, "x", "m", "", created)
	texts, last := map[int]string{}, Chunk{}
	for ev, err := range r.Run(t.Context(), eng) {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Chunks(ev) {
			last = c
			for _, choice := range c.Choices {
				texts[choice.Index] += *choice.Text
			}
		}
	}
	if want := map[int]string{0: "abab", 1: "cc", 2: "dede"}; !reflect.DeepEqual(texts, want) {
		t.Errorf("got %v", texts)
	}
	if len(last.Choices) != 0 || !strings.Contains(string(last.Usage), "prompt_tokens") || r.Check(t.Context()) != nil {
		t.Errorf("last %+v, %v", last, r.Check(t.Context()))
	}
	ids := []string{<-eng.ids, <-eng.ids, <-eng.ids}
	if slices.Sort(ids); !slices.Equal(ids, []string{"x-0", "x-1", "x-2"}) {
		t.Errorf("ids %q", ids)
	}
}

func TestRunEndsEverythingBeforeItReturns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, prompts string
		leave         bool // after the first event
		status        int
	}{
		{"an error", `["slow","fail","slow"]`, false, 400},
		{"a panic", `["slow","panic"]`, false, 500},
		{"a reader that leaves", `["slow","slow","slow"]`, true, 200},
		{"one prompt", `["slow"]`, true, 200},
	} {
		eng := &countingEngine{}
		r := NewReply(completionCall(t, `{"prompt":`+c.prompts+`}`), "x", "m", "", created)
		var failed error
		for _, err := range r.Run(t.Context(), eng) {
			if failed = err; c.leave {
				break
			}
		}
		status := 200
		if failed != nil {
			status, _ = ErrorFor(failed)
		}
		if n := eng.running.Load(); n != 0 || status != c.status {
			t.Errorf("%s: %d run, %v", c.name, n, failed)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	eng := &countingEngine{}
	r := NewReply(completionCall(t, `{"prompt":["slow","slow"]}`), "x", "m", "", created)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(gone) })
	for _, err := range r.Run(ctx, eng) {
		_ = err // whatever it is, the reader leaves
	}
	if eng.running.Load() != 0 || !errors.Is(r.Check(ctx), gone) {
		t.Errorf("%d run, %v", eng.running.Load(), r.Check(ctx))
	}
}

func TestRunRefusesWhatCannotBeEchoed(t *testing.T) {
	t.Parallel()
	r := NewReply(completionCall(t, `{"prompt":[1,2],"echo":true}`), "x", "m", "", created)
	for _, err := range r.Run(t.Context(), noText{}) {
		if !errors.Is(err, engine.ErrNoTokenizer) {
			t.Errorf("got %v", err)
		}
		return
	}
	t.Error("no error")
}

type noText struct{ fakeEngine }

func (noText) Detokenize([]int32, bool) (string, error) { return "", engine.ErrNoTokenizer }

// token is a token of probability e^lp.
func token(id int32, text string, bytes string, lp float64, rank int, top ...engine.TokenLogprob) engine.TokenLogprob {
	return engine.TokenLogprob{ID: id, Text: text, Bytes: []byte(bytes), Logprob: lp, Rank: rank, Top: top}
}

func TestTextLogprobsCountCharactersAndKeepTheToken(t *testing.T) {
	t.Parallel()
	at := offset{}
	first := textLogprobs([]engine.TokenLogprob{
		token(1, "a", "a", 0, 0),
		token(2, "é", "é", -1, 1, token(2, "é", "é", -1, 1), token(3, "x", "x", -2, 2)),
		token(4, "\ufffd", "\xe4", math.Inf(-1), 9, token(5, "\ufffd", "\xe5", -0.5, 1), token(6, "\ufffd", "\xe6", -3, 2)),
	}, &at)
	rest := textLogprobs([]engine.TokenLogprob{token(7, "\ufffd", "\xbd", -1, 1), token(8, "\ufffd", "\xa0", -1, 1), token(9, "!", "!", -1, 2)}, &at)
	got, err := Marshal([]*TextLogprobs{first, rest})
	const want = `[{"text_offset":[0,1,2],"token_logprobs":[null,-1,-9999],"tokens":["a","é","�"],"top_logprobs":[null,{"x":-2,"é":-1},{"�":-0.5}]},` +
		`{"text_offset":[2,2,3],"token_logprobs":[-1,-1,-1],"tokens":["�","�","!"],"top_logprobs":[{"�":-1},{"�":-1},{"!":-1}]}]`
	if w := strings.ReplaceAll(want, `\ufffd`, "\ufffd"); err != nil || string(got) != w {
		t.Errorf("got %s, %v\nwant %s", got, err, w)
	}
}

func TestLogprobsOfTokensWithoutTextAreSent(t *testing.T) {
	t.Parallel()
	call, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":1,"prompt_logprobs":0}`))
	if err != nil {
		t.Fatal(err)
	}
	r := NewReply(call, "i", "m", "", created)
	half := engine.Event{
		TokenIDs: []int32{4}, Logprobs: []engine.TokenLogprob{token(4, "\ufffd", "\xe4", -1, 2, token(5, "b", "b", math.Inf(-1), 1))},
		PromptLogprobs: []engine.TokenLogprob{token(1, "a", "a", 0, 0), token(2, "b", "b", -1.5, 3)},
	}
	var got []string
	for _, c := range r.Chunks(Event{Event: half}) {
		b, err := Marshal(struct{ A, B any }{c.Choices[0], c.PromptLogprobs})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b))
	}
	want := []string{
		`{"A":{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null},"B":[null,{"2":{"logprob":-1.5,"rank":3,"decoded_token":"b"}}]}`,
		`{"A":{"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":"` + "\ufffd" + `","logprob":-1,"bytes":[228],"top_logprobs":[{"token":"b","logprob":-9999,"bytes":[98]}]}]},"finish_reason":null},"B":null}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestUsageCountsAPromptOnce(t *testing.T) {
	t.Parallel()
	r := NewReply(&Call{Endpoint: Completions, Request: engine.Request{N: 2}, Prompts: []Prompt{{TokenIDs: []int32{1}}, {TokenIDs: []int32{2}}}}, "i", "m", "", created)
	for prompt := range 2 {
		for i := range 2 {
			// The second answer finds what the first has computed, and is heard first.
			n := 1 - i
			r.Add(Event{prompt, engine.Event{Index: n, Text: fmt.Sprint(prompt, n), FinishReason: engine.FinishStop, Usage: engine.Usage{PromptTokens: 10, CompletionTokens: 3 + n, CachedTokens: 9 * n}}})
		}
	}
	if got, want := r.Usage(), (engine.Usage{PromptTokens: 20, CompletionTokens: 14, TotalTokens: 34}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i, c := range r.Completion().Choices {
		if want := fmt.Sprint(i/2, i%2); c.Index != i || *c.Text != want {
			t.Errorf("%d: got %d %q, want %q", i, c.Index, *c.Text, want)
		}
	}
}

// TestMoreAnswersThanEverFitAreRefused: a full queue, which is worth trying again, is something else.
func TestMoreAnswersThanEverFitAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, field string }{
		{`{"prompt":["a","b","c"],"n":2}`, ""},
		{`{"prompt":"a","n":6}`, ""},
		{`{"prompt":["a","b","c","d"],"n":2}`, "prompt"},
		{`{"prompt":["a","b","c","d","e","f","g"]}`, "prompt"},
		{`{"prompt":["a"],"n":7}`, "n"},
	} {
		eng := &countingEngine{ids: make(chan string, 8)}
		r := NewReply(completionCall(t, c.body), "x", "m", "", created)
		var failed error
		for _, err := range r.Run(t.Context(), roomForSix{eng}) {
			failed = err
		}
		if c.field == "" {
			if failed != nil {
				t.Errorf("%s: %v", c.body, failed)
			}
			continue
		}
		status, e := ErrorFor(failed)
		if failed == nil || status != 400 || e.Param == nil || *e.Param != c.field || !strings.Contains(e.Message, "at most 6") || len(eng.ids) > 0 {
			t.Errorf("%s: %d %+v, %d asked for", c.body, status, e, len(eng.ids))
		}
	}
}

type roomForSix struct{ *countingEngine }

func (roomForSix) Info() engine.Info { return engine.Info{MaxAnswers: 6} }

// TestChatEchoesTheLastMessageOfWhoAnswers, as in vLLM.
func TestChatEchoesTheLastMessageOfWhoAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, text, role string }{
		{`"echo":true,"messages":[{"role":"user","content":"U"},{"role":"assistant","content":"A"}]`, "A|ab", "assistant"},
		{`"echo":true,"messages":[{"role":"assistant","content":"A"},{"role":"user","content":"U"}]`, "|ab", "assistant"},
		{`"echo":true,"add_generation_prompt":false,"messages":[{"role":"user","content":"U"}]`, "U|ab", "user"},
		{`"echo":false,"add_generation_prompt":false,"messages":[{"role":"system","content":"S"}]`, "|ab", "system"},
		{`"messages":[{"role":"assistant","content":"A"}]`, "|ab", "assistant"},
	} {
		want := strings.ReplaceAll(c.text, "|", "")
		call, err := ParseChat([]byte(`{` + c.body + `,"n":2,"logprobs":true,"prompt_logprobs":0}`))
		if err != nil {
			t.Fatal(err)
		}
		whole, stream := NewReply(call, "i", "m", "", created), NewReply(call, "i", "m", "", created)
		texts, roles, chosen := make([]string, 2), make([]string, 2), 0
		for ev, err := range whole.Run(t.Context(), twoAnswers{}) {
			if err != nil {
				t.Fatal(err)
			}
			whole.Add(ev)
		}
		for ev, err := range stream.Run(t.Context(), twoAnswers{}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, chunk := range stream.Chunks(ev) {
				for _, choice := range chunk.Choices {
					roles[choice.Index] += choice.Delta.Role
					if choice.Delta.Content != nil {
						texts[choice.Index] += *choice.Delta.Content
					}
					if lp, ok := choice.Logprobs.(*ChatLogprobs); ok && lp != nil {
						chosen += len(lp.Content)
					}
				}
			}
		}
		if chosen != 4 {
			t.Errorf("%s: %d tokens have probabilities, want the 4 new ones", c.body, chosen)
		}
		for i, choice := range whole.Completion().Choices {
			if choice.Message.Content != want || choice.Message.Role != c.role || texts[i] != want || roles[i] != c.role {
				t.Errorf("%s: answer %d: %+v, streamed %q by %q, want %q by %q", c.body, i, choice.Message, texts[i], roles[i], want, c.role)
			}
		}
	}
}

// twoAnswers says "ab" twice.
type twoAnswers struct{ fakeEngine }

func (twoAnswers) Generate(context.Context, engine.Request) iter.Seq2[engine.Event, error] {
	return func(yield func(engine.Event, error) bool) {
		for _, text := range []string{"a", "b"} {
			for i := range 2 {
				ev := engine.Event{Index: i, Text: text, TokenIDs: []int32{1}, Logprobs: []engine.TokenLogprob{token(1, text, text, -1, 1)}}
				if text == "b" {
					ev.FinishReason = engine.FinishLength
				}
				if i == 0 && text == "a" {
					ev.PromptLogprobs = []engine.TokenLogprob{token(2, "p", "p", 0, 0), token(3, "q", "q", -2, 1)}
				}
				if !yield(ev, nil) {
					return
				}
			}
		}
	}
}
