package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
)

// sampleFlags are the flags that choose tokens. Unset ones mean what the model's generation_config.json says.
type sampleFlags struct {
	Temperature *float64 `placeholder:"T" help:"0 always takes the best token; 1 samples from the model's own distribution."`
	TopP        *float64 `placeholder:"P" help:"Sample from the likeliest tokens that together have this probability."`
	TopK        *int     `placeholder:"K" help:"Sample from this many of the likeliest tokens."`
	MinP        *float64 `placeholder:"P" help:"Drop tokens less likely than this fraction of the likeliest."`
	Seed        *int64   `placeholder:"N" help:"The same seed gives the same answer."`
	MaxTokens   *int     `placeholder:"N" help:"Longest answer in tokens. Default: the model's own limit (max_new_tokens), else what the context has room for."`
	Stop        []string `sep:"none" placeholder:"TEXT" help:"End the answer before this text; may be given again."`
	IgnoreEOS   bool     `name:"ignore-eos" help:"Go on after the model's end of answer."`
}

// params gives p with what the flags say.
func (f *sampleFlags) params(p engine.Params) (engine.Params, error) {
	override(&p.Temperature, f.Temperature)
	override(&p.TopP, f.TopP)
	override(&p.TopK, f.TopK)
	override(&p.MinP, f.MinP)
	override(&p.Seed, f.Seed)
	if f.MaxTokens != nil {
		if p.MaxTokens = *f.MaxTokens; p.MaxTokens < 1 {
			return p, usagef("--max-tokens must be at least 1, got %d", p.MaxTokens)
		}
	}
	if f.Stop != nil {
		p.Stop = f.Stop
	}
	p.IgnoreEOS = p.IgnoreEOS || f.IgnoreEOS
	return p, nil
}

func override[T any](to **T, flag *T) {
	if flag != nil {
		*to = flag
	}
}

type generateCmd struct {
	Model    string  `default:"builtin" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, builtin, or synthetic:NAME."`
	Prompt   *string `xor:"prompt" placeholder:"TEXT" help:"Text to continue."`
	ChatFile string  `name:"chat" xor:"prompt" placeholder:"FILE.json" help:"Conversation to answer: a list of {\"role\",\"content\"}, or a request of the OpenAI API (an object with \"messages\"; flags go before what it says); - is standard input."`
	TokenIDs *string `name:"token-ids" xor:"prompt" placeholder:"1,2,3" help:"Token ids to continue."`
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
	if _, err := eng.Tokenize("", false); !c.JSON && errors.Is(err, engine.ErrNoTokenizer) {
		return modelError{errors.New("this model has no tokenizer, so there is no text to print: --json prints token ids")}
	}
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
	switch {
	case c.Prompt != nil:
		req.Prompt = c.Prompt
	case c.TokenIDs != nil:
		req.TokenIDs, err = parseIDs(*c.TokenIDs)
	case c.ChatFile != "":
		req, err = readChat(a, c.ChatFile)
	default:
		err = usagef("generate: give one of --prompt, --chat and --token-ids")
	}
	if err == nil {
		req.Params, err = c.params(req.Params)
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

// readChat reads a conversation: a list of messages, or a body of /v1/chat/completions.
func readChat(a *app, file string) (engine.Request, error) {
	data, err := readFile(a, file)
	if err != nil {
		return engine.Request{}, usageError{err}
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		data = slices.Concat([]byte(`{"messages":`), data, []byte("}"))
	}
	call, err := openai.ParseChat(data)
	if err != nil {
		return engine.Request{}, usagef("%s: %w", file, err)
	}
	if call.Request.N > 1 {
		return engine.Request{}, usagef("%s: 'n' must be 1, since generate prints one answer, but is %d", file, call.Request.N)
	}
	for name, asked := range map[string]bool{
		"logprobs": call.Request.Params.Logprobs != nil, "prompt_logprobs": call.Request.Params.PromptLogprobs != nil,
	} {
		if asked { // costs time, and nothing here prints it
			call.Ignored = append(call.Ignored, name)
		}
	}
	slices.Sort(call.Ignored)
	call.Request.Params.Logprobs, call.Request.Params.PromptLogprobs = nil, nil
	if len(call.Ignored) > 0 {
		fmt.Fprintf(a.stderr, "pagelight: %s: ignored: %s\n", file, openai.IgnoredHeader(call.Ignored))
	}
	return call.Request, nil
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
