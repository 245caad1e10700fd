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
	ended  int
	steps  []moment // since all have it, until the first has ended
	early  int      // steps in which some, but not all, had it
	ahead  int      // the most of early that a test has had
}

// moment is the end of a step.
type moment struct {
	at     time.Time
	tokens int
}

// begin starts a test of n answers.
func (h *history) begin(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n != h.rows {
		h.ahead = 0
	}
	h.rows, h.firsts, h.ended, h.steps, h.early = n, 0, 0, h.steps[:0], 0
}

// Step implements engine.Observer.
func (h *history) Step(r engine.StepRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	began := h.firsts == h.rows
	h.firsts += len(r.FirstTokens)
	switch {
	case began && r.Seqs == h.rows:
		h.steps = append(h.steps, moment{time.Now(), r.GeneratedTokens})
	case h.firsts == h.rows && !began:
		h.steps = append(h.steps, moment{time.Now(), 0}) // where counting begins
	case h.firsts > 0 && !began:
		h.early += (r.GeneratedTokens + h.firsts - 1) / h.firsts
	}
}

// Done implements engine.Observer.
func (h *history) Done(engine.AnswerRecord) {}

// window gives the tokens that all answers together had from when all had their first one, the steps that these took, and the
// time.
func (h *history) window() (tokens, steps int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ahead = max(h.ahead, h.early)
	if len(h.steps) < 2 {
		return 0, 0, 0
	}
	for _, s := range h.steps {
		tokens += s.tokens
	}
	return tokens, (tokens + h.rows - 1) / h.rows, h.steps[len(h.steps)-1].at.Sub(h.steps[0].at)
}
