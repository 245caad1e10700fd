package openai

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pagelight/pagelight/engine"
)

func FuzzChatRequest(f *testing.F)       { fuzzParse(f, ChatCompletions) }
func FuzzCompletionRequest(f *testing.F) { fuzzParse(f, Completions) }

// checkRefusal checks an error of a parser.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var e *StatusError
	if !errors.As(err, &e) || e.Status != 400 || e.Detail.Message == "" || e.Detail.Code == nil || !utf8.ValidString(e.Detail.Message) {
		t.Fatalf("got %#v", err)
	}
	if _, err := Marshal(NewErrorMessage("", err)); err != nil {
		t.Fatal(err)
	}
}

// fuzzParse checks that a body is either refused with a 400 or gives requests that an engine can trust, and that the
// engine's answer can be told.
func fuzzParse(f *testing.F, endpoint Endpoint) {
	f.Fuzz(func(t *testing.T, body []byte) {
		call, err := Parse(endpoint, body)
		if err != nil {
			if call != nil {
				t.Errorf("got %+v and %v", call, err)
			}
			checkRefusal(t, err)
			return
		}
		for _, r := range NewReply(call, "i", "m", "", time.Time{}).requests() {
			checkRequest(t, endpoint, &r)
		}
		if p := call.Request.Params; p.PromptOnly && !call.Echo || p.MaxTokens == 0 && !p.PromptOnly && endpoint == Completions {
			t.Errorf("max_tokens %d, prompt only %v, echo %v", p.MaxTokens, p.PromptOnly, call.Echo)
		}
		if !slices.IsSorted(call.Ignored) {
			t.Errorf("ignored %q", call.Ignored)
		}
		for _, c := range []byte(IgnoredHeader(call.Ignored)) {
			if c < ' ' || c > '~' {
				t.Errorf("header byte %#x", c)
			}
		}
		checkReply(t, call)
	})
}

func checkRequest(t *testing.T, endpoint Endpoint, r *engine.Request) {
	t.Helper()
	given := 0
	for _, is := range []bool{r.Messages != nil, r.Prompt != nil, r.TokenIDs != nil} {
		if is {
			given++
		}
	}
	if given != 1 || (r.Messages != nil) != (endpoint == ChatCompletions) || r.Messages != nil && len(r.Messages) == 0 || r.TokenIDs != nil && len(r.TokenIDs) == 0 {
		t.Errorf("messages %v, prompt %v, ids %v", r.Messages, r.Prompt, r.TokenIDs)
	}
	for _, m := range r.Messages {
		if !slices.Contains([]string{"system", "user", "assistant"}, m.Role) || !utf8.ValidString(m.Content) {
			t.Errorf("message %q", m)
		}
	}
	p := &r.Params
	for _, id := range slices.Concat(r.TokenIDs, p.StopTokenIDs, p.AllowedTokenIDs) {
		if id < 0 {
			t.Errorf("id %d", id)
		}
	}
	in := func(name string, v *float64, lo, hi float64) {
		if v != nil && (math.IsNaN(*v) || *v < lo || *v > hi) {
			t.Errorf("%s %v", name, *v)
		}
	}
	in("temperature", p.Temperature, 0, 2)
	in("top_p", p.TopP, math.SmallestNonzeroFloat64, 1)
	in("min_p", p.MinP, 0, 1)
	in("presence_penalty", p.PresencePenalty, -2, 2)
	in("frequency_penalty", p.FrequencyPenalty, -2, 2)
	in("repetition_penalty", p.RepetitionPenalty, math.SmallestNonzeroFloat64, math.MaxFloat64)
	for id, v := range p.LogitBias {
		if in("logit_bias", &v, -100, 100); id < 0 {
			t.Errorf("bias of %d", id)
		}
	}
	for _, n := range []*int{p.Logprobs, p.PromptLogprobs} {
		if n != nil && (*n < 0 || *n > engine.MaxLogprobs) {
			t.Errorf("logprobs %d", *n)
		}
	}
	if p.TopK != nil && *p.TopK < -1 || p.MaxTokens < 0 || p.MinTokens < 0 || p.MaxTokens > 0 && p.MinTokens > p.MaxTokens || r.N < 0 || r.N > maxAnswers {
		t.Errorf("top_k %v, max_tokens %d, min_tokens %d, n %d", p.TopK, p.MaxTokens, p.MinTokens, r.N)
	}
	if len(p.Stop) > maxStopStrings || slices.Contains(p.Stop, "") || len(p.BadWords) > maxBadWords || slices.Contains(p.BadWords, "") {
		t.Errorf("stop %q, bad words %q", p.Stop, p.BadWords)
	}
	if p.AllowedTokenIDs != nil && len(p.AllowedTokenIDs) == 0 {
		t.Error("no token is allowed")
	}
}

// checkReply answers a call in both ways with hard tokens: no probability, half a character.
func checkReply(t *testing.T, call *Call) {
	t.Helper()
	whole, stream := NewReply(call, "i", "m", "", time.Time{}), NewReply(call, "i", "m", "tab", time.Time{})
	encode := func(v any) {
		if _, err := Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	hard := engine.TokenLogprob{ID: 5, Text: "\ufffd", Bytes: []byte{0xe4}, Logprob: math.Inf(-1), Rank: 7, Top: []engine.TokenLogprob{{ID: 6, Text: "\ufffd", Bytes: []byte{0xe5}, Rank: 1}}}
	for prompt := range max(1, len(call.Prompts)) {
		for i := range max(1, call.Request.N) {
			ev := Event{prompt, engine.Event{Index: i, Text: "x", TokenIDs: []int32{5}, FinishReason: engine.FinishStop, StopReason: int32(5)}}
			if call.Request.Params.Logprobs != nil {
				ev.Logprobs = []engine.TokenLogprob{hard}
			}
			if i == 0 && call.Request.Params.PromptLogprobs != nil {
				ev.PromptLogprobs = []engine.TokenLogprob{{ID: 4, Text: "a", Bytes: []byte("a")}, hard}
			}
			whole.Add(ev)
			for _, c := range stream.Chunks(ev) {
				encode(c)
			}
		}
	}
	encode(whole.Completion())
	if err := errors.Join(whole.Check(t.Context()), stream.Check(t.Context())); err != nil {
		t.Error(err)
	}
}

func FuzzTokenizeRequests(f *testing.F) {
	f.Add([]byte(`{"prompt":"a","add_special_tokens":false,"return_token_strs":true}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}`))
	f.Add([]byte(`{"tokens":[1,2,2147483647],"model":"m"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if call, err := ParseTokenize(body); err != nil {
			checkRefusal(t, err)
		} else if (call.Prompt == nil) == (len(call.Messages) == 0) || call.AddSpecial && call.Prompt == nil {
			t.Errorf("got %+v", call)
		}
		if call, err := ParseDetokenize(body); err != nil {
			checkRefusal(t, err)
		} else if slices.ContainsFunc(call.Tokens, func(id int32) bool { return id < 0 }) {
			t.Errorf("got %v", call.Tokens)
		}
	})
}
