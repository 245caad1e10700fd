package engine

import (
	"time"

	"github.com/pagelight/pagelight/internal/sched"
)

// meter counts tokens and measures speed: of prompts by the last step that computed one, of decoding by a moving average.
type meter struct {
	prompt, generated int64   // tokens since opening
	requests          int64   // that ended well, since opening
	prefill, decode   float64 // tokens per second
}

// step takes a step into account.
func (m *meter) step(p *sched.Plan, took time.Duration) {
	if p.NumTokens > len(p.Chunks) { // at least one chunk of a prompt
		m.prefill = rate(p.NumTokens, took)
		return
	}
	m.decoded(p.NumTokens, took)
}

// decoded takes a step of so many tokens, one of each answer, into account.
func (m *meter) decoded(tokens int, took time.Duration) {
	switch r := rate(tokens, took); {
	case tokens == 0:
	case m.decode == 0:
		m.decode = r
	default:
		m.decode += (r - m.decode) / 8
	}
}

func rate(tokens int, took time.Duration) float64 { return float64(tokens) / max(took.Seconds(), 1e-9) }

func (m *meter) fill(s *Stats) {
	s.PromptTokens, s.GenerationTokens, s.Requests = m.prompt, m.generated, m.requests
	s.PrefillSpeed, s.DecodeSpeed = m.prefill, m.decode
}
