// Package loadtest measures a server that speaks OpenAI's API: it sends streaming requests, alone, a fixed number at a time
// or at random times, and records when each piece of each answer arrives.
//
// It owns the clock of a measurement, the workload and the statistics. It knows nothing of the engine: any server will do,
// and Pagelight's own is measured from outside like every other.
//
// The measures have the names and the meaning of "vllm bench serve":
//
//	TTFT  time to first token: until the first chunk of the stream that carries output
//	ITL   inter-token latency: each gap between two chunks that carry output; all gaps of all requests are samples
//	TPOT  time per output token: (E2EL - TTFT) / (output tokens - 1), one sample a request of at least 2 tokens
//	E2EL  end-to-end latency: until the last chunk of the answer
//
// One thing differs. In the open loop a request has a time at which it is due, and its latency counts from then, not from
// when the client got around to sending it: a client that waits for a slow server and then measures only from the sending
// leaves out what its users wait ("coordinated omission"). TTFT and E2EL from the sending are reported beside.
package loadtest

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// Config says what to send, and when.
type Config struct {
	Client  *Client
	Source  Source
	Options RequestOptions

	// Requests is how many to send; 0 has no such limit. Duration is for how long new ones are sent, 0 without such a limit;
	// those that run then are waited for. At least one of the two is set.
	Requests int
	Duration time.Duration

	// Rate is the number of requests that are due per second, on average; 0 or +Inf is the closed loop, in which the next
	// request is sent when one has ended.
	Rate       float64
	Burstiness float64 // of arrivals at a Rate: see Arrivals; 0 is 1
	// Concurrency is how many requests run at most. 0 has no limit at a Rate, and is all Requests at once in the closed loop.
	Concurrency int
	Seed        uint64 // of the arrivals; the Source has its own

	Warmups        int           // requests before the measurement
	RequestTimeout time.Duration // of one request, with its retries; 0 is none
	TimeLimit      time.Duration // of the whole measurement: what runs then is given up; 0 is none
	MaxRetries     int           // of one request after a 429; each waits as long as the server says in Retry-After

	// Progress, when not nil, is called every ProgressEvery (0 is 200 ms) from one goroutine, and once at the end.
	Progress      func(Snapshot)
	ProgressEvery time.Duration
}

// Snapshot is how far a measurement is.
type Snapshot struct {
	WarmingUp    bool
	Elapsed      time.Duration // since the start of the measurement
	Planned      int           // requests in all; 0 when only the time is limited
	Finished     int           // requests, failed ones too
	Failed       int
	InFlight     int
	OutputTokens int // of finished requests
}

// Result is what one request did. Times count from the start of the measurement.
type Result struct {
	Index     int
	Scheduled time.Duration // when it was due: in the closed loop, when it was sent
	Sent      time.Duration // before the first byte of the first attempt was written
	Exchange                // of the last attempt
	Retries   int           // attempts after a 429
	Wanted    TokenCounts   // what was asked for
}

// TokenCounts are the lengths of a prompt and of its answer, in tokens; 0 where unknown.
type TokenCounts struct{ Input, Output int }

// Outcome is a whole measurement.
type Outcome struct {
	Results     []Result // in order of their ends
	Start       time.Time
	Duration    time.Duration // until the last request ended
	MaxInFlight int
	OpenLoop    bool
	Stopped     error // why it ended before its time: ErrTimeLimit or the context's error
}

// ErrTimeLimit is the end of a measurement by its TimeLimit.
var ErrTimeLimit = errors.New("the time limit of the measurement was reached")

// errRequestTimeout is the end of a request by its timeout.
var errRequestTimeout = errors.New("the request took too long")

func (c *Config) openLoop() bool { return c.Rate > 0 && !math.IsInf(c.Rate, 1) }

func (c *Config) check() error {
	switch {
	case c.Requests < 0 || c.Duration < 0 || c.Concurrency < 0 || c.Warmups < 0 || c.MaxRetries < 0 || c.RequestTimeout < 0 || c.TimeLimit < 0:
		return errors.New("loadtest: a number of the configuration is negative")
	case c.Requests == 0 && c.Duration == 0:
		return errors.New("loadtest: neither the number of requests nor the duration is limited")
	case math.IsNaN(c.Rate) || c.Rate < 0 || math.IsNaN(c.Burstiness) || c.Burstiness < 0:
		return errors.New("loadtest: rate and burstiness must not be negative")
	case !c.openLoop() && c.Concurrency == 0 && c.Requests == 0:
		return errors.New("loadtest: a closed loop needs a number of requests or a concurrency")
	}
	return nil
}

// Run warms up, measures and returns what happened. Requests that fail are results, not errors; the error is of a wrong
// configuration or of a warm-up request. When ctx ends, so does the measurement, and its outcome so far is returned.
func Run(ctx context.Context, cfg Config) (*Outcome, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Burstiness == 0 {
		cfg.Burstiness = 1
	}
	r := &runner{cfg: cfg, start: time.Now(), warming: cfg.Warmups > 0}
	defer r.watch()()
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	if cfg.TimeLimit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.TimeLimit, ErrTimeLimit)
		defer cancel()
	}
	r.mu.Lock()
	r.start, r.warming = time.Now(), false
	r.mu.Unlock()
	if cfg.openLoop() {
		r.open(ctx)
	} else {
		r.closed(ctx)
	}
	out := &Outcome{Results: r.results, Start: r.start, Duration: r.end, MaxInFlight: r.maxInFlight, OpenLoop: cfg.openLoop()}
	if ctx.Err() != nil {
		out.Stopped = context.Cause(ctx)
	}
	return out, nil
}

// runner is the state of one measurement.
type runner struct {
	cfg Config

	mu          sync.Mutex // guards what follows
	start       time.Time
	warming     bool
	results     []Result
	end         time.Duration // of the request that ended last
	inFlight    int
	maxInFlight int
	next        int // index of the next request of the closed loop
	failed      int
	tokens      int
}

// watch calls Progress until the returned function is called, which calls it a last time.
func (r *runner) watch() (stop func()) {
	if r.cfg.Progress == nil {
		return func() {}
	}
	every := r.cfg.ProgressEvery
	if every <= 0 {
		every = 200 * time.Millisecond
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.cfg.Progress(r.snapshot())
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		r.cfg.Progress(r.snapshot())
	}
}

func (r *runner) snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Snapshot{
		WarmingUp: r.warming, Elapsed: time.Since(r.start), Planned: r.cfg.Requests, Finished: len(r.results),
		Failed: r.failed, InFlight: r.inFlight, OutputTokens: r.tokens,
	}
}
