package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/host"
	"github.com/pagelight/pagelight/internal/openai"
)

// served is a real engine behind a real server.
type served struct {
	*engine.Engine
	url string
}

func serveEngine(t *testing.T, cfg engine.Config) served {
	t.Helper()
	eng := open(t, "cpu", Options{Engine: cfg})
	s, err := host.New(host.Config{Engine: eng})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return served{eng, srv.URL}
}

// eventually waits until a condition holds and says how long that took.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > 30*time.Second {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// completion is a body of /v1/completions.
func completion(ids []int32, tokens int, more string) string {
	prompt, _ := json.Marshal(ids)
	return fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"temperature":0,"ignore_eos":true%s}`, prompt, tokens, more)
}

// client is somebody who has asked over a connection and can vanish from it.
type client interface{ vanish() }

// askRaw sends a request by hand and reads nothing: vanish breaks the connection under it.
func (s served) askRaw(t *testing.T, body string) client {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	return rawClient{conn}
}

type rawClient struct{ net.Conn }

func (c rawClient) vanish() { _ = c.Close() }

// stream reads a stream of server-sent events and calls each for its chunks until that returns false.
func (s served) stream(ctx context.Context, t *testing.T, body string, each func(openai.Chunk) bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var c openai.Chunk
		if err := json.Unmarshal(data, &c); err != nil || c.Choices == nil {
			t.Errorf("%s, %v", data, err)
			return
		}
		if !each(c) {
			return
		}
	}
}

// post sends a body and reads the answer into out.
func (s served) post(t *testing.T, body string, out any) (status int) {
	t.Helper()
	resp, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}

// TestDeadClientFreesItsBlocks: within a second of its connection's end nothing of a request is left, neither in the queue nor
// in the cache, whatever it was waiting for and however it had asked. Those who stay go on.
func TestDeadClientFreesItsBlocks(t *testing.T) {
	// Small steps, so that long prompts take many of them.
	s := serveEngine(t, engine.Config{MaxModelLen: 2048, MaxSeqs: 2, MaxBatchedTokens: 16, NoPrefixCache: true})
	long := completion(prompt(1900), 100, "")
	short := completion(prompt(20), 1500, "")
	prefilling := func() bool {
		st := s.Stats()
		return len(st.Sequences) == 1 && st.Sequences[0].Tokens > 0 && st.Sequences[0].Tokens < 1900
	}
	nobody := func() bool { st := s.Stats(); return st.Running+st.Waiting+st.BlocksUsed == 0 }
	for _, way := range []struct {
		name string
		ask  func(t *testing.T, body string) client
	}{
		{"streaming", func(t *testing.T, body string) client {
			return s.askRaw(t, strings.TrimSuffix(body, "}")+`,"stream":true}`)
		}},
		{"whole", s.askRaw},
		{"several answers", func(t *testing.T, body string) client { return s.askRaw(t, strings.TrimSuffix(body, "}")+`,"n":2}`) }},
		{"WebSocket", s.askSocket},
	} {
		gone := func(t *testing.T, c client, what string, ok func() bool) {
			t.Helper()
			c.vanish()
			if took := eventually(t, what, ok); took > time.Second {
				t.Errorf("%s only after %v", what, took)
			}
		}
		if way.name != "several answers" { // two prompts of that length
			t.Run(way.name+"/prefilling", func(t *testing.T) {
				c := way.ask(t, long)
				eventually(t, "the prompt is being computed", prefilling)
				gone(t, c, "free", nobody)
			})
		}
		t.Run(way.name+"/decoding", func(t *testing.T) {
			before := s.Stats().GenerationTokens
			c := way.ask(t, short)
			eventually(t, "tokens are generated", func() bool { return s.Stats().GenerationTokens > before+10 })
			gone(t, c, "free", nobody)
		})
		t.Run(way.name+"/queued", func(t *testing.T) {
			one, two := s.askRaw(t, short), s.askSocket(t, short)
			eventually(t, "both seats are taken", func() bool { return s.Stats().Running == 2 })
			c := way.ask(t, short)
			eventually(t, "it waits", func() bool { return s.Stats().Waiting > 0 })
			gone(t, c, "out of the queue", func() bool { return s.Stats().Waiting == 0 })
			if st := s.Stats(); st.Running != 2 {
				t.Errorf("%d go on, want those 2 that were there before", st.Running)
			}
			one.vanish()
			gone(t, two, "free", nobody)
		})
	}
}

// TestOneStreamEndsTheOtherGoesOn: of two streams one is given up, by a disconnect and by a cancel; the other gets the tokens
// that it gets alone.
func TestOneStreamEndsTheOtherGoesOn(t *testing.T) {
	s := serveEngine(t, engine.Config{MaxModelLen: 256, MaxSeqs: 4, Deterministic: true})
	const tokens = 40
	mine, theirs := completion(words(30, 1), tokens, `,"logprobs":0`), completion(words(40, 2), 200, `,"stream":true`)
	c := s.dial(t)
	c.generate("alone", mine)
	alone, end := c.tokens("alone")
	if end != "done" || len(alone) != tokens {
		t.Fatalf("%v, %s", alone, end)
	}
	for _, way := range []string{"disconnect", "cancel"} {
		started, left := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(left)
			if way == "disconnect" {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				seen := 0
				s.stream(ctx, t, theirs, func(openai.Chunk) bool {
					if seen++; seen == 1 {
						close(started)
					}
					return seen < 10
				})
				return
			}
			other := s.dial(t)
			other.generate("x", theirs)
			other.read()
			close(started)
			for range 9 {
				other.read()
			}
			other.send(`{"type":"cancel","id":"x"}`)
			if _, end := other.tokens("x"); end != fmt.Sprint(openai.StatusCancelled) {
				t.Errorf("a cancelled request ended with %s", end)
			}
		}()
		<-started
		id := "beside a " + way
		c.generate(id, mine)
		got, end := c.tokens(id)
		select {
		case <-left:
		default:
			t.Errorf("%s: the other was still there at the end, so nothing is tested", way)
		}
		if end != "done" || !slices.Equal(got, alone) {
			t.Errorf("%s: %v, %s; alone %v", way, got, end, alone)
		}
		<-left
		eventually(t, "free", func() bool { return s.Stats().BlocksUsed == 0 })
	}
}

// TestTheImpossibleIsRefusedAndDisturbsNobody: each request that can never be answered has its 400 and the field at fault,
// while others are answered as if it had not come.
func TestTheImpossibleIsRefusedAndDisturbsNobody(t *testing.T) {
	s := serveEngine(t, engine.Config{MaxModelLen: 256, MaxSeqs: 2, MaxWaiting: 4, Deterministic: true})
	const tokens = 60
	c := s.dial(t)
	c.generate("alone", completion(words(30, 1), tokens, ""))
	alone, _ := c.tokens("alone")
	c.generate("among others", completion(words(30, 1), tokens, ""))
	var wg sync.WaitGroup
	for body, field := range map[string]string{
		completion(words(300, 3), 1, ""):                                                           "",
		completion(words(200, 3), 100, ""):                                                         "",
		completion([]int32{1 << 20}, 1, ""):                                                        "prompt",
		completion(words(9, 3), 1, `,"n":7`):                                                       "n",
		`{"prompt":["a","b","c","d"],"n":2}`:                                                       "prompt",
		completion(words(9, 3), 2, `,"allowed_token_ids":[1048576]`):                               "allowed_token_ids",
		completion(words(9, 3), 2, `,"logit_bias":{"1048576":1}`):                                  "logit_bias",
		completion(words(9, 3), 2, `,"min_tokens":3`):                                              "min_tokens",
		completion(words(9, 3), 2, `,"logprobs":-1`):                                               "logprobs",
		completion(words(9, 3), 2, `,"prompt_logprobs":21`):                                        "prompt_logprobs",
		completion(words(9, 3), 9, `,"allowed_token_ids":[7],"stop_token_ids":[7],"min_tokens":2`): "allowed_token_ids",
	} {
		wg.Go(func() {
			var e openai.ErrorBody
			status, param := s.post(t, body, &e), ""
			if e.Error.Param != nil {
				param = *e.Error.Param
			}
			if status != http.StatusBadRequest || param != field {
				t.Errorf("%.80s: %d %+v of field %q, want 400 of field %q", body, status, e.Error, param, field)
			}
		})
	}
	wg.Wait()
	if got, end := c.tokens("among others"); end != "done" || len(got) != tokens || !slices.Equal(got, alone) {
		t.Errorf("%v, %s; alone %v", got, end, alone)
	}
	var ok openai.Completion
	if status := s.post(t, `{"prompt":["a","b","c"],"n":2,"max_tokens":2}`, &ok); status != http.StatusOK || len(ok.Choices) != 6 {
		t.Errorf("as many answers as there is room for: %d, %d answers", status, len(ok.Choices))
	}
}
