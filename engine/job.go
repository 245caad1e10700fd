package engine

import (
	"context"
	"slices"
	"time"

	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/tokenizer"
)

// group is what the answers of one request have in common. The engine's goroutine alone touches it after it was submitted.
type group struct {
	ctx       context.Context
	id        string
	out       *queue
	n, left   int // answers; those that have not ended
	submitted time.Time

	// promptTop is how many alternatives each token of the prompt is given, or -1. Answer 0 collects them; what the others
	// say before is held back, since they belong to the first event of the stream.
	promptTop      int
	promptLogprobs []TokenLogprob
	held           []Event
}

// put sends an event of an answer.
func (g *group) put(ev Event) {
	if g.promptTop < 0 {
		g.out.put(ev)
		return
	}
	if ev.Index != 0 {
		g.held = append(g.held, ev)
		return
	}
	ev.PromptLogprobs = g.promptLogprobs
	g.out.put(ev)
	for _, h := range g.held {
		g.out.put(h)
	}
	g.promptTop, g.held = -1, nil
}

// job is one answer on its way through the engine's goroutine, which alone touches it after it was submitted.
type job struct {
	*group
	index  int // of the answer
	seq    *sched.Sequence
	prompt int // tokens of the prompt

	maxNew, minNew int
	promptOnly     bool
	eos            []int32 // ids that end the answer as the model means it
	stopIDs        []int32 // ids that end it as the request wants
	ends           []int32 // both
	keepEOS        bool    // the text of an end-of-answer id is part of the text
	includeStop    bool    // so is that of a stop string or a stop id
	stop           stopMatcher
	sampler        *sample.Sampler
	stream         *tokenizer.Stream // nil when the model has no tokenizer
	top            int               // alternatives of each new token, or -1
	text           *Text

	// onLogits, if set, is given each row of logits and its position; the next token is then the best one.
	onLogits func(pos int, row []float32) error

	promptSeen           int // tokens of the prompt that were in the cache so far
	started, first, last time.Time
}

// seesLogits says that the answer shows logits or probabilities, not only the tokens chosen by them.
func (j *job) seesLogits() bool {
	return j.onLogits != nil || j.top >= 0 || j.index == 0 && j.promptTop >= 0
}

// generated is how many new tokens there are.
func (j *job) generated() int { return len(j.seq.Tokens) - j.prompt }

func (j *job) usage() Usage {
	n := j.generated()
	return Usage{PromptTokens: j.prompt, CompletionTokens: n, TotalTokens: j.prompt + n, CachedTokens: min(j.seq.NumCached, j.prompt)}
}

// accept books a new token and sends the event; a reason says that the answer is complete.
func (j *job) accept(id int32, logprobs []TokenLogprob, now time.Time) FinishReason {
	if j.first.IsZero() {
		j.first = now
	}
	j.last = now
	j.seq.Tokens = append(j.seq.Tokens, id)
	ev := Event{Index: j.index, TokenIDs: []int32{id}, Logprobs: logprobs, Usage: j.usage()}

	eos, stopID := slices.Contains(j.eos, id), slices.Contains(j.stopIDs, id)
	full := j.generated() >= j.maxNew
	if j.stream != nil {
		ev.Text, ev.StopReason = j.newText(id, eos, stopID, eos || stopID || full)
	}
	switch {
	case ev.StopReason != nil || eos:
		ev.FinishReason = FinishStop
	case stopID:
		ev.FinishReason, ev.StopReason = FinishStop, id
	case full:
		ev.FinishReason = FinishLength
	}
	if ev.FinishReason != "" {
		ev.Timing = j.timing(now)
	}
	j.put(ev)
	return ev.FinishReason
}

// newText is the text that a token adds, and the stop string that it completed, if any. last says that no token follows.
func (j *job) newText(id int32, eos, stopID, last bool) (text string, stop any) {
	var fresh string
	switch {
	case eos && !j.keepEOS, stopID && !eos && !j.includeStop: // no part of the text
	default:
		fresh = j.stream.Push(id)
	}
	if last {
		fresh += j.stream.Flush()
	}
	if j.minNew > 0 && j.generated() <= j.minNew {
		// Stop strings count only in what comes after the least number of tokens (vLLM's stop_check_offset).
		return fresh, nil
	}
	text, hit := j.stop.push(fresh)
	switch {
	case hit != "" && j.includeStop:
		return text + hit, hit
	case hit != "":
		return text, hit
	case last:
		text += j.stop.flush()
	}
	return text, nil
}

// endPrompt ends an answer that has no new tokens.
func (j *job) endPrompt(now time.Time) {
	j.first, j.last = now, now
	j.put(Event{Index: j.index, Usage: j.usage(), FinishReason: FinishLength, Timing: j.timing(now)})
}

func (j *job) timing(now time.Time) Timing {
	return Timing{Queued: j.started.Sub(j.submitted), FirstToken: j.first.Sub(j.started), Decode: now.Sub(j.first)}
}

// record describes the answer that has just ended.
func (j *job) record(err error, reason FinishReason, now time.Time) AnswerRecord {
	r := AnswerRecord{
		ID: j.id, Index: j.index, N: j.n, Last: j.left == 0, Reason: reason, Err: err,
		PromptTokens: j.prompt, CachedTokens: min(j.seq.NumCached, j.prompt), GeneratedTokens: j.generated(), MaxTokens: j.maxNew,
		Total: now.Sub(j.submitted),
	}
	switch {
	case j.started.IsZero():
		r.Queued = r.Total
	case j.first.IsZero():
		r.Queued, r.Prefill = j.started.Sub(j.submitted), now.Sub(j.started)
	default:
		r.Queued, r.Prefill, r.Decode = j.started.Sub(j.submitted), j.first.Sub(j.started), j.last.Sub(j.first)
	}
	return r
}
