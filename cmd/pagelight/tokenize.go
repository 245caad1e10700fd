package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
)

type tokenizeCmd struct {
	Model   string `default:"builtin" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, builtin, or synthetic:NAME."`
	Decode  bool   `help:"The reverse: lines of JSON arrays of ids in, JSON strings out."`
	Special bool   `help:"Special tokens spelled in the text become their ids, as when a prompt is completed."`
	JSON    bool   `name:"json" hidden:"" help:"The output is always JSON."`
	noDevice
}

// noDevice are the flags of a command that needs no device: what every other command takes is no fault here either.
type noDevice struct {
	Device      string   `enum:"auto,gpu,cpu" default:"auto" hidden:""`
	Quant       string   `enum:"none,q8,q4" default:"none" hidden:""`
	KV          string   `name:"kv" enum:"f16,f32,int8" default:"f16" hidden:""`
	GPUMemory   byteSize `name:"gpu-memory" hidden:""`
	MaxModelLen int      `hidden:""`
	LogLevel    string   `enum:"debug,info,warn,error" default:"warn" hidden:""`
}

// Help explains the format.
func (tokenizeCmd) Help() string {
	return `Reads one JSON string per line from standard input and prints one JSON array of token ids per line.
A line that is no JSON string ends the command with its number.`
}

// Run tokenizes standard input line by line.
func (c *tokenizeCmd) Run(a *app) error {
	if err := a.fetchModel(c.Model, nil); err != nil {
		return err
	}
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
	if !utf8.ValidString(line) {
		return usagef("not valid UTF-8")
	}
	if line == "null" { // which encoding/json takes for an empty anything
		return usagef("null is neither a text nor a list of ids")
	}
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
