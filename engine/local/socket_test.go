//nolint:staticcheck // the library is deprecated in favour of its successor; see docs/adr/0010
package local

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"nhooyr.io/websocket"

	"github.com/pagelight/pagelight/internal/openai"
)

// askSocket sends a request over a WebSocket of its own; vanish closes it without a goodbye.
func (s served) askSocket(t *testing.T, body string) client {
	t.Helper()
	c := s.dial(t)
	c.generate("r", body)
	return c
}

// socket is a client of the WebSocket.
type socket struct {
	t *testing.T
	*websocket.Conn
}

func (s served) dial(t *testing.T) socket {
	t.Helper()
	c, resp, err := websocket.Dial(t.Context(), strings.Replace(s.url, "http", "ws", 1)+"/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	c.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = c.CloseNow() })
	return socket{t, c}
}

func (c socket) vanish() { _ = c.CloseNow() }

func (c socket) send(msg string) {
	c.t.Helper()
	if err := c.Write(c.t.Context(), websocket.MessageText, []byte(msg)); err != nil {
		c.t.Error(err)
	}
}

func (c socket) generate(id, body string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"type":"generate","id":%q,"endpoint":"completions","body":%s}`, id, body))
}

// message is any message of the server.
type message struct {
	Type   string       `json:"type"`
	ID     string       `json:"id"`
	Data   openai.Chunk `json:"data"`
	Status int          `json:"status"`
	Error  openai.Error `json:"error"`
}

func (c socket) read() message {
	c.t.Helper()
	_, data, err := c.Read(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		c.t.Fatalf("%s: %v", data, err)
	}
	return m
}

// tokens reads an answer's ids up to its end, which it returns too: "done" or the status of an error.
func (c socket) tokens(id string) (ids []int32, end string) {
	c.t.Helper()
	for {
		switch m := c.read(); {
		case m.ID != id:
		case m.Type == openai.TypeChunk:
			ids = append(ids, m.Data.Pagelight.TokenIDs...)
		case m.Type == openai.TypeError:
			return ids, fmt.Sprint(m.Status)
		default:
			return ids, m.Type
		}
	}
}
