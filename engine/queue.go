package engine

import (
	"context"
	"sync"
)

// queue carries events from the engine's goroutine to the reader of a stream. It never blocks the writer: a slow reader
// costs memory of its own request, at most one event per token, and nobody else's time.
type queue struct {
	mu     sync.Mutex
	events []Event
	err    error // set with closed; nil is a good end
	closed bool
	wake   chan struct{} // holds one element when there is news
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) put(ev Event) {
	q.mu.Lock()
	q.events = append(q.events, ev)
	q.mu.Unlock()
	q.signal()
}

// close ends the stream; later calls change nothing.
func (q *queue) close(err error) {
	q.mu.Lock()
	if !q.closed {
		q.closed, q.err = true, err
	}
	q.mu.Unlock()
	q.signal()
}

// take returns what has come since the last call, waiting for something. end means that nothing more will come.
func (q *queue) take(ctx context.Context) (events []Event, end bool, err error) {
	for {
		q.mu.Lock()
		events, q.events = q.events, nil
		end, err = q.closed, q.err
		q.mu.Unlock()
		if len(events) > 0 || end {
			return events, end, err
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, true, ctx.Err()
		}
	}
}
