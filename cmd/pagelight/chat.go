package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pagelight/pagelight/engine"
)

type chatCmd struct {
	Model  string `arg:"" optional:"" default:"builtin" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, builtin, or synthetic:NAME."`
	System string `placeholder:"TEXT" help:"Instructions that come before the conversation."`
	JSON   bool   `name:"json" help:"Print one JSON object per answer ({\"role\",\"content\",\"finish_reason\",\"usage\"}) instead of text."`
	sampleFlags
	modelFlags
}

// Help explains how to talk.
func (chatCmd) Help() string {
	return `Each line of standard input is a turn. On a terminal: /new begins a new conversation, /exit or Ctrl-D ends the
program, Ctrl-C stops an answer. The conversation is kept in memory only.`
}

// chatAnswer is what chat --json prints.
type chatAnswer struct {
	Role         string              `json:"role"`
	Content      string              `json:"content"`
	FinishReason engine.FinishReason `json:"finish_reason"`
	Usage        engine.Usage        `json:"usage"`
}

// Run reads turns and answers them.
func (c *chatCmd) Run(a *app) error {
	if _, err := c.params(engine.Params{}); err != nil {
		return err // before the model is loaded
	}
	eng, err := c.open(a, c.Model, engine.Config{})
	if err != nil {
		return err
	}
	defer eng.Close()
	person := a.person && !c.JSON
	if person {
		info := eng.Info()
		fmt.Fprintf(a.stderr, "%s (%s) on %s. /new begins again, /exit ends, Ctrl-C stops an answer.\n", info.Model, info.Weights, info.Adapter.Name)
	}
	in := bufio.NewReader(a.stdin)
	history := c.begin()
	for {
		if person {
			fmt.Fprint(a.stderr, "> ")
		}
		line, readErr := in.ReadString('\n')
		switch line = strings.TrimSpace(line); line {
		case "":
		case "/exit", "/quit":
			return nil
		case "/new":
			history = c.begin()
		default:
			if history, err = c.turn(a, eng, history, line, person); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			if person {
				fmt.Fprintln(a.stderr)
			}
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

func (c *chatCmd) begin() []engine.Message {
	if c.System == "" {
		return nil
	}
	return []engine.Message{{Role: "system", Content: c.System}}
}

// turn answers one line and gives the longer history. An answer that a person stopped is kept as far as it came. A person
// may go on after an error; a script may not.
func (c *chatCmd) turn(a *app, eng *engine.Engine, history []engine.Message, line string, person bool) ([]engine.Message, error) {
	ctx, stop := context.WithCancel(a.ctx)
	defer stop()
	if person {
		defer a.interrupts.instead(stop)()
	}
	params, err := c.params(engine.Params{})
	if err != nil {
		return history, err
	}
	asked := append(history[:len(history):len(history)], engine.Message{Role: "user", Content: line})
	out := chatAnswer{Role: "assistant"}
	var timing engine.Timing
	var failed error
	for ev, err := range eng.Generate(ctx, engine.Request{Messages: asked, Params: params}) {
		if err != nil {
			failed = err
			break
		}
		out.Content += ev.Text
		out.FinishReason, out.Usage, timing = ev.FinishReason, ev.Usage, ev.Timing
		if !c.JSON {
			if _, err := io.WriteString(a.stdout, ev.Text); err != nil {
				return history, err
			}
		}
	}
	if !c.JSON && (failed == nil || out.Content != "") {
		if _, err := fmt.Fprintln(a.stdout); err != nil {
			return history, err
		}
	}
	full := (*engine.ContextLengthError)(nil)
	switch {
	case failed == nil:
	case a.ctx.Err() != nil:
		return history, failed
	case person && errors.As(failed, &full):
		fmt.Fprintf(a.stderr, "%v; /new begins again\n", failed)
		return history, nil
	case person && errors.Is(failed, context.Canceled):
		fmt.Fprintln(a.stderr, "(stopped)")
	case person && !errors.Is(failed, engine.ErrDeviceLost):
		fmt.Fprintf(a.stderr, "%v\n", failed)
		return history, nil
	default:
		return history, failed
	}
	if person && failed == nil && timing.Decode > 0 {
		rate := float64(out.Usage.CompletionTokens-1) / timing.Decode.Seconds()
		fmt.Fprintf(a.stderr, "(%d tokens, %.1f tokens/s, first after %s)\n", out.Usage.CompletionTokens, rate, timing.FirstToken.Round(time.Millisecond))
	}
	if c.JSON {
		if err := printJSON(a.stdout, out); err != nil {
			return history, err
		}
	}
	return append(asked, engine.Message{Role: "assistant", Content: out.Content}), nil
}
