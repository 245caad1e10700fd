package host

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// start runs Serve; stop is what SIGTERM does, and served gets the error of Serve.
func start(t *testing.T, s *Server) (url string, stop context.CancelFunc, served <-chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	return "http://" + ln.Addr().String(), cancel, done
}

func TestServeStopsAtOnceWhenIdle(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	url, stop, served := start(t, s)
	if resp := post(t, url, `{"prompt":"count 1"}`); resp.status != 200 {
		t.Errorf("status %d", resp.status)
	}
	c := dial(t, url, nil) // an idle connection is told to go
	begun := time.Now()
	stop()
	c.sentAway()
	if err := <-served; err != nil || time.Since(begun) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
		_ = conn.Close()
		t.Error("still listening")
	}
}

func TestDrainLetsRunningRequestsFinish(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	url, stop, served := start(t, s)
	resp := make(chan *response, 1)
	go func() { resp <- post(t, url, `{"prompt":"step","stream":true}`) }()
	eng.gate <- struct{}{}
	r := (<-resp).body
	c := dial(t, url, nil)
	c.generate("a", "step")
	eng.gate <- struct{}{}
	eng.gate <- struct{}{}
	eventually(t, "both run", func() bool { return eng.active.Load() == 2 })

	stop()
	eventually(t, "draining", s.isDraining)
	refused := post(t, url, `{"prompt":"count 1"}`)
	b, err := io.ReadAll(refused.body)
	if err != nil || refused.status != 503 || !strings.Contains(string(b), "shutting_down") || refused.header.Get("Retry-After") == "" || !refused.close {
		t.Errorf("%d %s %v %v", refused.status, b, refused.header, err)
	}
	c.generate("b", "count 1")
	if got := c.until("b"); got["b"] != "503 shutting_down" {
		t.Errorf("got %v", got)
	}
	select {
	case err := <-served:
		t.Fatalf("stopped early: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(eng.gate)
	if got := c.until("a"); !strings.HasSuffix(got["a"], "end|done") {
		t.Errorf("got %v", got)
	}
	c.sentAway()
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("got %q, %v", rest, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestDrainCancelsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{DrainTimeout: 50 * time.Millisecond})
	url, stop, served := start(t, s)
	resp := make(chan *response, 1)
	go func() { resp <- post(t, url, `{"prompt":"wait","stream":true}`) }()
	whole := make(chan *response, 1)
	go func() { whole <- post(t, url, `{"prompt":"hang"}`) }()
	c := dial(t, url, nil)
	c.generate("a", "hang")
	eventually(t, "all run", func() bool { return eng.active.Load() == 3 })
	stop()
	if b, err := io.ReadAll((<-resp).body); err != nil || !strings.Contains(string(b), "shutting_down") || strings.Contains(string(b), "[DONE]") {
		t.Errorf("got %s, %v", b, err)
	}
	if got := <-whole; got.status != 503 {
		t.Errorf("got %d", got.status)
	}
	if got := c.until("a"); got["a"] != "503 shutting_down" {
		t.Errorf("got %v", got)
	}
	c.sentAway()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if eng.active.Load() != 0 {
		t.Error("the engine still works")
	}
}

func TestServeReturnsTheErrorOfTheListener(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	if err := s.Serve(t.Context(), ln); err == nil {
		t.Error("no error")
	}
}

// TestHammer has many clients ask, read partly, disconnect and cancel at random, and the server drain in the end. Every
// answer that arrives whole is right, and the engine ends with nothing to do.
func TestHammer(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{DrainTimeout: time.Second})
	s.keepAlive = time.Millisecond
	url, stop, served := start(t, s)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { hammerHTTP(t, client, url, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	for i := range 4 {
		wg.Go(func() { hammerWebSocket(t, url, rand.New(rand.NewPCG(2, uint64(i)))) })
	}
	wg.Wait()
	eventually(t, "the engine is free", func() bool { return eng.active.Load() == 0 })
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func hammerHTTP(t *testing.T, client *http.Client, url string, rng *rand.Rand) {
	prompts := []string{"count 1", "count 50", "wait", "hang", "lost", "too long", "silent", "late panic"}
	for range 30 {
		prompt, stream := prompts[rng.IntN(len(prompts))], rng.IntN(2) == 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(15))*time.Millisecond)
		if strings.HasPrefix(prompt, "count") {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
		}
		body := fmt.Sprintf(`{"prompt":%q,"max_tokens":100,"stream":%v}`, prompt, stream)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Error(err)
		}
		if resp, err := client.Do(req); err == nil {
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			switch text := string(b); {
			case prompt == "count 50" && stream && (err != nil || strings.Count(text, `"text":`) != 50 || !strings.HasSuffix(text, "data: [DONE]\n\n")),
				prompt == "count 50" && !stream && (err != nil || !strings.Contains(text, "49 50 ")),
				prompt == "too long" && err == nil && resp.StatusCode != 400 && !strings.Contains(text, "context_length_exceeded"):
				t.Errorf("%s: %d %.200s %v", body, resp.StatusCode, text, err)
			}
		} else if strings.HasPrefix(prompt, "count") {
			t.Errorf("%s: %v", body, err)
		}
		cancel()
	}
}
