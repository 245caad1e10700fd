package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// executor is what the loop needs of the runner; tests use a fake.
type executor interface {
	Step(ctx context.Context, p *sched.Plan, want runner.Want) (runner.Result, error)
	StepTop(ctx context.Context, p *sched.Plan, draws []sample.Draw) (runner.Result, error)
	ReadLogits(ctx context.Context, row int) ([]float32, error)
	OpenAdjust(ctx context.Context) error
	Begin(p *sched.Plan, rows []runner.BurstRow, choice runner.Choice) error
	Room() int
	Burst(p *sched.Plan, steps int) error
	Collect(ctx context.Context) (runner.Burst, error)
	Clock() runner.Clock
	Close()
}

// loop is the one goroutine that owns scheduler, cache and device.
type loop struct {
	exec     executor
	sched    *sched.Scheduler
	pool     *kvcache.Pool
	log      *slog.Logger
	observer Observer // or nil
	// hardware has the device find the candidates of sampling, and change logits before it chooses. On software adapters reading all
	// logits is quicker.
	hardware bool

	inbox   chan []*job      // new work: the answers of a request
	calls   chan func(*loop) // what is to run on this goroutine while there is no other work
	waiting atomic.Int32     // requests that wait to be taken from inbox
	wanted  chan struct{}    // has a token when a request came while calls ran
	quit    chan struct{}    // closed by Close
	stopped chan struct{}    // closed when the goroutine has ended

	jobs      map[*sched.Sequence]*job
	meter     meter
	published time.Time
	draws     []sample.Draw // of a step's rows
	record    StepRecord    // of the step that is handed out
	bursts    bursts

	mu    sync.Mutex // guards stats
	stats Stats
}

func newLoop(exec executor, s *sched.Scheduler, pool *kvcache.Pool, log *slog.Logger, observer Observer) *loop {
	return &loop{
		exec: exec, sched: s, pool: pool, log: log, observer: observer,
		inbox: make(chan []*job), calls: make(chan func(*loop)), wanted: make(chan struct{}, 1), quit: make(chan struct{}), stopped: make(chan struct{}),
		jobs: map[*sched.Sequence]*job{}, bursts: bursts{time: burstTime},
	}
}

// submit hands a request's answers to the loop, or says why it cannot.
func (l *loop) submit(jobs []*job) error {
	g := jobs[0].group
	g.submitted = time.Now()
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	select {
	case l.wanted <- struct{}{}:
	default: // it is known already
	}
	select {
	case l.inbox <- jobs:
		return nil
	case <-l.quit:
		return ErrClosed
	case <-l.stopped:
		return ErrClosed
	case <-g.ctx.Done():
		return g.ctx.Err()
	}
}

// close ends the loop: running requests end with ErrClosed.
func (l *loop) close() {
	close(l.quit)
	<-l.stopped
}

func (l *loop) run() {
	defer close(l.stopped)
	defer l.exec.Close()
	for {
		if !l.receive() {
			l.failAll(ErrClosed)
			return
		}
		l.dropCancelled()
		plan := l.sched.Schedule()
		if len(plan.Chunks) == 0 {
			l.idle()
			continue
		}
		done, err := l.burst(plan)
		if !done {
			err = l.step(plan)
		}
		if err != nil {
			l.log.Error("step failed", "err", err, "tokens", plan.NumTokens)
			if errors.Is(err, gpu.ErrDeviceLost) {
				l.failAll(err)
			} else {
				for _, c := range plan.Chunks {
					l.fail(c.Seq, err)
				}
			}
		}
		l.publish(false)
	}
}

// receive takes what is in the inbox, waiting when there is nothing else to do. It returns false when the loop is to end.
func (l *loop) receive() bool {
	for {
		var jobs []*job
		if len(l.jobs) == 0 {
			select {
			case jobs = <-l.inbox:
			case call := <-l.calls:
				call(l)
				continue
			case <-l.quit:
				return false
			}
		} else {
			select {
			case jobs = <-l.inbox:
			case <-l.quit:
				return false
			default:
				return true
			}
		}
		l.admit(jobs)
	}
}

// admit queues a request: all of its answers, or none.
func (l *loop) admit(jobs []*job) {
	if most := l.sched.MaxSequences(); most > 0 && len(jobs) > most {
		// Not ErrQueueFull: trying again later would never help.
		jobs[0].out.close(&ParamError{"n", fmt.Sprintf("must be at most %d, the number of answers that run or wait here, got %d", most, len(jobs))})
		return
	}
	for i, j := range jobs {
		err := l.sched.Add(j.seq)
		if err == nil {
			continue
		}
		for _, added := range jobs[:i] {
			l.sched.Remove(added.seq)
		}
		if errors.Is(err, sched.ErrQueueFull) {
			err = ErrQueueFull
		}
		j.out.close(err)
		return
	}
	for _, j := range jobs {
		l.jobs[j.seq] = j
	}
}

// idle runs when nothing can be computed: then nothing may be held either.
func (l *loop) idle() {
	if err := l.sched.Check(); err != nil {
		panic("BUG: " + err.Error())
	}
	if len(l.jobs) > 0 {
		panic(fmt.Sprintf("BUG: engine: %d answers can never be scheduled", len(l.jobs)))
	}
	l.publish(true)
}

func (l *loop) dropCancelled() {
	for seq, j := range l.jobs {
		if err := j.ctx.Err(); err != nil {
			l.fail(seq, err)
		}
	}
}

// fail ends a request whose answer seq is with an error: all of its answers, since its reader learns of one end only.
func (l *loop) fail(seq *sched.Sequence, err error) {
	j := l.jobs[seq]
	if j == nil {
		return
	}
	for other, o := range l.jobs {
		if o.group == j.group && o != j {
			l.end(other, "", err)
		}
	}
	l.end(seq, "", err)
}

// end takes an answer out and frees what it holds; the stream ends with the last one.
func (l *loop) end(seq *sched.Sequence, reason FinishReason, err error) {
	j := l.jobs[seq]
	delete(l.jobs, seq)
	l.sched.Remove(seq)
	j.left--
	if l.observer != nil {
		l.observer.Done(j.record(err, reason, time.Now()))
	}
	if j.left > 0 {
		return
	}
	if err == nil {
		l.meter.requests++
	}
	// Whoever reads the stream's end can rely on the blocks being free, and sees them free in Stats.
	l.publish(true)
	j.out.close(err)
}

func (l *loop) failAll(err error) {
	for len(l.jobs) > 0 {
		for seq := range l.jobs {
			l.fail(seq, err)
		}
	}
	l.publish(true)
}

// publishEvery is how old the numbers of Stats may be while steps follow each other: making them takes time and memory.
const publishEvery = 50 * time.Millisecond

// publish takes the snapshot that Stats returns.
func (l *loop) publish(now bool) {
	if !now && time.Since(l.published) < publishEvery {
		return
	}
	l.published = time.Now()
	running := l.sched.Running()
	seqs := make([]SeqStats, 0, len(running))
	for _, q := range running {
		blocks := make([]int32, len(q.Table))
		for i, b := range q.Table {
			blocks[i] = int32(b)
		}
		seqs = append(seqs, SeqStats{ID: q.ID, Tokens: q.NumComputed, Blocks: blocks})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Running, l.stats.Waiting = len(running), len(l.sched.Waiting())
	l.stats.BlocksUsed = l.pool.NumBlocks() - l.pool.NumFree()
	l.stats.KVUsage = float64(l.stats.BlocksUsed) / float64(l.pool.NumBlocks())
	l.stats.Sequences = seqs
	cache := l.pool.Stats()
	l.stats.PrefixQueries, l.stats.PrefixHits = cache.Queries, cache.Hits
	l.stats.Preemptions = l.sched.Stats().Preemptions
	l.meter.fill(&l.stats)
	l.stats.Clock = l.exec.Clock()
	if c := l.stats.Clock; c.Steps > 0 {
		l.stats.SubmitsPerToken = float64(c.Submits) / float64(c.Steps)
	}
}

func (l *loop) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}
