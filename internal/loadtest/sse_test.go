package loadtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll gives all events as "name|data".
func readAll(r io.Reader) (all []string, err error) {
	for e := newEvents(r); ; {
		name, data, err := e.next()
		if err != nil {
			return all, err
		}
		all = append(all, name+"|"+string(data))
	}
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		{"data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}},
		{"data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		{"data: a\r\n\ndata: b\n\r\n", []string{"|a", "|b"}},
		{"data: 1\ndata: 2\ndata:\ndata\ndata:3\n\n", []string{"|1\n2\n\n\n3"}},
		{": comment\n\n:\n\ndata: a\n: within\ndata: b\n\n", []string{"|a\nb"}},
		{"event: error\ndata: a\n\ndata: b\n\n", []string{"error|a", "|b"}},
		{"event: lost\n\ndata: b\n\n", []string{"|b"}}, // no data, no event
		{"id: 5\nretry: 10\nfoo: bar\ndata:  two spaces\n\n", []string{"| two spaces"}},
		{"\ufeffdata: a\n\n", []string{"|a"}},
		{"data: a\n\n\ufeffdata: b\n\n", []string{"|a"}}, // a mark counts at the beginning only
		{"data: a\n\ndata: not closed\n", []string{"|a"}},
		{"data: a\n\ndata: not even a line", []string{"|a"}},
		{"data: {\"x\":\": y\"}\n\n", []string{`|{"x":": y"}`}},
		{"data:\n\n", []string{"|"}},
		{"", nil},
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.in), "bytes": iotest.OneByteReader(strings.NewReader(c.in)), "halves": iotest.HalfReader(strings.NewReader(c.in)),
		} {
			got, err := readAll(r)
			if !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q as %s: %q, %v; want %q", c.in, name, got, err, c.want)
			}
		}
	}
}

// TestEventsDoNotWaitForWhatFollows: the event is over with its empty line, whether or not a LF will follow the CR.
func TestEventsDoNotWaitForWhatFollows(t *testing.T) {
	in, out := io.Pipe()
	go fmt.Fprint(out, "data: a\r\n\r")
	if _, data, err := newEvents(in).next(); err != nil || string(data) != "a" {
		t.Errorf("%q, %v", data, err)
	}
	in.Close()
}

func TestEventsThatNeverEnd(t *testing.T) {
	for _, unit := range []string{"x", "data: " + strings.Repeat("x", 1000) + "\n"} {
		e := newEvents(&repeat{unit: unit})
		e.limit = 10_000
		if _, _, err := e.next(); !errors.Is(err, errEventTooLarge) {
			t.Errorf("%.10q for ever: %v", unit, err)
		}
	}
	if _, err := readAll(io.MultiReader(strings.NewReader("data: a\n"), iotest.ErrReader(io.ErrUnexpectedEOF))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that breaks: %v", err)
	}
}

// repeat reads as a text again and again.
type repeat struct {
	unit string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.unit[r.at%len(r.unit)]
		r.at++
	}
	return len(p), nil
}

// FuzzEvents compares with a parser that has the whole stream at once, and asks for the same events in any pieces.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: x\r\ndata: a\r\rdata: b\n\n:c\n\n"))
	f.Add([]byte("\ufeffdata\n\ndata: \r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		want := wholeEvents(string(in))
		whole, _ := readAll(bytes.NewReader(in))
		pieces, _ := readAll(iotest.OneByteReader(bytes.NewReader(in)))
		if !reflect.DeepEqual(whole, want) || !reflect.DeepEqual(pieces, want) {
			t.Errorf("whole %q, in pieces %q, want %q", whole, pieces, want)
		}
	})
}

func wholeEvents(in string) (all []string) {
	in = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(in, "\ufeff"))
	lines := strings.Split(in, "\n")
	var name string
	var data []string
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && data != nil:
			all = append(all, name+"|"+strings.Join(data, "\n"))
			name, data = "", nil
		case line == "":
			name = ""
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		}
	}
	return all
}
