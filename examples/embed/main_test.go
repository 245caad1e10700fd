package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine/local"
)

func TestAsk(t *testing.T) {
	var out strings.Builder
	// The processor is everywhere; main takes the best device of the machine.
	if err := ask(t.Context(), &out, local.Options{Device: "cpu"}, "What is the capital of France?"); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "The capital of France is Paris.\n(stop; 10 tokens, on ") {
		t.Errorf("the answer is %q", got)
	}
}

func TestAskThatIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx, &strings.Builder{}, local.Options{Device: "cpu"}, "Hello"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
