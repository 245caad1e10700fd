package loadtest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// warmUp sends requests that do not count, as many at a time as the measurement will.
func (r *runner) warmUp(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := r.cfg.Concurrency
	if limit == 0 {
		limit = r.cfg.Warmups
	}
	seats := newSeats(limit)
	var all sync.WaitGroup
	for i := range r.cfg.Warmups {
		if !seats.take(ctx) {
			break
		}
		all.Go(func() {
			defer seats.give()
			req := r.cfg.Source.Request(-1 - i)
			body := r.cfg.Client.body(req, r.cfg.Options, i)
			if x, _ := r.attempt(ctx, body, time.Now()); x.Err != nil {
				cancel(fmt.Errorf("a warm-up request failed: %w", x.Err))
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// closed keeps a number of requests running: each worker sends its next one when the last has ended.
func (r *runner) closed(ctx context.Context) {
	workers := r.cfg.Concurrency
	if workers == 0 || r.cfg.Requests > 0 && r.cfg.Requests < workers {
		workers = r.cfg.Requests
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				i, ok := r.claim()
				if !ok || ctx.Err() != nil {
					return
				}
				req := r.cfg.Source.Request(i)
				body := r.cfg.Client.body(req, r.cfg.Options, i)
				r.send(ctx, i, req, body, time.Now())
			}
		})
	}
	all.Wait()
}

// claim gives the index of the next request of the closed loop, while there is one.
func (r *runner) claim() (i int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Requests > 0 && r.next == r.cfg.Requests || r.cfg.Duration > 0 && time.Since(r.start) >= r.cfg.Duration {
		return 0, false
	}
	r.next++
	return r.next - 1, true
}

// open sends requests when they are due, however many still run. Where Concurrency limits them, they queue here and their
// clock runs.
func (r *runner) open(ctx context.Context) {
	arrivals := NewArrivals(r.cfg.Rate, r.cfg.Burstiness, r.cfg.Seed)
	seats := newSeats(r.cfg.Concurrency)
	var all sync.WaitGroup
	defer all.Wait()
	for i := 0; r.cfg.Requests == 0 || i < r.cfg.Requests; i++ {
		at := arrivals.Next()
		if r.cfg.Duration > 0 && at > r.cfg.Duration {
			return
		}
		// The body is made before the request is due, so that making it takes nothing from the measurement.
		req := r.cfg.Source.Request(i)
		body := r.cfg.Client.body(req, r.cfg.Options, i)
		due := r.start.Add(at)
		if !sleep(ctx, time.Until(due)) {
			return
		}
		all.Go(func() {
			if !seats.take(ctx) {
				// It was due and was never sent; leaving it out would hide that.
				r.enter()
				r.leave(Result{
					Index: i, Scheduled: at, Sent: time.Since(r.start), Wanted: req.wanted(),
					Exchange: Exchange{Err: contextFault(ctx)},
				})
				return
			}
			defer seats.give()
			r.send(ctx, i, req, body, due)
		})
	}
}

// send sends one request and books its result.
func (r *runner) send(ctx context.Context, i int, req Request, body []byte, due time.Time) {
	r.enter()
	if r.cfg.RequestTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.cfg.RequestTimeout, errRequestTimeout)
		defer cancel()
	}
	sent := time.Now()
	x, retries := r.attempt(ctx, body, r.start)
	r.leave(Result{
		Index: i, Scheduled: due.Sub(r.start), Sent: sent.Sub(r.start), Exchange: x, Retries: retries, Wanted: req.wanted(),
	})
}

// attempt sends a body, and again after a 429 as often as is allowed. Times count from epoch.
func (r *runner) attempt(ctx context.Context, body []byte, epoch time.Time) (x Exchange, retries int) {
	for {
		x = r.cfg.Client.send(ctx, body, epoch)
		if x.Err == nil || x.Err.Status != http.StatusTooManyRequests || retries == r.cfg.MaxRetries {
			return x, retries
		}
		wait := x.Err.RetryAfter
		if wait <= 0 {
			wait = time.Second
		}
		if !sleep(ctx, wait) {
			x.Err = contextFault(ctx)
			return x, retries
		}
		retries++
	}
}

func (r *runner) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight++
	r.maxInFlight = max(r.maxInFlight, r.inFlight)
}

func (r *runner) leave(res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	r.end = max(r.end, time.Since(r.start))
	if res.Err != nil {
		r.failed++
	} else {
		r.tokens += res.OutputTokens()
	}
	r.results = append(r.results, res)
}

// sleep waits for d; false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// seats limits how many run; nil has no limit.
type seats chan struct{}

func newSeats(n int) seats {
	if n <= 0 {
		return nil
	}
	return make(seats, n)
}

// take waits for a seat; false when ctx ended before.
func (s seats) take(ctx context.Context) bool {
	if s == nil {
		return ctx.Err() == nil
	}
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s seats) give() {
	if s != nil {
		<-s
	}
}
