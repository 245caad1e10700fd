package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/pagelight/pagelight/engine"
)

// sampleFlags are the flags that choose tokens. Unset ones mean what the model's generation_config.json says.
type sampleFlags struct {
	Temperature *float64 `placeholder:"T" help:"0 always takes the best token; 1 samples from the model's own distribution."`
	TopP        *float64 `placeholder:"P" help:"Sample from the likeliest tokens that together have this probability."`
	TopK        *int     `placeholder:"K" help:"Sample from this many of the likeliest tokens."`
	MinP        *float64 `placeholder:"P" help:"Drop tokens less likely than this fraction of the likeliest."`
	Seed        *int64   `placeholder:"N" help:"The same seed gives the same answer."`
	MaxTokens   int      `placeholder:"N" help:"Longest answer in tokens. Default: what the context has room for."`
	Stop        []string `sep:"none" placeholder:"TEXT" help:"End the answer before this text; may be given again."`
	IgnoreEOS   bool     `name:"ignore-eos" help:"Go on after the model's end of answer."`
}

func (f *sampleFlags) params() engine.Params {
	return engine.Params{
		Temperature: f.Temperature, TopP: f.TopP, TopK: f.TopK, MinP: f.MinP, Seed: f.Seed,
		MaxTokens: f.MaxTokens, Stop: f.Stop, IgnoreEOS: f.IgnoreEOS,
	}
}

type generateCmd struct {
	Model    string  `default:"builtin" help:"The model: a folder, a file in one, builtin, or synthetic:NAME."`
	Prompt   *string `xor:"prompt" placeholder:"TEXT" help:"Text to continue."`
	ChatFile string  `name:"chat" xor:"prompt" placeholder:"FILE.json" help:"Conversation to answer: a list of {\"role\",\"content\"}, or an object with \"messages\"; - is standard input."`
	TokenIDs string  `name:"token-ids" xor:"prompt" placeholder:"1,2,3" help:"Token ids to continue."`
	JSON     bool    `name:"json" help:"Print {\"token_ids\",\"text\",\"finish_reason\",\"usage\"} instead of the text."`
	sampleFlags
	modelFlags
}

// generated is what generate --json prints.
type generated struct {
	TokenIDs     []int32             `json:"token_ids"`
	Text         string              `json:"text"`
	FinishReason engine.FinishReason `json:"finish_reason"`
	Usage        engine.Usage        `json:"usage"`
}

// Run answers one prompt.
func (c *generateCmd) Run(a *app) error {
	req, err := c.request(a)
	if err != nil {
		return err
	}
	eng, err := c.open(a, c.Model, engine.Config{})
	if err != nil {
		return err
	}
	defer eng.Close()
	out := generated{TokenIDs: []int32{}}
	var text strings.Builder
	for ev, err := range eng.Generate(a.ctx, req) {
		if err != nil {
			return err
		}
		if c.JSON {
			text.WriteString(ev.Text)
			out.TokenIDs = append(out.TokenIDs, ev.TokenIDs...)
			out.FinishReason, out.Usage = ev.FinishReason, ev.Usage
		} else if _, err := io.WriteString(a.stdout, ev.Text); err != nil {
			return err
		}
	}
	if !c.JSON {
		_, err := fmt.Fprintln(a.stdout)
		return err
	}
	out.Text = text.String()
	return printJSON(a.stdout, out)
}

func (c *generateCmd) request(a *app) (req engine.Request, err error) {
	req.Params = c.params()
	switch {
	case c.Prompt != nil:
		req.Prompt = c.Prompt
	case c.TokenIDs != "":
		req.TokenIDs, err = parseIDs(c.TokenIDs)
	case c.ChatFile != "":
		req.Messages, err = readMessages(a, c.ChatFile)
	default:
		err = usagef("generate: give one of --prompt, --chat and --token-ids")
	}
	return req, err
}

func parseIDs(s string) ([]int32, error) {
	var ids []int32
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		id, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			return nil, usagef("--token-ids: %q is no token id", f)
		}
		ids = append(ids, int32(id))
	}
	if len(ids) == 0 {
		return nil, usagef("--token-ids: no ids in %q", s)
	}
	return ids, nil
}

// readMessages reads a conversation.
func readMessages(a *app, file string) ([]engine.Message, error) {
	data, err := readFile(a, file)
	if err != nil {
		return nil, usageError{err}
	}
	var body struct {
		Messages []engine.Message `json:"messages"`
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		err = json.Unmarshal(data, &body.Messages)
	} else {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		return nil, usagef("%s: %w", file, err)
	}
	if len(body.Messages) == 0 {
		return nil, usagef("%s: no messages", file)
	}
	return body.Messages, nil
}

func readFile(a *app, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.stdin)
	}
	return os.ReadFile(name)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
