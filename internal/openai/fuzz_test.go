package openai

import (
	"errors"
	"math"
	"slices"
	"testing"
	"unicode/utf8"
)

func FuzzChatRequest(f *testing.F)       { fuzzParse(f, ChatCompletions) }
func FuzzCompletionRequest(f *testing.F) { fuzzParse(f, Completions) }

// fuzzParse checks that a body is either refused with a 400 or gives a request that an engine can trust.
func fuzzParse(f *testing.F, endpoint Endpoint) {
	f.Fuzz(func(t *testing.T, body []byte) {
		call, err := Parse(endpoint, body)
		if err != nil {
			var e *StatusError
			if call != nil || !errors.As(err, &e) || e.Status != 400 || e.Detail.Message == "" || e.Detail.Code == nil || !utf8.ValidString(e.Detail.Message) {
				t.Fatalf("got %+v, %#v", call, err)
			}
			if _, err := Marshal(NewErrorMessage("", err)); err != nil {
				t.Fatal(err)
			}
			return
		}
		r, p := call.Request, call.Request.Params
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
		for _, id := range r.TokenIDs {
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
		if p.TopK != nil && *p.TopK < -1 || p.MaxTokens < 0 || p.MaxTokens == 0 && endpoint == Completions {
			t.Errorf("top_k %v, max_tokens %d", p.TopK, p.MaxTokens)
		}
		if len(p.Stop) > maxStopStrings || slices.Contains(p.Stop, "") {
			t.Errorf("stop %q", p.Stop)
		}
		if !slices.IsSorted(call.Ignored) {
			t.Errorf("ignored %q", call.Ignored)
		}
		for _, c := range []byte(IgnoredHeader(call.Ignored)) {
			if c < ' ' || c > '~' {
				t.Errorf("header byte %#x", c)
			}
		}
	})
}
