package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	Close()
}

// loop is the one goroutine that owns scheduler, cache and device.
type loop struct {
	exec  executor
	sched *sched.Scheduler
	pool  *kvcache.Pool
	log   *slog.Logger

	inbox   chan *job     // new work
	quit    chan struct{} // closed by Close
	stopped chan struct{} // closed when the goroutine has ended

	jobs map[*sched.Sequence]*job

	mu    sync.Mutex // guards stats
	stats Stats
	meter meter // the goroutine's own
}

func newLoop(exec executor, s *sched.Scheduler, pool *kvcache.Pool, log *slog.Logger) *loop {
	return &loop{
		exec: exec, sched: s, pool: pool, log: log,
		inbox: make(chan *job), quit: make(chan struct{}), stopped: make(chan struct{}),
		jobs: map[*sched.Sequence]*job{},
	}
}

// submit hands a job to the loop, or says why it cannot.
func (l *loop) submit(j *job) error {
	j.submitted = time.Now()
	select {
	case l.inbox <- j:
		return nil
	case <-l.quit:
		return ErrClosed
	case <-l.stopped:
		return ErrClosed
	case <-j.ctx.Done():
		return j.ctx.Err()
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
		if err := l.step(plan); err != nil {
			l.log.Error("step failed", "err", err, "tokens", plan.NumTokens)
			if errors.Is(err, gpu.ErrDeviceLost) {
				l.failAll(err)
			} else {
				for _, c := range plan.Chunks {
					l.finish(c.Seq, err)
				}
			}
		}
		l.publish()
	}
}

// receive takes what is in the inbox, waiting when there is nothing else to do. It returns false when the loop is to end.
func (l *loop) receive() bool {
	for {
		var j *job
		if len(l.jobs) == 0 {
			select {
			case j = <-l.inbox:
			case <-l.quit:
				return false
			}
		} else {
			select {
			case j = <-l.inbox:
			case <-l.quit:
				return false
			default:
				return true
			}
		}
		if err := l.sched.Add(j.seq); err != nil {
			j.out.close(err)
			continue
		}
		l.jobs[j.seq] = j
	}
}

// idle runs when nothing can be computed: then nothing may be held either.
func (l *loop) idle() {
	if err := l.sched.Check(); err != nil {
		panic("BUG: " + err.Error())
	}
	if len(l.jobs) > 0 {
		panic(fmt.Sprintf("BUG: engine: %d requests can never be scheduled", len(l.jobs)))
	}
	l.publish()
}

func (l *loop) dropCancelled() {
	for seq, j := range l.jobs {
		if err := j.ctx.Err(); err != nil {
			l.finish(seq, err)
		}
	}
}

// finish ends a request and frees what it holds.
func (l *loop) finish(seq *sched.Sequence, err error) {
	j := l.jobs[seq]
	if j == nil {
		return
	}
	delete(l.jobs, seq)
	l.sched.Remove(seq)
	if err == nil {
		l.mu.Lock()
		l.stats.Requests++
		l.mu.Unlock()
	}
	// Whoever reads the stream's end can rely on the blocks being free, and sees them free in Stats.
	l.publish()
	j.out.close(err)
}

func (l *loop) failAll(err error) {
	for seq := range l.jobs {
		l.finish(seq, err)
	}
	l.publish()
}

// step runs one plan and hands out what it gave.
func (l *loop) step(plan *sched.Plan) error {
	start := time.Now()
	want := runner.WantNothing
	for _, c := range plan.Chunks {
		j := l.jobs[c.Seq]
		if j.started.IsZero() {
			j.started = start
		}
		switch {
		case c.Logits == 0:
		case !j.greedy():
			want = runner.WantLogits
		case want == runner.WantNothing:
			want = runner.WantIDs
		}
	}
	res, err := l.exec.Step(context.Background(), plan, want)
	if err != nil {
		return err
	}
	l.sched.Done(plan)
	now := time.Now()
	l.meter.step(plan, now.Sub(start))
	row := 0
	for _, c := range plan.Chunks {
		l.meter.prompt += int64(max(0, min(l.jobs[c.Seq].prompt-c.Start, len(c.Tokens))))
		rows := c.Logits
		if err := l.emit(c, res, row, now); err != nil {
			l.finish(c.Seq, err)
		}
		row += rows
	}
	return nil
}

// emit gives a chunk's rows, which begin at row of the result, to its request.
func (l *loop) emit(c sched.Chunk, res runner.Result, row int, now time.Time) error {
	j := l.jobs[c.Seq]
	if j.onLogits != nil {
		for i := range c.Logits {
			if err := j.onLogits(c.Start+len(c.Tokens)-c.Logits+i, res.Row(row+i)); err != nil {
				return err
			}
		}
	}
	if c.Logits == 0 || c.Start+len(c.Tokens) < len(c.Seq.Tokens) {
		return nil
	}
	var id int32
	var err error
	if res.Logits == nil {
		id = res.IDs[row+c.Logits-1]
		if id < 0 {
			err = sample.ErrNaN
		}
	} else {
		id, err = j.sampler.Sample(res.Row(row + c.Logits - 1))
	}
	if err != nil {
		return fmt.Errorf("engine: after %d tokens: %w", len(c.Seq.Tokens), err)
	}
	if j.maxNew == 0 {
		l.finish(c.Seq, nil)
		return nil
	}
	j.sampler.Accept(id)
	l.meter.generated++
	if j.accept(id, now) {
		l.finish(c.Seq, nil)
	}
	return nil
}

// publish takes the snapshot that Stats returns.
func (l *loop) publish() {
	running, waiting := l.sched.Running(), l.sched.Waiting()
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
	l.stats.Running, l.stats.Waiting = len(running), len(waiting)
	l.stats.BlocksUsed = l.pool.NumBlocks() - l.pool.NumFree()
	l.stats.Sequences = seqs
	l.meter.fill(&l.stats)
}

func (l *loop) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}
