package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
)

type tokenizeCmd struct {
	Model    string `default:"builtin" help:"The model: a folder, a file in one, builtin, or synthetic:NAME."`
	Decode   bool   `help:"The reverse: lines of JSON arrays of ids in, JSON strings out."`
	Special  bool   `help:"Special tokens spelled in the text become their ids, as when a prompt is completed."`
	JSON     bool   `name:"json" hidden:"" help:"The output is always JSON."`
	LogLevel string `enum:"debug,info,warn,error" default:"warn" hidden:"" help:"Not used."`
}

// Help explains the format.
func (tokenizeCmd) Help() string {
	return `Reads one JSON string per line from standard input and prints one JSON array of token ids per line.
A line that is no JSON string ends the command with its number.`
}

// Run tokenizes standard input line by line.
func (c *tokenizeCmd) Run(a *app) error {
	src, err := local.OpenModel(c.Model, "none", nil)
	if err != nil {
		return modelError{err}
	}
	defer src.Close()
	text, err := engine.OpenText(a.ctx, src)
	if err != nil {
		return modelError{err}
	}
	in := bufio.NewReader(a.stdin)
	out := bufio.NewWriter(a.stdout)
	for n := 1; ; n++ {
		line, readErr := in.ReadString('\n')
		if line = strings.TrimSpace(line); line != "" {
			if err := c.line(text, out, line); err != nil {
				return errors.Join(fmt.Errorf("tokenize: line %d: %w", n, err), out.Flush())
			}
		}
		switch {
		case readErr == io.EOF:
			return out.Flush()
		case readErr != nil:
			return readErr
		case in.Buffered() == 0: // whoever feeds lines one by one gets answers one by one
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

func (c *tokenizeCmd) line(text *engine.Text, out io.Writer, line string) error {
	if c.Decode {
		var ids []int32
		if err := json.Unmarshal([]byte(line), &ids); err != nil {
			return usagef("no JSON array of token ids: %w", err)
		}
		s, err := text.Detokenize(ids, false)
		if err != nil {
			return err
		}
		return printJSON(out, s)
	}
	var s string
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return usagef("no JSON string: %w", err)
	}
	ids, err := text.Tokenize(s, c.Special)
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	return printJSON(out, ids)
}
