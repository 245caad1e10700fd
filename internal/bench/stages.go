package bench

import (
	"time"

	"github.com/pagelight/pagelight/engine"
)

// span is what the engine did in a piece of time. Its goroutine encodes, waits and does all else one after the other, so that what the
// clock counts in a span is no longer than the span.
type span struct {
	clock engine.Clock // counted in it
	took  time.Duration
	steps int // whose tokens came in it; prompts count as one step
}

// since takes what was counted before off.
func (s *span) since(before engine.Clock) {
	s.clock.Steps -= before.Steps
	s.clock.Submits -= before.Submits
	s.clock.Dispatches -= before.Dispatches
	s.clock.ReadBacks -= before.ReadBacks
	s.clock.ReadBytes -= before.ReadBytes
	s.clock.Encode -= before.Encode
	s.clock.Wait -= before.Wait
}

func (s *span) add(other *span) {
	s.clock.Steps += other.clock.Steps
	s.clock.Submits += other.clock.Submits
	s.clock.Dispatches += other.clock.Dispatches
	s.clock.ReadBacks += other.clock.ReadBacks
	s.clock.ReadBytes += other.clock.ReadBytes
	s.clock.Encode += other.clock.Encode
	s.clock.Wait += other.clock.Wait
	s.took += other.took
	s.steps += other.steps
}

// stages is the mean of the steps, in tests of prompts of whole prompts. What the device was given is that of the steps which were
// submitted meanwhile: the first of those whose tokens came may have been submitted before, while another was computed.
func (s *span) stages(kind string) *Stages {
	came, submitted := float64(s.steps), float64(s.clock.Steps)
	if kind == KindPrefill {
		submitted = came
	}
	if came == 0 || submitted == 0 {
		return nil
	}
	return &Stages{
		EncodeUS:   us(s.clock.Encode) / came,
		WaitUS:     us(s.clock.Wait) / came,
		HostUS:     us(s.took-s.clock.Encode-s.clock.Wait) / came,
		Dispatches: float64(s.clock.Dispatches) / submitted,
		Submits:    float64(s.clock.Submits) / submitted,
		ReadBacks:  float64(s.clock.ReadBacks) / submitted,
		BytesRead:  float64(s.clock.ReadBytes) / submitted,
	}
}
