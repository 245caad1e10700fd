//nolint:staticcheck // the library is deprecated in favour of its successor; see docs/adr/0010
package host

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"nhooyr.io/websocket"

	"github.com/pagelight/pagelight/internal/openai"
)

// wsClient is a page that speaks the protocol.
type wsClient struct {
	t *testing.T
	c *websocket.Conn
}

func dial(t *testing.T, url string, opts *websocket.DialOptions) *wsClient {
	t.Helper()
	c, resp, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/v1/stream", opts)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	c.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = c.CloseNow() })
	return &wsClient{t, c}
}

func (c *wsClient) send(msg string) {
	c.t.Helper()
	if err := c.c.Write(c.t.Context(), websocket.MessageText, []byte(msg)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *wsClient) generate(id, prompt string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"type":"generate","id":%q,"endpoint":"completions","body":{"prompt":%q,"zip":1}}`, id, prompt))
}

// message is any message from the server.
type message struct {
	Type   string       `json:"type"`
	ID     string       `json:"id"`
	Data   openai.Chunk `json:"data"`
	Status int          `json:"status"`
	Error  openai.Error `json:"error"`
	Info   *struct {
		Model string `json:"model"`
	} `json:"info"`
}

// String is the message in short.
func (m message) String() string {
	switch m.Type {
	case "chunk":
		if len(m.Data.Choices) == 0 {
			return "usage"
		}
		return *m.Data.Choices[0].Text
	case "error":
		return fmt.Sprintf("%d %s", m.Status, *m.Error.Code)
	case "stats":
		return "stats of " + m.Info.Model
	}
	return m.Type
}

func (c *wsClient) read() message {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	kind, data, err := c.c.Read(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil || kind != websocket.MessageText {
		c.t.Fatalf("%s: %v", data, err)
	}
	return m
}

// until reads up to the end of the requests named and returns what each got.
func (c *wsClient) until(ids ...string) map[string]string {
	c.t.Helper()
	got := map[string]string{}
	ids = slices.Clone(ids)
	for len(ids) > 0 {
		m := c.read()
		if got[m.ID] != "" {
			got[m.ID] += "|"
		}
		got[m.ID] += m.String()
		if m.Type != "chunk" {
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == m.ID })
		}
	}
	return got
}

// sentAway checks that the server says goodbye.
func (c *wsClient) sentAway() {
	c.t.Helper()
	if _, _, err := c.c.Read(c.t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		c.t.Errorf("got %v", err)
	}
}

func TestWebSocketCarriesManyRequests(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	c := dial(t, serve(t, s), nil)
	c.generate("w", "wait")
	if m := c.read(); m.ID != "w" || m.String() != "w" {
		t.Fatalf("got %+v", m)
	}
	var ids []string
	for i := range 20 {
		id := fmt.Sprint("r", i)
		ids = append(ids, id)
		c.generate(id, "count 3")
	}
	c.generate("l", "too long")
	c.generate("p", "panic")
	c.send(`{"type":"generate","id":"b","endpoint":"chat.completions","body":{"messages":[]}}`)
	c.send(`{"type":"generate","id":"m","endpoint":"completions","body":{"prompt":"count 1","model":"other"}}`)
	c.send(`{"type":"stats","id":"s"}`)
	c.send(`{"type":"load","id":"x"}`)
	c.send(`{"type":7,"id":"y"}`)
	got := c.until(append(ids, "l", "p", "b", "m", "s", "x", "y")...)
	for _, id := range ids {
		if got[id] != "1 |2 |3 |done" {
			t.Errorf("%s: got %q", id, got[id])
		}
	}
	for id, want := range map[string]string{"l": "400 context_length_exceeded", "p": "500 error", "b": "400 invalid_value", "m": "404 model_not_found", "s": "stats of fake", "x": "400 invalid_value", "y": "400 invalid_json"} {
		if got[id] != want {
			t.Errorf("%s: got %q, want %q", id, got[id], want)
		}
	}
	if eng.active.Load() != 1 {
		t.Errorf("%d active", eng.active.Load())
	}
	c.send(`{"type":"cancel","id":"w"}`)
	if got := c.until("w"); got["w"] != "499 cancelled" {
		t.Errorf("got %v", got)
	}
	eventually(t, "the engine is free", func() bool { return eng.active.Load() == 0 })
	c.generate("w", "count 1") // the id can be used again, the connection goes on
	if got := c.until("w"); got["w"] != "1 |done" {
		t.Errorf("got %v", got)
	}
}

func TestWebSocketChunksHaveTheExtension(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{ServedModelNames: []string{"ernie"}})
	c := dial(t, serve(t, s), nil)
	c.send(`{"type":"generate","id":"r","endpoint":"completions","body":{"prompt":"count 2","zip":1,"stream_options":{"include_usage":true}}}`)
	first, last, usage, done := c.read(), c.read(), c.read(), c.read()
	if p := first.Data.Pagelight; p == nil || !slices.Equal(p.TokenIDs, []int32{1}) || !slices.Equal(p.Ignored, []string{"zip"}) || p.Timing != nil || first.Data.Model != "ernie" {
		t.Errorf("first %+v", first.Data)
	}
	if p := last.Data.Pagelight; p == nil || p.Timing == nil || *p.Timing != (openai.Timing{Queued: 1, FirstToken: 2, Decode: 3}) || p.Place != "server" || p.Ignored != nil {
		t.Errorf("last %+v", last.Data)
	}
	if usage.String() != "usage" || string(usage.Data.Usage) != `{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}` || done.Type != "done" {
		t.Errorf("then %+v, %+v", usage, done)
	}
}

func TestWebSocketDisconnectCancels(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	c := dial(t, serve(t, s), nil)
	for _, id := range []string{"a", "b", "c"} {
		c.generate(id, "hang")
	}
	eventually(t, "the engine has them", func() bool { return eng.active.Load() == 3 })
	_ = c.c.CloseNow()
	within(t, time.Second, "the engine is free", func() bool { return eng.active.Load() == 0 })
}

func TestWebSocketLimits(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{MaxBodyBytes: 100 << 10})
	url := serve(t, s)
	c := dial(t, url, nil)
	c.send(`{"type":"generate","id":"big","endpoint":"completions","body":{"prompt":"count 1","x":"` + strings.Repeat("y", 90<<10) + `"}}`) // above the library's own limit
	if got := c.until("big"); got["big"] != "1 |done" {
		t.Errorf("got %v", got)
	}
	for i := range maxStreams {
		c.generate(fmt.Sprint(i), "hang")
	}
	c.generate("more", "count 1")
	if got := c.until("more"); got["more"] != "429 too_many_requests" {
		t.Errorf("got %v", got)
	}
	_ = c.c.Write(t.Context(), websocket.MessageText, make([]byte, 200<<10))
	if _, _, err := c.c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("got %v", err)
	}
	eventually(t, "the engine is free", func() bool { return eng.active.Load() == 0 })

	c = dial(t, url, nil)
	if err := c.c.Write(t.Context(), websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
		t.Errorf("got %v", err)
	}
}

func TestWebSocketPings(t *testing.T) {
	t.Parallel()
	s, eng := newTestServer(t, Config{})
	s.pingInterval, s.writeTimeout = 5*time.Millisecond, time.Second
	url := serve(t, s)
	// A client that reads answers pings by itself and stays; one that never reads is gone after a while.
	c, idle := dial(t, url, nil), dial(t, url, nil)
	idle.generate("i", "hang")
	eventually(t, "the engine has it", func() bool { return eng.active.Load() == 1 })
	got := make(chan string, 1)
	go func() {
		_, data, err := c.c.Read(t.Context())
		got <- fmt.Sprintf("%s %v", data, err)
	}()
	eventually(t, "the client that does not read is gone", func() bool { return eng.active.Load() == 0 })
	c.generate("a", "count 1")
	if m := <-got; !strings.Contains(m, `"type":"chunk"`) {
		t.Errorf("got %s", m)
	}
}

func TestWebSocketAccess(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{APIKey: "k3y", AllowedOrigins: []string{"https://chat.example"}})
	url := serve(t, s)
	for _, c := range []struct {
		origin    string
		protocols []string
		want      int
	}{
		{"https://evil.example", []string{"pagelight", "bearer.k3y"}, 403},
		{"null", []string{"pagelight", "bearer.k3y"}, 403},
		{"https://chat.example", []string{"pagelight"}, 401},
		{"https://chat.example", []string{"pagelight", "bearer.k3y"}, 101},
		{url, []string{"bearer.k3y", "pagelight"}, 101},
		{"", []string{"pagelight", "bearer.k3y"}, 101},
	} {
		opts := &websocket.DialOptions{Subprotocols: c.protocols, HTTPHeader: http.Header{}}
		if c.origin != "" {
			opts.HTTPHeader.Set("Origin", c.origin)
		}
		conn, resp, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/v1/stream", opts)
		if resp == nil || resp.StatusCode != c.want {
			t.Errorf("%s %v: got %v, %v", c.origin, c.protocols, resp, err)
		}
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close()
		}
		if conn != nil {
			if conn.Subprotocol() != "pagelight" {
				t.Errorf("subprotocol %q", conn.Subprotocol())
			}
			_ = conn.CloseNow()
		}
	}
}

func TestWebSocketNeedsAnUpgrade(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	resp, err := http.Get(serve(t, s) + "/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var e openai.ErrorBody
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode != http.StatusUpgradeRequired || e.Error.Message == "" {
		t.Errorf("%d %+v %v", resp.StatusCode, e, err)
	}
}

func hammerWebSocket(t *testing.T, url string, rng *rand.Rand) {
	for round := range 8 {
		c, resp, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/v1/stream", nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		open := map[string]string{}
		write := func(format string, args ...any) {
			if err := c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
				t.Error(err)
			}
		}
		for i := range 20 {
			id, prompt := fmt.Sprint(i), []string{"count 20", "wait", "hang"}[rng.IntN(3)]
			open[id] = prompt
			write(`{"type":"generate","id":%q,"endpoint":"completions","body":{"prompt":%q}}`, id, prompt)
		}
		for id, prompt := range open {
			if prompt != "count 20" {
				write(`{"type":"cancel","id":%q}`, id)
			}
		}
		for len(open) > 0 && (round%2 == 0 || rng.IntN(30) > 0) { // every second time leave in the middle
			_, data, err := c.Read(t.Context())
			var m message
			if err != nil || json.Unmarshal(data, &m) != nil {
				t.Errorf("%s, %v", data, err)
				break
			}
			want := "499 cancelled"
			if open[m.ID] == "count 20" {
				want = "done"
			}
			if m.Type == "chunk" {
				continue
			}
			if m.String() != want {
				t.Errorf("%s ended with %s", open[m.ID], m)
			}
			delete(open, m.ID)
		}
		_ = c.CloseNow()
	}
}
