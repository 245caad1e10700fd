package host

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/openai"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeEngine does what the text of a request says:
//
//	"count 3"      the events "1 ", "2 ", "3 "; the last ends by length
//	"wait"         one event, then nothing until it is cancelled
//	"hang"         nothing until it is cancelled
//	"step"         an event for each receive from gate, and the end when gate is closed
//	"too long"     refused by the engine
//	"lost"         one event, then the device is lost
//	"silent"       ends without a reason
//	"panic"        panics; "late panic" after one event
//	"full"         refused, since the queue is
//	"stopped"      one event that a token id ends
//
// With several answers, "count" gives each of them one event in turn. Where probabilities are asked for, each token has
// them: of the prompt those of "ab".
type fakeEngine struct {
	gate   chan struct{}
	active atomic.Int64

	mu   sync.Mutex
	last engine.Request
}

func (e *fakeEngine) Info() engine.Info {
	return engine.Info{Model: "fake", Architecture: "none", MaxModelLen: 128, Adapter: gpu.Info{Kind: gpu.KindCPU, Name: "test"}}
}

func (e *fakeEngine) Stats() engine.Stats {
	return engine.Stats{Running: int(e.active.Load()), Sequences: []engine.SeqStats{}}
}

// The fake's tokens are the characters of a text; 1 and 2 stand around it.

func (e *fakeEngine) TokenizeBare(text string, _ bool) ([]int32, error) {
	if strings.Contains(text, "\x00") {
		return nil, &engine.ParamError{Field: "prompt", Reason: "not understood by the fake"}
	}
	return []int32(text), nil
}

func (e *fakeEngine) Tokenize(text string, special bool) ([]int32, error) {
	ids, err := e.TokenizeBare(text, special)
	return append(append([]int32{1}, ids...), 2), err
}

func (e *fakeEngine) Detokenize(ids []int32, _ bool) (string, error) {
	for i, id := range ids {
		if id > 0x10ffff {
			return "", &engine.ParamError{Field: "token_ids", Reason: fmt.Sprint("unknown at position ", i)}
		}
	}
	return string(ids), nil
}

func (e *fakeEngine) Piece(id int32) (string, bool) { return "▁" + string(id), true }

func (e *fakeEngine) RenderChat(_ context.Context, messages []engine.Message, generate *bool) (string, error) {
	text := ""
	for _, m := range messages {
		text += m.Role[:1] + ":" + m.Content + "\n"
	}
	if generate == nil || *generate {
		text += "a:"
	}
	return text, nil
}

func (e *fakeEngine) lastRequest() engine.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

func textOf(r engine.Request) string {
	switch {
	case r.Prompt != nil:
		return *r.Prompt
	case len(r.TokenIDs) > 0:
		return fmt.Sprint("count ", len(r.TokenIDs))
	}
	return r.Messages[len(r.Messages)-1].Content
}

func (e *fakeEngine) Generate(ctx context.Context, r engine.Request) iter.Seq2[engine.Event, error] {
	return func(yield func(engine.Event, error) bool) {
		e.active.Add(1)
		defer e.active.Add(-1)
		e.mu.Lock()
		e.last = r
		e.mu.Unlock()
		text, n := textOf(r), 0
		say := func(text string, reason engine.FinishReason) bool {
			n++
			ev := engine.Event{Text: text, TokenIDs: []int32{int32(n)}, FinishReason: reason, Usage: fakeUsage(n)}
			if r.Params.Logprobs != nil {
				ev.Logprobs = []engine.TokenLogprob{fakeToken(text, 2, *r.Params.Logprobs)}
			}
			if n == 1 && r.Params.PromptLogprobs != nil {
				ev.PromptLogprobs = fakePrompt(*r.Params.PromptLogprobs)
			}
			if reason != "" {
				ev.Timing = engine.Timing{Queued: time.Millisecond, FirstToken: 2 * time.Millisecond, Decode: 3 * time.Millisecond}
			}
			return yield(ev, nil)
		}
		cancelled := func() { yield(engine.Event{}, fmt.Errorf("step: %w", ctx.Err())) }
		var count int
		switch text {
		case "too long":
			yield(engine.Event{}, &engine.ContextLengthError{PromptTokens: 200, MaxModelLen: 128})
		case "hang":
			<-ctx.Done()
			cancelled()
		case "wait":
			if say("w", "") {
				<-ctx.Done()
				cancelled()
			}
		case "step":
			for {
				select {
				case <-ctx.Done():
					cancelled()
					return
				case _, more := <-e.gate:
					if !more {
						say("end", engine.FinishStop)
						return
					}
					if !say("s", "") {
						return
					}
				}
			}
		case "lost":
			if say("l", "") {
				yield(engine.Event{}, fmt.Errorf("%w: it was reset", engine.ErrDeviceLost))
			}
		case "full":
			yield(engine.Event{}, fmt.Errorf("submit: %w", engine.ErrQueueFull))
		case "stopped":
			yield(engine.Event{Text: "s", TokenIDs: []int32{9}, FinishReason: engine.FinishStop, StopReason: int32(9), Usage: fakeUsage(1)}, nil)
		case "silent":
		case "panic":
			panic("a secret of the engine")
		case "late panic":
			if say("p", "") {
				panic("a secret of the engine")
			}
		default:
			if _, err := fmt.Sscanf(text, "count %d", &count); err != nil {
				yield(engine.Event{}, &engine.ParamError{Field: "prompt", Reason: "not understood by the fake"})
				return
			}
			if r.Params.PromptOnly {
				ev := engine.Event{FinishReason: engine.FinishLength, Usage: fakeUsage(0)}
				if r.Params.PromptLogprobs != nil {
					ev.PromptLogprobs = fakePrompt(*r.Params.PromptLogprobs)
				}
				yield(ev, nil)
				return
			}
			if r.N > 1 {
				sayAll(r.N, count, yield)
				return
			}
			for i := range count {
				reason := engine.FinishReason("")
				if i == count-1 {
					reason = engine.FinishLength
				}
				if ctx.Err() != nil {
					cancelled()
					return
				}
				if !say(fmt.Sprintf("%d ", i+1), reason) {
					return
				}
			}
		}
	}
}

// sayAll counts for several answers: all say "1 ", then all say "2 ".
func sayAll(answers, count int, yield func(engine.Event, error) bool) {
	for k := range count {
		for i := range answers {
			ev := engine.Event{Index: i, Text: fmt.Sprintf("%d ", k+1), TokenIDs: []int32{int32(k + 1)}, Usage: fakeUsage(k + 1)}
			if k == count-1 {
				ev.FinishReason = engine.FinishLength
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func fakeUsage(n int) engine.Usage {
	return engine.Usage{PromptTokens: 7, CompletionTokens: n, TotalTokens: 7 + n, CachedTokens: 4}
}

// fakePrompt is the prompt "ab".
func fakePrompt(alternatives int) []engine.TokenLogprob {
	return []engine.TokenLogprob{{ID: 97, Text: "a", Bytes: []byte("a")}, fakeToken("b", 30, alternatives)}
}

// fakeToken is a token of the given rank with alternatives "A", "B" and so on.
func fakeToken(text string, rank, alternatives int) engine.TokenLogprob {
	t := engine.TokenLogprob{ID: 100, Text: text, Bytes: []byte(text), Logprob: -float64(rank), Rank: rank}
	for i := range alternatives {
		name := string(rune('A' + i))
		t.Top = append(t.Top, engine.TokenLogprob{ID: int32(65 + i), Text: name, Bytes: []byte(name), Logprob: -1 - float64(i)/4, Rank: i + 1})
	}
	return t
}

var _ Engine = (*engine.Engine)(nil)

// newTestServer makes a server whose answers are the same each time.
func newTestServer(t *testing.T, cfg Config) (*Server, *fakeEngine) {
	t.Helper()
	eng := &fakeEngine{gate: make(chan struct{})}
	if cfg.Engine == nil {
		cfg.Engine = eng
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.newID = func(e openai.Endpoint) string { return "id-of-" + string(e) }
	s.newRequestID = func() string { return "req_test" }
	s.now = func() time.Time { return time.Unix(1700000000, 0) }
	s.created = s.now()
	return s, eng
}

func serve(t *testing.T, s *Server) string {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		s.end(errDraining)
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// eventually waits until a condition holds, for longer than it can take on a busy machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, 20*time.Second, what, ok)
}

func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", limit, what)
}

func testFiles() fstest.MapFS {
	at := time.Unix(1700000000, 0)
	file := func(text string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(text), Mode: 0o644, ModTime: at}
	}
	return fstest.MapFS{
		"index.html": file("<!doctype html>page"), "app.js": file("console.log('plain')"), "app.js.br": file("js in brotli"), "app.js.gz": file("js in gzip"),
		"dist/engine.wasm": file("\x00asm plain"), "dist/engine.wasm.gz": file("wasm in gzip"), "dist/index.html": file("dist"), "style.css": file("a{}"),
		"app.3fa94c1b.js": file("hashed"), ".env": file("secret"), "dist/.gitkeep": file(""), "empty/x": file("x"), "README": file("read me"), "odd name.txt": file("odd"),
	}
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{MaxBodyBytes: -1},
		{DrainTimeout: -1},
		{ServedModelNames: []string{""}},
		{AllowedOrigins: []string{"https://a.example/path"}},
		{AllowedOrigins: []string{"https://*.example"}},
		{AllowedOrigins: []string{""}},
		{AllowedOrigins: []string{"a b"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v: accepted", cfg)
		}
	}
}

func TestHealthFollowsTheEngine(t *testing.T) {
	t.Parallel()
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		return fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String()))
	}
	check := func(path, want string) {
		t.Helper()
		if got := get(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	check("/health", `503 {"status":"loading"}`)
	s.SetProgress(engine.Progress{Phase: engine.PhaseUpload, Done: 1, Total: 2, Name: "layer 0"})
	check("/health", `503 {"status":"loading","phase":"upload","done":1,"total":2,"name":"layer 0"}`)
	check("/v1/models", `503 {"error":{"message":"the model is loading (upload)","type":"service_unavailable","param":null,"code":"loading"}}`)
	s.SetFailed(&engine.MemoryError{What: "weights", Need: 9, Have: 5})
	const memory = `{"message":"not enough memory for the weights: needs 9 bytes, 5 are available","type":"service_unavailable","param":null,"code":"not_enough_memory","need":9,"have":5}}`
	check("/health", `503 {"status":"failed","error":`+memory)
	check("/api/info", `503 {"error":`+memory)
	eng := &fakeEngine{}
	s.SetEngine(eng)
	check("/health", `200 {"status":"ok"}`)

	ask := func(prompt string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions", strings.NewReader(`{"prompt":"`+prompt+`"}`)))
	}
	ask("lost")
	check("/health", `503 {"status":"device_lost","error":{"message":"device lost: it was reset","type":"server_error","param":null,"code":"device_lost"}}`)
	ask("too long") // says nothing of the device
	if got := get("/health"); !strings.Contains(got, "device_lost") {
		t.Errorf("got %s", got)
	}
	ask("count 1")
	check("/health", `200 {"status":"ok"}`)
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	check("/health", `503 {"status":"draining"}`)
	check("/v1/models", `503 {"error":{"message":"the server is shutting down","type":"service_unavailable","param":null,"code":"shutting_down"}}`)
}

func TestRequestReachesTheEngineAsWritten(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions", strings.NewReader(`{"prompt":[5,6],"seed":3}`)))
	got := eng.lastRequest()
	if w.Code != 200 || got.ID != "id-of-completions" || len(got.TokenIDs) != 2 || *got.Params.Seed != 3 || got.Params.MaxTokens != 16 {
		t.Errorf("%d, %+v", w.Code, got)
	}
}
