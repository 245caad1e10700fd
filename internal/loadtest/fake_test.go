package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// plan is how a fake server answers one request.
type plan struct {
	status     int // 0 is 200
	header     map[string]string
	body       string // of another status than 200, or in place of the stream
	role       bool   // begin with a chunk that only names the role, at once
	first, gap time.Duration
	tokens     int
	cached     int
	noUsage    bool
	noDone     bool
	cut        bool   // break the connection after the tokens
	then       string // raw text after the tokens, in place of the end
	linger     time.Duration
}

// fake is a server over pipes: no bytes leave the process, and in a bubble of synctest its timing is exact.
type fake struct {
	t      *testing.T
	answer func(n int, r *http.Request, body map[string]any) plan // n counts the generating requests from 0
	other  http.HandlerFunc                                       // every other path; nil is 404

	mu      sync.Mutex
	bodies  []map[string]any
	running int
	most    int
	conns   chan net.Conn
	dialled int
	refuse  bool
	closed  chan struct{}
	closing sync.Once
}

func (f *fake) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *fake) Close() error {
	f.closing.Do(func() { close(f.closed) })
	return nil
}

func (f *fake) Addr() net.Addr { return &net.TCPAddr{} }

func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	f.mu.Lock()
	f.dialled++
	refuse := f.refuse
	f.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	a, b := net.Pipe()
	select {
	case f.conns <- b:
		return a, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// start serves and gives a client.
func (f *fake) start(t *testing.T, backend Backend) *Client {
	t.Helper()
	f.t, f.conns, f.closed = t, make(chan net.Conn), make(chan struct{})
	srv := &http.Server{Handler: f, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error)
	go func() { served <- srv.Serve(f) }()
	transport := &http.Transport{DialContext: f.dial, MaxIdleConnsPerHost: 100, DisableCompression: true}
	c, err := NewClient(ClientOptions{BaseURL: "http://fake/v1/", Backend: backend, Model: "m", APIKey: "key", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return c
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/completions" && r.URL.Path != "/v1/chat/completions" {
		if f.other == nil {
			http.NotFound(w, r)
			return
		}
		f.other(w, r)
		return
	}
	if got := r.Header.Get("Authorization"); got != "Bearer key" {
		f.t.Errorf("Authorization is %q", got)
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		f.t.Errorf("the request's body: %v", err)
	}
	f.mu.Lock()
	n := len(f.bodies)
	f.bodies = append(f.bodies, body)
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	f.play(w, r, f.answer(n, r, body))
}

func (f *fake) play(w http.ResponseWriter, r *http.Request, p plan) {
	for k, v := range p.header {
		w.Header().Set(k, v)
	}
	if p.status != 0 {
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.body)
		return
	}
	if p.body != "" {
		_, _ = io.WriteString(w, p.body)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	chat := r.URL.Path == "/v1/chat/completions"
	send := func(s string) {
		_, _ = io.WriteString(w, s)
		w.(http.Flusher).Flush()
	}
	send(": hello\n\n")
	if p.role {
		send(`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n")
	}
	for i := range p.tokens {
		wait := p.gap
		if i == 0 {
			wait = p.first
		}
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			return
		}
		end := "null"
		if i == p.tokens-1 {
			end = `"length"`
		}
		if p.cut || p.then != "" {
			end = "null"
		}
		if chat {
			send(fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":%s}]}`+"\n\n", end))
		} else {
			send(fmt.Sprintf(`data: {"choices":[{"index":0,"text":"x","finish_reason":%s}]}`+"\n\n", end))
		}
	}
	switch {
	case p.cut:
		panic(http.ErrAbortHandler)
	case p.then != "":
		send(p.then)
		return
	}
	if !p.noUsage {
		details := ""
		if p.cached > 0 {
			details = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, p.cached)
		}
		send(fmt.Sprintf(`data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":%d%s}}`+"\n\n", p.tokens, details))
	}
	if !p.noDone {
		send("data: [DONE]\n\n")
	}
	select {
	case <-time.After(p.linger):
	case <-r.Context().Done():
	}
}

// always answers every request in the same way.
func always(p plan) func(int, *http.Request, map[string]any) plan {
	return func(int, *http.Request, map[string]any) plan { return p }
}

// text is a source of one prompt.
type text string

func (s text) Request(int) Request { return Request{Text: string(s), Input: 10, Output: 5} }

// measure runs a measurement and sums it up.
func measure(t *testing.T, cfg Config) (*Outcome, *Summary) {
	t.Helper()
	if cfg.Source == nil {
		cfg.Source = text("hello")
	}
	out, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out, Summarize(out, []float64{90, 99}, nil)
}
