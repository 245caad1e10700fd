package bench

import (
	"sync"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// history observes the steps of answers that run at once. All answers of a test have the same number of tokens.
type history struct {
	mu     sync.Mutex
	rows   int // answers of the test under way
	firsts int // of these, have their first token
	steps  []moment
	early  int // steps in which some, but not all, had it
	ahead  int // the most of early that a test has had
}

// moment is when a step, in which all answers have their first token, was told of.
type moment struct {
	at     time.Time
	took   time.Duration
	tokens int
	full   bool // all answers were in it
	clock  engine.Clock
}

// begin starts a test of n answers and says how many tokens the first were ahead of the last in the tests of n before.
func (h *history) begin(n int) (ahead int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n != h.rows {
		h.ahead = 0
	}
	h.rows, h.firsts, h.steps, h.early = n, 0, h.steps[:0], 0
	return h.ahead
}

// Step implements engine.Observer.
func (h *history) Step(r engine.StepRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	began := h.firsts == h.rows
	h.firsts += len(r.FirstTokens)
	switch {
	case began:
		h.steps = append(h.steps, moment{time.Now(), r.Took, r.GeneratedTokens, r.Seqs == h.rows, r.Clock})
	case h.firsts == h.rows:
		h.steps = append(h.steps, moment{at: time.Now(), full: true, clock: r.Clock}) // where counting begins
	case h.firsts > 0:
		h.early += (r.GeneratedTokens + h.firsts - 1) / h.firsts
	}
}

// Done implements engine.Observer.
func (h *history) Done(engine.AnswerRecord) {}

// window gives the tokens that all answers together had from when all had their first one until one of them was complete, the steps
// that these took, and the time.
func (h *history) window() (tokens, steps int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ahead = max(h.ahead, h.early)
	n := 0
	for n < len(h.steps) && h.steps[n].full {
		tokens += h.steps[n].tokens
		n++
	}
	if n < 2 {
		return 0, 0, 0
	}
	// The steps of a burst are told of together, when all of them are done; what they took is shared out evenly. The last full step
	// may not be the last of its burst.
	end := h.steps[n-1].at
	for _, s := range h.steps[n : h.landed(n-1)+1] {
		end = end.Add(-s.took)
	}
	return tokens, (tokens + h.rows - 1) / h.rows, end.Sub(h.steps[0].at)
}

// landed is the last of the steps that were told of together with step i.
func (h *history) landed(i int) int {
	last := i
	for last+1 < len(h.steps) && h.steps[last+1].clock == h.steps[i].clock {
		last++
	}
	return last
}

// first is the clock when the last of the answers had its first token.
func (h *history) first() (c engine.Clock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.steps) > 0 {
		c = h.steps[0].clock
	}
	return c
}

// span is what was done from when all answers had their first token until one of them was complete, to the end of the burst in which it
// was.
func (h *history) span() span {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.steps) && h.steps[n].full {
		n++
	}
	if n == 0 {
		return span{}
	}
	from, to := h.landed(0), h.landed(n-1)
	s := span{h.steps[to].clock, h.steps[to].at.Sub(h.steps[from].at), to - from}
	s.since(h.steps[from].clock)
	return s
}
