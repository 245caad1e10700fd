package engine

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// While every answer has just its last token to compute and nobody who waits could run, the device goes on by itself: it chooses the tokens
// and feeds them back, several steps in a submission and the next submission on its way before the last one is read
// (docs/adr/0037-bursts.md). What the host alone can do ends that: somebody comes or goes, or the device cannot tell which token to choose.

// burstTime bounds a burst: that long a new request waits for each burst under way, and a reader for the tokens of one.
const burstTime = 8 * time.Millisecond

// queueSteps bounds the steps under way while somebody waits for a seat or for blocks: an answer that ends otherwise than by its
// length leaves its own for the rest of them. It is enough to have a step on the device while another is handed out and the next recorded.
const queueSteps = 4

// nativeFlights is how many bursts are under way natively. In a browser, where the end of work is noticed later, there is one more.
const nativeFlights = 2

// bursts is what the loop knows of steps that follow each other on the device.
type bursts struct {
	most    int // steps of a burst; less than 2 turns bursts off
	flights int // bursts under way at most

	time     time.Duration // most that a burst should take
	stepTime time.Duration // of the last ordinary step or burst of decoding, for each step
	refused  bool          // there is no memory to change logits in bursts
	rows     []runner.BurstRow
	stalled  []bool // by row: the device could not decide
}

// burst has the device go on from a plan as long as nothing else is to be done. It reports false when the plan is to be computed
// as a single step.
func (l *loop) burst(plan *sched.Plan) (done bool, err error) {
	b := &l.bursts
	if b.most < 2 || b.stepTime == 0 || b.stepTime > l.longestStep() || !l.sched.Steady() || l.queued() && l.sched.Left() < 2 {
		return false, nil
	}
	choice, ok := l.burstRows(plan)
	if !ok || !l.sched.Extend(2) {
		return false, nil
	}
	if err := l.exec.Begin(plan, b.rows, choice); err != nil {
		return true, err
	}
	f := fleet{l: l, plan: plan, drawn: choice != runner.ChooseBest, last: time.Now(), least: l.sched.Left()}
	for _, row := range b.rows {
		f.left = max(f.left, row.Left)
	}
	start := f.last
	for _, c := range plan.Chunks {
		if j := l.jobs[c.Seq]; j.started.IsZero() {
			j.started = start
		}
	}
	err = f.fly()
	if err == nil {
		err = l.decide(plan, f.drawn)
	}
	return true, err
}

// longestStep is how long a step may take that others follow on the device. Where a seat is free, two of them are a burst's time each, which
// a new request may have to wait; where none is, it could not begin at once anyway. Software adapters take long for what the
// host does quickly, so there two steps have to fit a burst.
func (l *loop) longestStep() time.Duration {
	switch {
	case !l.hardware:
		return l.bursts.time / 2
	case l.sched.Full():
		return 2 * l.bursts.time
	}
	return l.bursts.time
}

// noteStep takes into account how long a single step has taken. One that read all logits tells little of the device: 53 MB of 128 rows
// take longer to read than to compute. So it never keeps steps from following each other, and what bursts take shows when there are some.
func (l *loop) noteStep(took time.Duration, logits bool) {
	b := &l.bursts
	if !logits || !l.hardware {
		b.stepTime = took
		return
	}
	if b.stepTime > 0 {
		took = min(took, b.stepTime)
	}
	b.stepTime = min(took, l.longestStep())
}

// queued reports whether somebody waits.
func (l *loop) queued() bool { return len(l.sched.Waiting()) > 0 }

// burstRows describes the rows of a plan, or says that one of them needs the host for each token.
func (l *loop) burstRows(plan *sched.Plan) (choice runner.Choice, ok bool) {
	b := &l.bursts
	b.rows, b.stalled = b.rows[:0], b.stalled[:0]
	for _, c := range plan.Chunks {
		j := l.jobs[c.Seq]
		if j.seesLogits() || j.promptOnly {
			return 0, false
		}
		d, ok := j.sampler.Device()
		if !ok || d.Adjusts && !l.adjusts() {
			return 0, false
		}
		switch {
		case d.InvTemperature == 0:
		case !l.hardware:
			return 0, false
		case d.TopP < 1:
			choice = runner.ChooseNuclei
		default:
			choice = max(choice, runner.ChooseDrawn)
		}
		row := runner.BurstRow{Left: j.maxNew - j.generated(), Stops: j.ends, Draw: d}
		if d.Adjusts {
			row.Adjust = j.sampler
		}
		b.rows = append(b.rows, row)
		b.stalled = append(b.stalled, false)
	}
	return choice, true
}

// adjusts reports whether the device can change logits before it chooses from them. The first request that wants that has it get memory
// for it; where it cannot, the host goes on to do so.
func (l *loop) adjusts() bool {
	b := &l.bursts
	if !l.hardware || b.refused {
		return false
	}
	if err := l.exec.OpenAdjust(context.Background()); err != nil {
		b.refused = true
		l.log.Warn("the host chooses the tokens of answers with penalties, biases or a least length", "err", err)
	}
	return !b.refused
}

// fleet is a series of bursts of one plan.
type fleet struct {
	l     *loop
	plan  *sched.Plan
	drawn bool // rather than all greedy
	left  int  // most steps that a row may still want
	least int  // fewest, which may have come below 0

	under   int  // bursts under way
	steps   int  // of them
	total   int  // steps submitted so far
	changed bool // no more bursts: what is under way is collected

	last time.Time // when the last burst came back, or the first began
}

func (f *fleet) fly() error {
	l := f.l
	for {
		for !f.changed && f.under < l.bursts.flights {
			if n := f.next(); n == 0 {
				f.changed = true
			} else if err := l.exec.Burst(f.plan, n); err != nil {
				f.abandon()
				return err
			} else {
				f.under, f.steps, f.total, f.left = f.under+1, f.steps+n, f.total+n, f.left-n
				f.least -= n
			}
		}
		if f.under == 0 {
			return nil
		}
		burst, err := l.exec.Collect(context.Background())
		f.under--
		if err != nil {
			f.abandon()
			return err
		}
		f.steps -= burst.Steps
		f.land(burst)
		f.look()
		l.publish(false)
	}
}

// next is how many steps the next burst has, 0 for none: as many as all before it, so that a first word does not wait for a dozen.
// It is a power of two as far as there is room, so that bursts fill the segments of the ring and none ends up shorter for that.
func (f *fleet) next() int {
	b := &f.l.bursts
	n := min(max(1, f.total), b.most, max(1, int(b.time/max(b.stepTime, 1))))
	if n = min(1<<(bits.Len(uint(n))-1), f.l.exec.Room(), f.left); f.l.queued() {
		n = min(n, f.least, max(1, queueSteps/b.flights)) // no seat stays empty when an answer has its length
	}
	for ; n > 0; n /= 2 {
		// The last step finds the place of the token after it, which the next burst computes.
		if f.l.sched.Extend(f.steps + n + 1) {
			return n
		}
	}
	return 0
}

// abandon collects what is under way for nobody, so that the device is free for what comes.
func (f *fleet) abandon() {
	for ; f.under > 0; f.under-- {
		_, _ = f.l.exec.Collect(context.Background()) // the first error has been told
	}
}

// look sees whether something is to be done for which the loop has to plan.
func (f *fleet) look() {
	l := f.l
	for came := true; came; {
		select {
		case jobs := <-l.inbox:
			l.admit(jobs)
		case <-l.quit:
			f.changed, came = true, false
		default:
			came = false
		}
	}
	before := len(l.jobs)
	l.dropCancelled()
	if len(l.jobs) < before || !l.sched.Steady() {
		f.changed = true
	}
}

// land books a burst and hands out its tokens. Time is shared out evenly among its steps.
func (f *fleet) land(burst runner.Burst) {
	l, now := f.l, time.Now()
	took := now.Sub(f.last) / time.Duration(burst.Steps)
	clock := l.exec.Clock()
	for s := range burst.Steps {
		rec := l.record.next()
		rec.Took, rec.Clock = took, clock
		at := f.last.Add(took * time.Duration(s+1))
		for row, c := range f.plan.Chunks {
			f.token(c.Seq, row, burst.At(s, row), at, rec)
		}
		if rec.Tokens > 0 && l.observer != nil {
			l.observer.Step(*rec)
		}
		l.meter.decoded(rec.Tokens, took)
	}
	l.bursts.stepTime, f.last = took, now
}

// token gives a row what a step has found for it.
func (f *fleet) token(q *sched.Sequence, row int, id int32, at time.Time, rec *StepRecord) {
	l := f.l
	j := l.jobs[q]
	switch {
	case j == nil, l.bursts.stalled[row]:
		f.changed = true // it has ended, or waits for the others
		return
	case id == runner.Undecided:
		l.bursts.stalled[row], f.changed = true, true
		return
	case id == runner.NaN:
		l.fail(q, fmt.Errorf("engine: after %d tokens: %w", len(q.Tokens), sample.ErrNaN))
		f.changed = true
		return
	case id == runner.NoToken:
		panic(fmt.Sprintf("BUG: engine: the device ended answer %s after %d tokens, which goes on", q.ID, len(q.Tokens)))
	}
	if f.drawn {
		j.sampler.Skip(1)
	}
	l.booked(j, q, rec)
	if reason := l.accept(j, id, nil, at, rec); reason != "" {
		l.end(q, reason, nil)
		f.changed = true
	}
}

// booked takes into account that a row's last token is computed.
func (l *loop) booked(j *job, q *sched.Sequence, rec *StepRecord) {
	l.sched.Computed(q, 1)
	rec.Tokens++
	rec.Seqs++
	fresh := j.countPrompt(q.NumComputed)
	rec.PromptTokens += fresh
	l.meter.prompt += int64(fresh)
}

// decide chooses for the rows that the device left to the host. Their last token was computed, and its logits are there.
func (l *loop) decide(plan *sched.Plan, drawn bool) error {
	for row, c := range plan.Chunks {
		j := l.jobs[c.Seq]
		if j == nil || !l.bursts.stalled[row] {
			continue
		}
		logits, err := l.exec.ReadLogits(context.Background(), row)
		if err != nil {
			return err
		}
		choose := j.sampler.Sample
		if l.bursts.rows[row].Adjust != nil {
			choose = j.sampler.SampleAdjusted
		}
		id, err := choose(logits)
		if err = ruledOut(err); err != nil {
			l.fail(c.Seq, fmt.Errorf("engine: after %d tokens: %w", len(c.Seq.Tokens), err))
			continue
		}
		rec := l.record.next()
		rec.Clock = l.exec.Clock()
		l.booked(j, c.Seq, rec)
		reason := l.accept(j, id, nil, time.Now(), rec)
		if l.observer != nil {
			l.observer.Step(*rec)
		}
		if reason != "" {
			l.end(c.Seq, reason, nil)
		}
	}
	return nil
}
