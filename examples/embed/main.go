// Command embed is the smallest program around the engine: it opens the built-in model, asks it one question and prints the
// answer as it comes.
//
//	go run ./examples/embed "What is the capital of France?"
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	question := strings.Join(os.Args[1:], " ")
	if question == "" {
		question = "What is the capital of France?"
	}
	err := ask(ctx, os.Stdout, local.Options{Model: local.Builtin}, question)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// ask opens the model that o names, writes its answer to w piece by piece, and closes it again.
func ask(ctx context.Context, w io.Writer, o local.Options, question string) error {
	eng, err := local.Open(ctx, o)
	if err != nil {
		return err
	}
	defer eng.Close()

	best := 0.0 // the likeliest token each time
	req := engine.Request{
		Messages: []engine.Message{{Role: "user", Content: question}},
		Params:   engine.Params{Temperature: &best, MaxTokens: 200},
	}
	for ev, err := range eng.Generate(ctx, req) {
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, ev.Text); err != nil {
			return err // leaving the loop cancels the request
		}
		if ev.FinishReason != "" {
			_, err = fmt.Fprintf(w, "\n(%s; %d tokens, on %s)\n", ev.FinishReason, ev.Usage.CompletionTokens, eng.Info().Adapter.Name)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
