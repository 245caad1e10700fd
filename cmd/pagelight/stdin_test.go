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
	}()
	got := make([]byte, 2)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "ab" {
		t.Errorf("%q, %v", got, err)
	}
	cancel()
	if n, err := r.Read(got); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
