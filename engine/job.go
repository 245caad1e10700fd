package engine

import (
	"context"
	"slices"
	"time"

	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/tokenizer"
)

// job is a request on its way through the engine's goroutine, which alone touches it after it was submitted.
type job struct {
	ctx     context.Context
	seq     *sched.Sequence
	prompt  int // tokens of the prompt
	maxNew  int
	eos     []int32 // ids that end the answer
	sampler *sample.Sampler
	stream  *tokenizer.Stream // nil when the model has no tokenizer
	keepEOS bool              // the end-of-answer token is part of the text
	stop    stopMatcher
	out     *queue

	// onLogits, if set, is given each row of logits and its position; the next token is then the best one.
	onLogits func(pos int, row []float32) error

	submitted, started, first time.Time
}

// greedy says that the best token is wanted and nothing else, so that the device can pick it.
func (j *job) greedy() bool { return j.onLogits == nil && j.sampler.Greedy() }

// accept books a new token, sends the event and says whether the answer is complete.
func (j *job) accept(id int32, now time.Time) (finished bool) {
	if j.first.IsZero() {
		j.first = now
	}
	j.seq.Tokens = append(j.seq.Tokens, id)
	n := len(j.seq.Tokens) - j.prompt
	ev := Event{TokenIDs: []int32{id}, Usage: Usage{PromptTokens: j.prompt, CompletionTokens: n, TotalTokens: j.prompt + n}}

	end := slices.Contains(j.eos, id)
	if j.stream != nil {
		text := ""
		if !end || j.keepEOS {
			text = j.stream.Push(id)
		}
		last := end || n >= j.maxNew
		if last {
			text += j.stream.Flush()
		}
		var hit string
		ev.Text, hit = j.stop.push(text)
		switch {
		case hit != "":
			ev.FinishReason, ev.StopReason = FinishStop, hit
		case last:
			ev.Text += j.stop.flush()
		}
	}
	switch {
	case ev.FinishReason != "":
	case end:
		ev.FinishReason = FinishStop
	case n >= j.maxNew:
		ev.FinishReason = FinishLength
	}
	if ev.FinishReason != "" {
		ev.Timing = Timing{Queued: j.started.Sub(j.submitted), FirstToken: j.first.Sub(j.started), Decode: now.Sub(j.first)}
	}
	j.out.put(ev)
	return ev.FinishReason != ""
}
