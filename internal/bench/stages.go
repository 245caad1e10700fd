package bench

import "github.com/pagelight/pagelight/engine"

// stages is what a step took on average of runs between two readings of the engine's clock. What it took from the second reading to
// the third, once for each run, is left out. stepMS is the time of a step.
func stages(before, after, then engine.Clock, runs int, stepMS float64) *Stages {
	diff := func(of func(c *engine.Clock) int64) float64 {
		return float64(of(&after)-of(&before)) - float64(runs)*float64(of(&then)-of(&after))
	}
	n := diff(func(c *engine.Clock) int64 { return c.Steps })
	if n <= 0 {
		return nil
	}
	s := &Stages{
		EncodeUS:   diff(func(c *engine.Clock) int64 { return c.Encode.Nanoseconds() }) / 1e3 / n,
		WaitUS:     diff(func(c *engine.Clock) int64 { return c.Wait.Nanoseconds() }) / 1e3 / n,
		Dispatches: diff(func(c *engine.Clock) int64 { return c.Dispatches }) / n,
		Submits:    diff(func(c *engine.Clock) int64 { return c.Submits }) / n,
		ReadBacks:  diff(func(c *engine.Clock) int64 { return c.ReadBacks }) / n,
		BytesRead:  diff(func(c *engine.Clock) int64 { return c.ReadBytes }) / n,
	}
	s.HostUS = 1e3*stepMS - s.EncodeUS - s.WaitUS
	return s
}

// times makes the stages of a step those of n steps, which take ms.
func (s *Stages) times(n, ms float64) *Stages {
	if s == nil {
		return nil
	}
	for _, v := range []*float64{&s.EncodeUS, &s.WaitUS, &s.Dispatches, &s.Submits, &s.ReadBacks, &s.BytesRead} {
		*v *= n
	}
	s.HostUS = 1e3*ms - s.EncodeUS - s.WaitUS
	return s
}
