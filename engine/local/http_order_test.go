package local

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
)

// TestPriorityOrdersAnswers: with one seat, those who wait are answered by priority, the lowest first and of equals the first
// to come, over HTTP and the WebSocket alike; and who was overtaken often enough has its turn.
func TestPriorityOrdersAnswers(t *testing.T) {
	for _, c := range []struct {
		name      string
		policy    engine.Policy
		overtakes int
		want      string
	}{
		{"fcfs", engine.PolicyFCFS, 0, "[0 1 2 3 4 5]"},
		{"priority", engine.PolicyPriority, 0, "[3 1 5 0 4 2]"},
		{"priority with a bound", engine.PolicyPriority, 2, "[3 1 0 5 2 4]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveEngine(t, engine.Config{MaxModelLen: 1024, MaxSeqs: 1, Policy: c.policy, MaxOvertakes: c.overtakes})
			first := s.askSocket(t, completion(words(16, 9), 900, `,"priority":-100`))
			eventually(t, "the seat is taken", func() bool { return s.Stats().Running == 1 })
			var wg sync.WaitGroup
			var mu sync.Mutex
			var order []int
			done := func(i int) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			}
			for i, priority := range []int{0, -5, 7, -9, 0, -5} {
				body := completion(words(16, i), 3, fmt.Sprintf(`,"priority":%d`, priority))
				if i%2 == 0 {
					wg.Go(func() {
						var answer openai.Completion
						if s.post(t, body, &answer) == 200 {
							done(i)
						}
					})
				} else {
					other := s.dial(t)
					other.generate("r", body)
					wg.Go(func() {
						if _, end := other.tokens("r"); end == "done" {
							done(i)
						}
					})
				}
				eventually(t, "it waits", func() bool { return s.Stats().Waiting == i+1 })
			}
			first.vanish()
			wg.Wait()
			if got := fmt.Sprint(order); got != c.want {
				t.Errorf("answered in the order %s, want %s", got, c.want)
			}
		})
	}
}

// frame is the bytes of a WebSocket frame from a client (RFC 6455, section 5.2). The mask is zero, which leaves the payload
// as it is; size is what the header says of its length.
func frame(head byte, masked bool, size uint64, payload string) []byte {
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	b := []byte{head}
	switch {
	case size < 126:
		b = append(b, mask|byte(size))
	case size < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(size))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), size)
	}
	if masked {
		b = append(b, 0, 0, 0, 0)
	}
	return append(b, payload...)
}

// TestAttackedWebSocket: connections that send what no client may send are ended and free what they have running; whoever
// talks to the same engine meanwhile gets the tokens that it gets alone.
func TestAttackedWebSocket(t *testing.T) {
	s := serveEngine(t, engine.Config{MaxModelLen: 512, MaxSeqs: 4, Deterministic: true})
	const text, binaryFrame, closing, ping, final = 1, 2, 8, 9, 0x80
	generate := `{"type":"generate","id":"r","endpoint":"completions","body":` + completion(words(16, 4), 400, "") + `}`
	whole := func(payload string) []byte { return frame(final|text, true, uint64(len(payload)), payload) }
	attacks := map[string][]byte{
		"no mask":                     frame(final|text, false, 2, "{}"),
		"reserved bits":               frame(final|0x70|text, true, 2, "{}"),
		"unknown kind":                frame(final|3, true, 2, "{}"),
		"unknown control":             frame(final|0xB, true, 0, ""),
		"control in pieces":           frame(ping, true, 2, "{}"),
		"long control":                frame(final|ping, true, 200, strings.Repeat("x", 200)),
		"goes on with nothing":        frame(final, true, 2, "{}"),
		"new message within another":  append(frame(text, true, 2, "{\""), whole("{}")...),
		"length of 2^63":              frame(final|text, true, 1<<63, "{}"),
		"length of 2^62":              frame(final|text, true, 1<<62, strings.Repeat("x", 1<<16)),
		"larger than a body may be":   frame(final|text, true, 64<<20, strings.Repeat(" ", 9<<20)),
		"endless pieces":              []byte(strings.Repeat(string(frame(text, true, 0, "")), 1) + strings.Repeat(string(frame(0, true, 1<<16, strings.Repeat(" ", 1<<16))), 140)),
		"bytes":                       frame(final|binaryFrame, true, 2, "{}"),
		"close with one byte":         frame(final|closing, true, 1, "x"),
		"close with a forbidden code": frame(final|closing, true, 2, "\x03\xec"),
		"half a frame":                frame(final|text, true, 1000, "{"),
		"HTTP again":                  []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	}
	mine := completion(words(30, 1), 40, "")
	c := s.dial(t)
	c.generate("alone", mine)
	alone, end := c.tokens("alone")
	if end != "done" || len(alone) != 40 {
		t.Fatalf("%v, %s", alone, end)
	}
	var names []string
	for name := range attacks {
		names = append(names, name)
	}
	for group := range slices.Chunk(names, 6) {
		c.generate("attacked", mine)
		var wg sync.WaitGroup
		for _, name := range group {
			conn := s.upgrade(t)
			wg.Go(func() {
				defer conn.Close()
				if _, err := conn.Write(whole(generate)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				_, _ = conn.Write(attacks[name]) // the server may be gone by then, which is the point
				if name == "half a frame" || name == "length of 2^62" {
					return // while the server waits for the rest
				}
				if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Error(err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
					t.Errorf("%s: the connection is still open", name)
				}
			})
		}
		if got, end := c.tokens("attacked"); end != "done" || !slices.Equal(got, alone) {
			t.Errorf("beside %q: %v, %s; alone %v", group, got, end, alone)
		}
		wg.Wait()
		if took := eventually(t, "free", func() bool { st := s.Stats(); return st.Running+st.Waiting+st.BlocksUsed == 0 }); took > time.Second {
			t.Errorf("after %q the blocks were free only after %v", group, took)
		}
	}
	// What is wrong inside of messages is answered, and the connection goes on.
	for _, text := range []string{"", "nonsense", "[]", `"x"`, `{"type":"generate"}`, `{"type":"generate","id":"y","endpoint":"completions","body":[]}`, strings.Repeat("[", 1<<20), "{\"id\":\"\xff\"}"} {
		c.send(text)
		if m := c.read(); m.Type != openai.TypeError || m.Status != 400 {
			t.Errorf("%.40q is answered with %+v", text, m)
		}
	}
	c.generate("after", mine)
	if got, end := c.tokens("after"); end != "done" || !slices.Equal(got, alone) {
		t.Errorf("afterwards %v, %s; before %v", got, end, alone)
	}
}

// upgrade opens a WebSocket by hand and leaves the frames to the caller.
func (s served) upgrade(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	const ask = "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	if _, err := io.WriteString(conn, ask); err != nil {
		t.Fatal(err)
	}
	answer := ""
	for one := make([]byte, 1); !strings.HasSuffix(answer, "\r\n\r\n"); {
		if _, err := conn.Read(one); err != nil {
			t.Fatalf("%q, %v", answer, err)
		}
		answer += string(one)
	}
	if !strings.HasPrefix(answer, "HTTP/1.1 101 ") {
		t.Fatalf("%q", answer)
	}
	return conn
}
