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
	rate := float64(p.NumTokens) / max(took.Seconds(), 1e-9)
	switch {
	case p.NumTokens > len(p.Chunks): // at least one chunk of a prompt
		m.prefill = rate
	case m.decode == 0:
		m.decode = rate
	default:
		m.decode += (rate - m.decode) / 8
	}
}

func (m *meter) fill(s *Stats) {
	s.PromptTokens, s.GenerationTokens, s.Requests = m.prompt, m.generated, m.requests
	s.PrefillSpeed, s.DecodeSpeed = m.prefill, m.decode
}
