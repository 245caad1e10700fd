package loadtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Dataset takes requests from a list, which it goes through again and again.
type Dataset struct {
	entries []entry
	order   []int
	output  Lengths
	seed    uint64
}

// entry is one line of the file.
type entry struct {
	Prompt       json.RawMessage `json:"prompt"`
	Messages     json.RawMessage `json:"messages"`
	OutputTokens int             `json:"output_tokens"`

	text string
	ids  []int32
}

// ReadDataset reads lines of JSON: {"prompt": "text"}, {"prompt": [1, 2, 3]} for token ids, or {"messages": […]} for a
// chat, each with "output_tokens" where the answer's length is known; output is for lines without. Other fields are passed
// over. With shuffle the order is random, and depends on the seed alone.
func ReadDataset(r io.Reader, backend Backend, output Lengths, shuffle bool, seed uint64) (*Dataset, error) {
	d := &Dataset{output: output, seed: seed}
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxEvent)
	for n := 1; in.Scan(); n++ {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		e, err := readEntry(line, backend)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		d.entries = append(d.entries, e)
		d.order = append(d.order, len(d.order))
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(d.entries) == 0 {
		return nil, errors.New("there is no prompt in it")
	}
	if shuffle {
		newRand(seed, streamShuffle).Shuffle(len(d.order), func(i, j int) { d.order[i], d.order[j] = d.order[j], d.order[i] })
	}
	return d, nil
}

func readEntry(line []byte, backend Backend) (e entry, err error) {
	if !utf8.Valid(line) {
		return e, errors.New("not valid UTF-8")
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("no JSON object with a prompt: %w", err)
	}
	null := func(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
	switch {
	case e.OutputTokens < 0:
		return e, fmt.Errorf("output_tokens is %d", e.OutputTokens)
	case null(e.Messages) && null(e.Prompt):
		return e, errors.New("neither \"prompt\" nor \"messages\"")
	case !null(e.Messages) && !null(e.Prompt):
		return e, errors.New("both \"prompt\" and \"messages\"")
	case !null(e.Messages):
		var list []json.RawMessage
		if json.Unmarshal(e.Messages, &list) != nil || len(list) == 0 {
			return e, errors.New("\"messages\" is no list of messages")
		}
		if backend != Chat {
			return e, errors.New("a chat is for --backend openai-chat")
		}
		return e, nil
	}
	e.Messages = nil
	if json.Unmarshal(e.Prompt, &e.text) == nil {
		if e.text == "" {
			return e, errors.New("an empty prompt")
		}
		return e, nil
	}
	if json.Unmarshal(e.Prompt, &e.ids) != nil || len(e.ids) == 0 {
		return e, errors.New("\"prompt\" is neither a text nor a list of token ids")
	}
	if backend != Completions {
		return e, errors.New("token ids are for --backend openai")
	}
	return e, nil
}

// Len is how many prompts there are.
func (d *Dataset) Len() int { return len(d.entries) }

// Request gives request i. The warm-up gets the entries from the end of the order on.
func (d *Dataset) Request(i int) Request {
	n := len(d.order)
	e := d.entries[d.order[((i%n)+n)%n]]
	r := Request{Text: e.text, IDs: e.ids, Messages: e.Messages, Input: len(e.ids), Output: e.OutputTokens}
	if r.Output == 0 {
		r.Output = d.output.Draw(newRand(d.seed, streamRequests+uint64(i)))
	}
	return r
}
