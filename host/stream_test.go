package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// response is an answer whose body is closed with the test.
type response struct {
	status int
	header http.Header
	close  bool // the server will close the connection
	body   *bufio.Reader
}

func post(t *testing.T, url, body string) *response {
	t.Helper()
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return &response{body: bufio.NewReader(strings.NewReader(""))}
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &response{resp.StatusCode, resp.Header, resp.Close, bufio.NewReader(resp.Body)}
}

// line reads up to the next line that has something on it.
func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	for {
		s, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", s, err)
		}
		if s = strings.TrimSpace(s); s != "" {
			return s
		}
	}
}

func TestEachEventIsFlushed(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	resp := make(chan *response, 1)
	go func() { resp <- post(t, serve(t, s), `{"prompt":"step","stream":true}`) }()
	eng.gate <- struct{}{} // the header comes with the first event
	r := (<-resp).body
	for i := range 5 {
		if got := line(t, r); !strings.Contains(got, `"text":"s"`) {
			t.Fatalf("event %d: %s", i, got)
		}
		eng.gate <- struct{}{} // not before the last one arrived
	}
	close(eng.gate)
	for _, want := range []string{`"text":"s"`, `"text":"end"`, "data: [DONE]"} {
		if got := line(t, r); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestKeepAliveWhileWaiting(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	s.keepAlive = 5 * time.Millisecond
	r := post(t, serve(t, s), `{"prompt":"step","stream":true}`).body
	for range 3 {
		if got := line(t, r); got != ": keep-alive" {
			t.Fatalf("got %s", got)
		}
	}
	eng.gate <- struct{}{}
	for {
		if got := line(t, r); strings.Contains(got, `"text":"s"`) {
			break
		} else if got != ": keep-alive" {
			t.Fatalf("got %s", got)
		}
	}
}

func TestErrorAfterKeepAliveIsAnEvent(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	s.keepAlive = time.Millisecond
	r := post(t, serve(t, s), `{"prompt":"hang","stream":true}`).body
	if got := line(t, r); got != ": keep-alive" {
		t.Fatalf("got %s", got)
	}
	s.end(errDraining)
	for {
		got := line(t, r)
		if got == ": keep-alive" {
			continue
		}
		if !strings.HasPrefix(got, `data: {"error":{"message":"the server is shutting down"`) {
			t.Errorf("got %s", got)
		}
		break
	}
	if rest, err := io.ReadAll(r); err != nil || strings.TrimSpace(string(rest)) != "" {
		t.Errorf("then %q, %v", rest, err)
	}
}

func TestDisconnectCancels(t *testing.T) {
	t.Parallel()
	for body, active := range map[string]int64{
		`{"prompt":"wait","stream":true}`: 1, `{"prompt":"wait"}`: 1, `{"prompt":"hang","stream":true}`: 1, `{"prompt":"hang"}`: 1,
		`{"prompt":["wait","hang","wait"],"stream":true}`: 3, `{"prompt":["hang","wait"],"n":2}`: 2,
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			var log lockedBuffer
			s, eng := newTestServer(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			url := serve(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			eventually(t, "the engine has the request", func() bool { return eng.active.Load() == active })
			cancel()
			within(t, time.Second, "the engine is free", func() bool { return eng.active.Load() == 0 })
			<-done
			eventually(t, "the log says 499", func() bool { return strings.Contains(log.String(), "status=499") })
		})
	}
}

// TestClientThatDoesNotReadIsNoticed has a client that leaves the connection open and reads nothing.
func TestClientThatDoesNotReadIsNoticed(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{MaxBodyBytes: 1 << 20})
	s.writeTimeout = 50 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(serve(t, s), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	body := `{"prompt":"count 10000000","stream":true}`
	if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the engine has the request", func() bool { return eng.active.Load() == 1 })
	eventually(t, "the engine is free", func() bool { return eng.active.Load() == 0 })
}

// TestStaleDeadlineDoesNotBreakTheNextRequest uses a connection again after the write deadline of the request before.
func TestStaleDeadlineDoesNotBreakTheNextRequest(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	s.writeTimeout, s.bodyTimeout = 20*time.Millisecond, 20*time.Millisecond
	srv := httptest.NewServer(s)
	defer srv.Close()
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/completions", strings.NewReader(`{"prompt":"count 3"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Expect", "100-continue")
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !bytes.Contains(b, []byte("1 2 3 ")) {
			t.Errorf("%d %s %v", resp.StatusCode, b, err)
		}
		_ = resp.Body.Close()
		time.Sleep(60 * time.Millisecond)
	}
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	big := `{"prompt":"` + strings.Repeat("x", 50<<20) + `"}`
	s, eng := newTestServer(t, Config{})
	url := serve(t, s)
	for name, body := range map[string]io.Reader{
		"told by Content-Length": strings.NewReader(big),
		"found while reading":    io.MultiReader(strings.NewReader(big)), // sent in chunks
	} {
		resp, err := http.Post(url+"/v1/completions", "application/json", body)
		if err != nil {
			t.Fatalf("%s: %v", name, err) // a reset connection is not polite
		}
		var e struct{ Error struct{ Code string } }
		err = json.NewDecoder(resp.Body).Decode(&e)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || e.Error.Code != "request_too_large" {
			t.Errorf("%s: %d %+v %v", name, resp.StatusCode, e, err)
		}
	}
	// A client that writes everything before it reads anything.
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(big), big); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 413 ")) {
		t.Errorf("got %.100s, %v", b, err)
	}
	// One that asks first is told before it sends.
	got := exchange(t, url, fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(big)))
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 413 ")) {
		t.Errorf("got %.100s", got)
	}
	if eng.lastRequest().ID != "" {
		t.Error("the engine was asked")
	}
	// What is just allowed passes.
	s.cfg.MaxBodyBytes = int64(len(`{"prompt":"count 1"}`))
	if resp := post(t, url, `{"prompt":"count 1"}`); resp.status != 200 {
		t.Errorf("status %d", resp.status)
	}
	if resp := post(t, url, `{"prompt":"count 1"} `); resp.status != 413 {
		t.Errorf("status %d", resp.status)
	}
}

func TestSlowBodyTimesOut(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	s.bodyTimeout = 30 * time.Millisecond
	got := exchange(t, serve(t, s), "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 408 ")) {
		t.Errorf("got %s", got)
	}
}

// TestBareHandler runs the handler on a writer that has neither deadlines nor a connection.
func TestBareHandler(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions", strings.NewReader(`{"prompt":"count 2","stream":true}`)))
	if !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") || strings.Count(w.Body.String(), "data: ") != 3 || !w.Flushed {
		t.Errorf("got %s", w.Body)
	}
}

func TestMountedUnderAPrefix(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{Static: testFiles()})
	h := http.StripPrefix("/sub/path", s)
	for path, want := range map[string]int{"/sub/path/v1/models": 200, "/sub/path/": 200, "/sub/path/app.js": 200, "/sub/path/none": 404, "/sub/path/dist": 301} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
		if want == 301 && w.Header().Get("Location") != "dist/" {
			t.Errorf("Location %q", w.Header().Get("Location"))
		}
	}
}

func TestInfoIsWhatTheEngineSays(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8000/api/info", nil))
	var got struct {
		Info  engine.Info
		Stats engine.Stats
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Info.Model != eng.Info().Model || got.Info.MaxModelLen != 128 || got.Stats.Sequences == nil {
		t.Errorf("%d %s %v", w.Code, w.Body, err)
	}
}

// lockedBuffer is a bytes.Buffer for many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestAccessLogHasTokensAndNoWords(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	s, _ := newTestServer(t, Config{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	for _, body := range []string{
		`{"prompt":"count 2","user":"sesame"}`, `{"prompt":"count 3","stream":true,"stop":["sesame"]}`, `{"prompt":{"sesame":1}}`, `{"prompt":"lost"}`,
		`{"prompt":"sesame"}`, `{"prompt":"sesame`,
	} {
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "http://localhost/v1/completions?sesame", strings.NewReader(body)))
	}
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://localhost/health", nil)) // below info
	var got []string
	for l := range strings.Lines(log.String()) {
		var e struct {
			Level, Method, Path string
			Status              int
			MS                  *float64
			Prompt              int `json:"prompt_tokens"`
			Completion          int `json:"completion_tokens"`
		}
		if err := json.Unmarshal([]byte(l), &e); err != nil || e.MS == nil {
			t.Fatal(l, err)
		}
		got = append(got, fmt.Sprint(e.Level, " ", e.Method, " ", e.Path, " ", e.Status, " ", e.Prompt, "+", e.Completion))
	}
	const p = " POST /v1/completions "
	if want := []string{"INFO" + p + "200 7+2", "INFO" + p + "200 7+3", "INFO" + p + "400 0+0", "ERROR" + p + "500 7+1", "INFO" + p + "400 0+0", "INFO" + p + "400 0+0"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if strings.Contains(log.String(), "sesame") {
		t.Errorf("words in the log: %s", log.String())
	}
}
