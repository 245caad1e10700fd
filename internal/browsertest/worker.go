package browsertest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

var (
	buildOnce sync.Once
	built     []byte
)

// EngineWASM builds the engine for the browser, once for all tests of a run, and gives the file.
func EngineWASM(t testing.TB) []byte {
	t.Helper()
	buildOnce.Do(func() {
		path := filepath.Join(t.TempDir(), "engine.wasm")
		goWASM(t, "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./wasm")
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		built = code
	})
	if built == nil {
		t.Fatal("the engine does not build; see the first test that failed")
	}
	return built
}

// WorkerFiles are the files that a worker needs, with the page on which NewClient relies. Entries may be replaced to see
// what happens.
func WorkerFiles(t testing.TB) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{"dist/wasm_exec.js": &fstest.MapFile{Data: wasmExec(t)}}
	for _, name := range []string{"worker.html", "client.js"} {
		data, err := fs.ReadFile(testdata, "testdata/"+name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	for _, name := range []string{"worker.js", "gpu.js", "fetch.js", "ranges.js", "tuning.js"} {
		data, err := os.ReadFile(filepath.Join(Root(t), "static", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}

// Client speaks the protocol with a worker in a tab.
type Client struct {
	Tab *Tab
	t   testing.TB
}

// NewClient opens worker.html below base and with it the worker.
func (b *Browser) NewClient(t testing.TB, base string) *Client {
	t.Helper()
	return &Client{Tab: b.Open(t, base+"/worker.html"), t: t}
}

// Message is any message of the protocol.
type Message map[string]any

// Answer is a message from the worker, with those fields that tests look at.
type Answer struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Status int             `json:"status"`
	Error  AnswerError     `json:"error"`
	Raw    json.RawMessage `json:"-"`
	// Before are the messages with the same id that came before: progress and chunks.
	Before []json.RawMessage `json:"-"`
}

// AnswerError is the error object of an answer.
type AnswerError struct {
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
	File    string  `json:"file"`
	Need    int64   `json:"need"`
	Have    int64   `json:"have"`
}

// Decode reads the whole answer into v.
func (a *Answer) Decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Raw, v); err != nil {
		t.Fatalf("%v in %.300s", err, a.Raw)
	}
}

// Post sends a message and does not wait.
func (c *Client) Post(m Message) {
	c.t.Helper()
	Eval[bool](c.t, c.Tab, 10*time.Second, fmt.Sprintf("client.post(%s)", marshal(c.t, m)))
}

// Wait waits for the last message with an id.
func (c *Client) Wait(id string, timeout time.Duration) *Answer {
	c.t.Helper()
	text := Eval[string](c.t, c.Tab, timeout, fmt.Sprintf("client.wait(%s)", marshal(c.t, id)))
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		c.t.Fatal(err)
	}
	last := len(all) - 1
	a := &Answer{Raw: all[last], Before: all[:last]}
	a.Decode(c.t, a)
	return a
}

// Count gives the number of messages that came with an id so far.
func (c *Client) Count(id string) int {
	c.t.Helper()
	return Eval[int](c.t, c.Tab, 10*time.Second, fmt.Sprintf("client.count(%s)", marshal(c.t, id)))
}

// Ask sends a message and waits for the last one with its id.
func (c *Client) Ask(m Message, timeout time.Duration) *Answer {
	c.t.Helper()
	c.Post(m)
	return c.Wait(m["id"].(string), timeout)
}

// MustAsk is Ask for a message that must be answered by one of the given type.
func (c *Client) MustAsk(m Message, want string, timeout time.Duration) *Answer {
	c.t.Helper()
	a := c.Ask(m, timeout)
	if a.Type != want {
		c.t.Fatalf("%v was answered by %.2000s", m, a.Raw)
	}
	return a
}

func marshal(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
