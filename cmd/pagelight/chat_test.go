package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestChatFromAPipe(t *testing.T) {
	t.Parallel()
	const turns = "Hello!\n\n/new\nHello!\n/exit\nnever read\n"
	args := []string{"chat", "--device", "cpu", "--temperature", "0", "--max-tokens", "6"}
	lines := strings.Split(strings.TrimSpace(succeeds(t, turns, append(args, "--json")...)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d answers: %q", len(lines), lines)
	}
	if k := strings.Join(keys(t, lines[0]), " "); k != "role content finish_reason usage" {
		t.Errorf("keys %q", k)
	}
	var first, second chatAnswer
	for i, to := range []*chatAnswer{&first, &second} {
		if err := json.Unmarshal([]byte(lines[i]), to); err != nil {
			t.Fatal(err)
		}
	}
	if first.Content == "" || first != second {
		t.Errorf("after /new the answer is %+v, before it was %+v", second, first)
	}
	if got, want := succeeds(t, turns, args...), first.Content+"\n"+second.Content+"\n"; got != want {
		t.Errorf("as text %q, want %q", got, want)
	}
	// The second turn sees the first, so its prompt is longer.
	lines = strings.Split(strings.TrimSpace(succeeds(t, "Hello!\nHello!", append(args, "--json")...)), "\n")
	if len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &second) != nil || second.Usage.PromptTokens <= first.Usage.PromptTokens {
		t.Errorf("the second turn is %q", lines)
	}
	fails(t, exitUsage, "\xff\n", []string{"not valid UTF-8"}, args...)
	fails(t, exitUsage, strings.Repeat("long ", 3000)+"\n", []string{"maximum context length is 2048 tokens"}, args...)
}

// screen is the output of a program that somebody watches.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// waitFor waits until a screen shows something.
func (s *screen) waitFor(t *testing.T, what string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(s.String(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the screen does not show %q but %q", what, s.String())
		}
	}
}

// TestChatWithAPerson types, and presses Ctrl-C in the middle of an answer: that ends the answer and not the program.
func TestChatWithAPerson(t *testing.T) {
	t.Parallel()
	in, keyboard := io.Pipe()
	var out, notes screen
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &app{ctx: ctx, stdin: in, stdout: &out, stderr: &notes, person: true, interrupts: &interrupts{}}
	c := &chatCmd{Model: "builtin", modelFlags: modelFlags{Device: "cpu", Quant: "none", KV: "f16", LogLevel: "error"}}
	c.IgnoreEOS = true
	ended := make(chan error, 1)
	go func() { ended <- c.Run(a) }()
	typed := func(line string) {
		if _, err := io.WriteString(keyboard, line+"\n"); err != nil {
			t.Error(err)
		}
	}
	notes.waitFor(t, "> ")
	if a.interrupts.taken() {
		t.Error("Ctrl-C at the prompt is taken; it should end the program")
	}
	typed("Hello!")
	out.waitFor(t, "Nice")
	if !a.interrupts.taken() {
		t.Error("Ctrl-C during an answer is not taken")
	}
	notes.waitFor(t, "(stopped)")
	typed(strings.Repeat("long ", 3000))
	notes.waitFor(t, "/new begins again\n> ")
	typed("/new")
	typed("/exit")
	if err := <-ended; err != nil {
		t.Errorf("the chat ended with %v; the screen is %q", err, notes.String())
	}
}

func TestInterrupts(t *testing.T) {
	t.Parallel()
	var i interrupts
	if i.taken() {
		t.Error("taken by nobody")
	}
	calls := 0
	undo := i.instead(func() { calls++ })
	if !i.taken() || calls != 1 {
		t.Errorf("the hook was called %d times", calls)
	}
	undo()
	if i.taken() || calls != 1 {
		t.Errorf("after undo the hook was called again")
	}
}
