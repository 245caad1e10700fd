package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestCancellableReader(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789", 20_000)
	if err := iotest.TestReader(newCancellableReader(t.Context(), strings.NewReader(text)), []byte(text)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, typed := io.Pipe()
	defer typed.Close()
	r := newCancellableReader(ctx, in)
	go func() {
		if _, err := io.WriteString(typed, "ab"); err != nil {
			t.Error(err)
		}
		cancel()
	}()
	got, err := io.ReadAll(r)
	if string(got) != "ab" || !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v", got, err)
	}
}
