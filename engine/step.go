package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pagelight/pagelight/internal/runner"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// step runs one plan and hands out what it gave.
func (l *loop) step(plan *sched.Plan) error {
	start := time.Now()
	for _, c := range plan.Chunks {
		if j := l.jobs[c.Seq]; j.started.IsZero() {
			j.started = start
		}
	}
	res, err := l.execute(plan)
	if err != nil {
		return err
	}
	l.sched.Done(plan)
	now := time.Now()
	rec := l.record.next()
	rec.Took, rec.Tokens, rec.Seqs, rec.Clock = now.Sub(start), plan.NumTokens, len(plan.Chunks), l.exec.Clock()
	l.meter.step(plan, rec.Took)
	if plan.NumTokens == len(plan.Chunks) {
		l.noteStep(rec.Took, res.Logits != nil)
	}
	row := 0
	for _, c := range plan.Chunks {
		if j := l.jobs[c.Seq]; j != nil { // it may have ended with another answer of its request
			fresh := j.countPrompt(c.Start + len(c.Tokens))
			rec.PromptTokens += fresh
			l.meter.prompt += int64(fresh)
			if err := l.emit(j, c, res, row, now, rec); err != nil {
				l.fail(c.Seq, err)
			}
		}
		row += c.Logits
	}
	if l.observer != nil {
		l.observer.Step(*rec)
	}
	return nil
}

// execute has the device compute a plan and find as much of the next tokens as it can: the best ones, or where answers
// sample, the candidates to choose from. All logits are read only where somebody wants to see them, or where parameters
// change them first.
func (l *loop) execute(plan *sched.Plan) (runner.Result, error) {
	want := runner.WantNothing
	l.draws = l.draws[:0]
	for _, c := range plan.Chunks {
		if c.Logits == 0 {
			continue
		}
		j := l.jobs[c.Seq]
		draw, ok := j.sampler.Draw(runner.TopK)
		found := ok && l.hardware // as much as the sampler needs
		switch {
		case j.seesLogits():
			want = runner.WantLogits
		case want == runner.WantLogits:
		case !j.sampler.Greedy() && found:
			want = runner.WantTop
		case !j.sampler.Greedy():
			want = runner.WantLogits
		case want == runner.WantNothing:
			want = runner.WantIDs
		}
		l.draws = append(l.draws, make([]sample.Draw, c.Logits-1)...) // only the last row chooses
		l.draws = append(l.draws, draw)
	}
	if want == runner.WantTop {
		return l.exec.StepTop(context.Background(), plan, l.draws)
	}
	return l.exec.Step(context.Background(), plan, want)
}

// countPrompt says how many of the prompt's tokens are in the cache for the first time now that computed tokens are.
func (j *job) countPrompt(computed int) int {
	seen := max(j.promptSeen, min(computed, j.prompt))
	fresh := seen - j.promptSeen
	j.promptSeen = seen
	return fresh
}

// emit gives a chunk's rows, which begin at row of the result, to its answer.
func (l *loop) emit(j *job, c sched.Chunk, res runner.Result, row int, now time.Time, rec *StepRecord) error {
	end := c.Start + len(c.Tokens)
	for i := range c.Logits {
		pos := end - c.Logits + i
		if j.onLogits != nil {
			if err := j.onLogits(pos, res.Row(row+i)); err != nil {
				return err
			}
		}
		if j.index == 0 && j.promptTop >= 0 && pos+1 < j.prompt {
			lp, err := j.text.logprob(res.Row(row+i), j.seq.Tokens[pos+1], j.promptTop)
			if err != nil {
				return err
			}
			j.promptLogprobs = append(j.promptLogprobs, lp)
		}
	}
	if c.Logits == 0 || end < len(c.Seq.Tokens) {
		return nil
	}
	if j.promptOnly {
		if j.onLogits == nil {
			j.endPrompt(now)
		}
		l.end(c.Seq, FinishLength, nil)
		return nil
	}
	id, logprobs, err := l.pick(j, res, row+c.Logits-1)
	if err != nil {
		return fmt.Errorf("engine: after %d tokens: %w", len(c.Seq.Tokens), err)
	}
	if reason := l.accept(j, id, logprobs, now, rec); reason != "" {
		l.end(c.Seq, reason, nil)
	}
	return nil
}

// accept books a new token of an answer; a reason says that the answer is complete.
func (l *loop) accept(j *job, id int32, logprobs []TokenLogprob, now time.Time, rec *StepRecord) FinishReason {
	j.sampler.Accept(id)
	rec.GeneratedTokens++
	l.meter.generated++
	if j.first.IsZero() {
		rec.FirstTokens = append(rec.FirstTokens, now.Sub(j.submitted))
	} else {
		rec.InterToken = append(rec.InterToken, now.Sub(j.last))
	}
	return j.accept(id, logprobs, now)
}

// pick chooses the next token from a row of the result, and describes it where the request asks for that.
func (l *loop) pick(j *job, res runner.Result, row int) (id int32, logprobs []TokenLogprob, err error) {
	switch {
	case res.IDs != nil:
		if id = res.IDs[row]; id < 0 {
			return 0, nil, sample.ErrNaN
		}
		return id, nil, nil
	case res.Top != nil:
		id, ok, err := j.sampler.SampleTop(res.Top[row])
		if ok || err != nil {
			return id, nil, err
		}
		logits, err := l.exec.ReadLogits(context.Background(), row)
		if err != nil {
			return 0, nil, err
		}
		id, err = j.sampler.Sample(logits)
		return id, nil, err
	}
	id, err = j.sampler.Sample(res.Row(row)) // leaves the logits as they are
	if err = ruledOut(err); err != nil || j.top < 0 {
		return id, nil, err
	}
	lp, err := j.text.logprob(res.Row(row), id, j.top)
	return id, []TokenLogprob{lp}, err
}

// ruledOut names the parameters that leave no token.
func ruledOut(err error) error {
	if errors.Is(err, sample.ErrRuledOut) {
		return &ParamError{"allowed_token_ids", "together with bad_words and min_tokens leaves no token to choose"}
	}
	return err
}
