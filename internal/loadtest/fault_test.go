package loadtest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		plan  plan
		kind  string
		words string
	}{
		"message":      {plan{status: 400, body: `{"error":{"message":"too long","code":"context_length_exceeded"}}`}, "http_400", "too long"},
		"old message":  {plan{status: 404, body: `{"object":"error","message":"no such model"}`}, "http_404", "no such model"},
		"detail":       {plan{status: 422, body: `{"detail":[{"loc":["body"]}]}`}, "http_422", "body"},
		"text":         {plan{status: 502, body: "<h1>Bad\n\x1b[31mGateway</h1>"}, "http_502", "<h1>Bad  [31mGateway</h1>"},
		"nothing":      {plan{status: 503}, "http_503", "Service Unavailable"},
		"redirect":     {plan{status: 307, header: map[string]string{"Location": "http://elsewhere/v1/completions"}}, "http_307", "elsewhere"},
		"busy":         {plan{status: 429, body: `{"error":"queue full"}`}, "http_429", "queue full"},
		"cut":          {plan{tokens: 2, gap: msec, cut: true}, KindDisconnect, "broke"},
		"cut at once":  {plan{cut: true}, KindDisconnect, "broke"},
		"short":        {plan{tokens: 2, then: ": bye\n\n"}, KindDisconnect, "before the answer did"},
		"error event":  {plan{tokens: 2, then: `data: {"error":{"message":"device lost"}}` + "\n\n"}, KindStream, "device lost"},
		"named error":  {plan{tokens: 2, then: "event: error\ndata: out of luck\n\n"}, KindStream, "out of luck"},
		"old error":    {plan{tokens: 2, then: `data: {"object":"error","message":"aborted"}` + "\n\n"}, KindStream, "aborted"},
		"no JSON":      {plan{tokens: 2, then: "data: {\n\n"}, KindProtocol, "no chunk"},
		"no stream":    {plan{header: map[string]string{"Content-Type": "application/json"}, body: `{"choices":[]}`}, KindProtocol, "application/json"},
		"empty":        {plan{then: `data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"}, KindEmpty, `"stop"`},
		"only done":    {plan{}, KindEmpty, "none"},
		"slow":         {plan{first: time.Hour, tokens: 1}, KindTimeout, "too long"},
		"stuck within": {plan{first: msec, gap: time.Hour, tokens: 2}, KindTimeout, "too long"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{answer: always(c.plan)}
			out, s := measure(t, Config{Client: f.start(t, Completions), Requests: 2, Concurrency: 1, RequestTimeout: time.Minute})
			if s.Failed != 2 || s.Succeeded != 0 || len(s.Errors) != 1 || s.Errors[0].Count != 2 || s.Errors[0].Kind != c.kind || !strings.Contains(s.Errors[0].Example, c.words) {
				t.Errorf("%s: %+v", name, s.Errors)
			}
			if s.TTFT != nil || s.E2EL != nil || s.OutputTokens != 0 || len(f.bodies) != 2 {
				t.Errorf("%s: failures count in %+v", name, s)
			}
			if c.kind == KindTimeout && out.Results[0].End != time.Minute {
				t.Errorf("%s: ended at %s", name, out.Results[0].End)
			}
		})
	}
}

func TestNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{tokens: 1}), refuse: true}
		_, s := measure(t, Config{Client: f.start(t, Completions), Requests: 3, Concurrency: 1})
		if s.Failed != 3 || s.Errors[0].Kind != KindConnect || s.Errors[0].Count != 3 {
			t.Errorf("%+v", s.Errors)
		}
	})
}

func TestMixedFaultsAreCountedByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(n int, _ *http.Request, _ map[string]any) plan {
			switch n % 4 {
			case 0:
				return plan{status: 429, body: `{"error":{"message":"queue full"}}`}
			case 1:
				return plan{tokens: 3, cut: true}
			case 2:
				return plan{status: 429}
			}
			return plan{first: time.Second, tokens: 2, gap: time.Second}
		}}
		_, s := measure(t, Config{Client: f.start(t, Completions), Requests: 8, Concurrency: 1})
		if s.Succeeded != 2 || s.Failed != 6 || s.Limited != 4 || s.Retries != 0 || len(s.Errors) != 2 {
			t.Fatalf("%+v", s)
		}
		if s.Errors[0] != (Faults{"http_429", 4, "queue full"}) || s.Errors[1].Kind != KindDisconnect || s.Errors[1].Count != 2 {
			t.Errorf("%+v", s.Errors)
		}
		exactly(t, "TTFT of those that succeeded", s.TTFT, 2, 1000)
	})
}

// TestRetryAfter429 waits as long as the server says and counts the wait into the latency.
func TestRetryAfter429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := map[string]string{"Retry-After": "3"}
		f := &fake{answer: func(n int, _ *http.Request, _ map[string]any) plan {
			if n < 2 {
				return plan{status: 429, header: busy}
			}
			return plan{first: time.Second, tokens: 1}
		}}
		c := f.start(t, Completions)
		_, s := measure(t, Config{Client: c, Requests: 1, Concurrency: 1, MaxRetries: 2})
		exactly(t, "TTFT", s.TTFT, 1, 7000)
		if s.Failed != 0 || s.Retries != 2 || s.Limited != 2 {
			t.Errorf("%+v", s)
		}
		f.answer = always(plan{status: 429, header: map[string]string{"Retry-After": time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat)}})
		_, s = measure(t, Config{Client: c, Requests: 1, Concurrency: 1, MaxRetries: 1})
		if s.Failed != 1 || s.Retries != 1 || s.Limited != 2 || s.Seconds < 4 || s.Seconds > 5 || s.Errors[0].Kind != "http_429" {
			t.Errorf("a date: %+v", s)
		}
		// A request's time runs on while it waits, and what is told is that it was over.
		_, s = measure(t, Config{Client: c, Requests: 1, Concurrency: 1, MaxRetries: 100, RequestTimeout: 1500 * msec})
		if s.Failed != 1 || s.Errors[0].Kind != KindTimeout || s.Seconds != 1.5 {
			t.Errorf("a time that is over: %+v", s)
		}
	})
}

func TestStreamsOfOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: time.Second, gap: time.Second, tokens: 3, noUsage: true, noDone: true})}
		_, s := measure(t, Config{Client: f.start(t, Completions), Requests: 2, Concurrency: 1})
		if s.Succeeded != 2 || s.OutputTokens != 6 || s.InputTokens != 20 || s.CachedTokens != nil || len(s.Notes) != 2 {
			t.Errorf("%+v", s)
		}
		exactly(t, "TPOT", s.TPOT, 2, 1000)
	})
}

// TestWhatIsOutput: a chunk counts when it may carry a token.
func TestWhatIsOutput(t *testing.T) {
	for data, want := range map[string]bool{
		`{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}`:  false,
		`{"choices":[{"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}`: true,
		`{"choices":[{"delta":{"content":""},"finish_reason":null}]}`:                     true,
		`{"choices":[{"delta":{"content":null},"finish_reason":null}]}`:                   false,
		`{"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}`:                   false,
		`{"choices":[{"delta":{},"finish_reason":"stop"}]}`:                               false,
		`{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`:                true,
		`{"choices":[{"delta":{"reasoning_content":"a"},"finish_reason":null}]}`:          true,
		`{"choices":[{"delta":{"reasoning":"a"},"finish_reason":null}]}`:                  true,
		`{"choices":[{"delta":{"tool_calls":[{"index":0}]},"finish_reason":null}]}`:       true,
		`{"choices":[{"delta":{"tool_calls":[]},"finish_reason":null}]}`:                  false,
		`{"choices":[{"text":"","finish_reason":null}]}`:                                  true,
		`{"choices":[{"text":"","finish_reason":"stop"}]}`:                                false,
		`{"choices":[{"text":"a","finish_reason":"length"}]}`:                             true,
		`{"choices":[],"usage":{"prompt_tokens":1}}`:                                      false,
	} {
		x := Exchange{}
		if !x.take("", []byte(data), time.Second) || (x.Chunks == 1) != want || (x.First == time.Second) != want {
			t.Errorf("%s: %d chunks, first at %s, %v", data, x.Chunks, x.First, x.Err)
		}
	}
}

// TestTheEndIsNoToken: an empty chunk at the end moves the end, not the gaps.
func TestTheEndIsNoToken(t *testing.T) {
	x := Exchange{}
	for i, data := range []string{
		`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":null}}]}`,
		`{"choices":[{"delta":{"content":"b"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"completion_tokens":3}}`,
	} {
		x.take("", []byte(data), time.Duration(i+1)*time.Second)
	}
	if x.First != 2*time.Second || len(x.Gaps) != 1 || x.Gaps[0] != 2*time.Second || x.Last != 5*time.Second || x.FinishReason != "stop" || x.OutputTokens() != 3 {
		t.Errorf("%+v", x)
	}
}

// TestConnections: one is used again after an answer, and a server that does not end its answer after [DONE] holds up
// nobody for long.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: time.Second, tokens: 2, linger: 10 * msec})}
		_, s := measure(t, Config{Client: f.start(t, Completions), Requests: 5, Concurrency: 1})
		exactly(t, "E2EL", s.E2EL, 5, 1000)
		if f.dialled != 1 {
			t.Errorf("%d connections for 5 requests", f.dialled)
		}
		f = &fake{answer: always(plan{first: time.Second, tokens: 2, linger: time.Hour})}
		_, s = measure(t, Config{Client: f.start(t, Completions), Requests: 2, Concurrency: 1})
		exactly(t, "E2EL", s.E2EL, 2, 1000)
		if s.Seconds != 2.2 || f.dialled != 2 {
			t.Errorf("%g s, %d connections", s.Seconds, f.dialled)
		}
	})
}

func TestAddresses(t *testing.T) {
	for base, want := range map[string]string{
		"http://127.0.0.1:8080":       "http://127.0.0.1:8080/v1/completions",
		"http://127.0.0.1:8080/":      "http://127.0.0.1:8080/v1/completions",
		"https://h/v1":                "https://h/v1/completions",
		"https://h/a/v1/":             "https://h/a/v1/completions",
		"http://[::1]:80":             "http://[::1]:80/v1/completions",
		"127.0.0.1:8080":              "",
		"localhost":                   "",
		"ftp://h":                     "",
		"http://user:pass@h":          "",
		"http://h?x=1":                "",
		"http://":                     "",
		"http://127.0.0.1:8080/\x7f/": "",
	} {
		c, err := NewClient(ClientOptions{BaseURL: base, Backend: Completions})
		if (err == nil) != (want != "") || err == nil && c.URL() != want {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestFindModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{other: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				_, _ = io.WriteString(w, `{"data":[{"id":"a","max_model_len":8},{"id":"b"}]}`)
				return
			}
			http.NotFound(w, r)
		}}
		c := f.start(t, Completions)
		c.opt.Model = ""
		entry, err := c.FindModel(t.Context())
		if err != nil || c.Model() != "a" || string(entry) != `{"id":"a","max_model_len":8}` {
			t.Errorf("%s, %v", entry, err)
		}
		c.opt.Model = "b"
		if entry, err = c.FindModel(t.Context()); err != nil || c.Model() != "b" || string(entry) != `{"id":"b"}` {
			t.Errorf("%s, %v", entry, err)
		}
		c.opt.Model = "c" // a server may serve what it does not list
		if entry, err = c.FindModel(t.Context()); err != nil || c.Model() != "c" || entry != nil {
			t.Errorf("%s, %v", entry, err)
		}
		if _, err = c.GetJSON(t.Context(), "/api/info"); err == nil {
			t.Error("no error for a document that is not there")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = c.FindModel(ctx); err == nil {
			t.Error("no error after the context's end")
		}
	})
}
