package main

import (
	"context"
	"io"
)

// cancellableReader reads from r until ctx ends, also while r waits for somebody to type. It belongs to one goroutine.
type cancellableReader struct {
	ctx     context.Context
	r       io.Reader
	results chan readResult
	waiting bool // a read of r is under way
	rest    readResult
}

type readResult struct {
	data []byte
	err  error
}

func newCancellableReader(ctx context.Context, r io.Reader) *cancellableReader {
	return &cancellableReader{ctx: ctx, r: r, results: make(chan readResult, 1)}
}

// Read reads what is there. When ctx has ended it returns the error of ctx; a read that r does not end is left behind.
func (c *cancellableReader) Read(p []byte) (int, error) {
	if len(c.rest.data) == 0 && c.rest.err == nil {
		if !c.waiting {
			c.waiting = true
			go func() {
				buf := make([]byte, 1<<16)
				n, err := c.r.Read(buf)
				c.results <- readResult{buf[:n], err}
			}()
		}
		select {
		case c.rest = <-c.results:
			c.waiting = false
		case <-c.ctx.Done():
			return 0, c.ctx.Err()
		}
	}
	n := copy(p, c.rest.data)
	if c.rest.data = c.rest.data[n:]; len(c.rest.data) > 0 {
		return n, nil
	}
	return n, c.rest.err
}
