package loadtest

import (
	"bufio"
	"errors"
	"io"
)

// maxEvent is the largest event that is read, in bytes: a server that never ends a line must not fill the memory.
const maxEvent = 16 << 20

var errEventTooLarge = errors.New("an event of the stream is too large")

// events reads server-sent events as the HTML standard defines them: lines end with LF, CR or CRLF, fields are
// "name: value" with one optional space, lines of data are joined by LF, a line that begins with a colon is a comment, and
// an event that is not closed by an empty line does not count.
type events struct {
	r      *bufio.Reader
	limit  int // bytes of an event
	line   []byte
	data   []byte
	began  bool // the first line was read
	skipLF bool // the last line ended with CR: a LF that follows belongs to it
}

func newEvents(r io.Reader) *events {
	return &events{r: bufio.NewReaderSize(r, 8<<10), limit: maxEvent}
}

// next gives the next event's name ("" where it has none) and data, which is valid until the next call. Events without
// data are left out. io.EOF is the end of the stream.
func (e *events) next() (name string, data []byte, err error) {
	e.data = e.data[:0]
	has := false
	for {
		line, err := e.readLine()
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			if has {
				return name, e.data[:len(e.data)-1], nil // without the last LF
			}
			name = ""
			continue
		}
		field, value := splitField(line)
		switch string(field) {
		case "data":
			has = true
			e.data = append(append(e.data, value...), '\n')
			if len(e.data) > e.limit {
				return "", nil, errEventTooLarge
			}
		case "event":
			name = string(value)
		}
	}
}

// splitField splits "name: value"; the name of a comment is empty.
func splitField(line []byte) (name, value []byte) {
	for i, c := range line {
		if c == ':' {
			value = line[i+1:]
			if len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			return line[:i], value
		}
	}
	return line, nil
}

// readLine gives the next line without its end. It never reads on after a CR to see whether a LF follows: that might take
// until the next event.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return nil, err
		}
		skip := e.skipLF && c == '\n'
		e.skipLF = false
		switch {
		case skip:
		case c == '\n' || c == '\r':
			e.skipLF = c == '\r'
			line := e.line
			if !e.began && len(line) >= 3 && string(line[:3]) == "\ufeff" {
				line = line[3:]
			}
			e.began = true
			return line, nil
		default:
			if e.line = append(e.line, c); len(e.line) > e.limit {
				return nil, errEventTooLarge
			}
		}
	}
}
