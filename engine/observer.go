package engine

import "time"

// Observer is told what the engine does, for metrics. Its methods are called by the engine's goroutine between two steps, so
// they must be quick, must not block and must not call the engine. They must not keep the slices of a record.
type Observer interface {
	// Step is called after every step that was computed.
	Step(StepRecord)
	// Done is called once for every answer that was submitted, when it has ended in any way, before the reader of its stream
	// learns of it. Requests that were refused before they came into the queue give no record.
	Done(AnswerRecord)
}

// StepRecord is what one step did; Stats has the state after it.
type StepRecord struct {
	Took   time.Duration
	Tokens int // computed in it, those that are computed again after a preemption included
	Seqs   int // answers that it worked on

	// PromptTokens are tokens of prompts that came into the cache for the first time, computed now or found there when the
	// prompt was taken up; over all steps of an answer that is its prompt once, however often it was preempted.
	PromptTokens    int
	GeneratedTokens int // new tokens

	FirstTokens []time.Duration // for each answer that got its first token: the time since it was submitted
	InterToken  []time.Duration // for each answer that got a later one: the time since its token before

	Clock Clock // what steps have cost so far; steps that the device did in one go have that of the last one
}

// next makes the record that of another step, which has done nothing yet.
func (r *StepRecord) next() *StepRecord {
	*r = StepRecord{FirstTokens: r.FirstTokens[:0], InterToken: r.InterToken[:0]}
	return r
}

// AnswerRecord says how one of a request's answers ended.
type AnswerRecord struct {
	ID     string       // of the request
	Index  int          // which of its answers
	N      int          // how many answers it has, at least 1
	Last   bool         // the others have ended before
	Reason FinishReason // "" when Err is set
	Err    error        // the error of the context when it was cancelled

	PromptTokens    int
	CachedTokens    int // of the prompt, found in the prefix cache
	GeneratedTokens int
	MaxTokens       int // most new tokens that it could have had: Params.MaxTokens, or what stood in for it

	Queued  time.Duration // from submitting to its first step; until its end when it never ran
	Prefill time.Duration // from then to its first token
	Decode  time.Duration // from then to its last
	Total   time.Duration // from submitting to its end
}
