package sample

import "math"

// DeviceState is what a device needs to choose this sequence's tokens itself, from the next step on, as SampleTop would.
type DeviceState struct {
	InvTemperature float32 // 0: the largest logit
	TopK           uint32  // 0: all
	TopP           float32 // 1: all
	MinP           float32 // -log(min_p); NoMinP: all
	Key            uint64  // of the random numbers of all steps
	Step           uint64  // the number of the next step: its random numbers have the key mix(Key ^ mix(Step))
	// Adjusts says that the logits that the device chooses from must be changed before, as Sample changes them: by biases and
	// penalties, or because an end would come too early.
	Adjusts bool
}

// NoMinP is the DeviceState.MinP that keeps all tokens.
const NoMinP = 1e30

// DeviceTopK is the number of candidates that a device has when it chooses.
const DeviceTopK = 64

// Device says how a device can choose the next tokens from DeviceTopK candidates, or that it cannot: with allowed ids and bad
// words, where all tokens are needed, and for temperatures and penalties beyond its floats.
func (s *Sampler) Device() (d DeviceState, ok bool) {
	if s.allowed != nil || len(s.words) > 0 {
		return d, false
	}
	d = DeviceState{TopP: 1, MinP: NoMinP, Key: s.key, Step: s.step, Adjusts: s.changesLogits()}
	if d.Adjusts && !s.adjustable() {
		return d, false
	}
	if s.temp == 0 {
		return d, true
	}
	d.InvTemperature = float32(1 / s.temp)
	if k := s.p.TopK; k > 0 && k < s.numTokens {
		d.TopK = uint32(min(k, math.MaxInt32))
	}
	if s.p.TopP < 1 {
		const below1 = 1 - 0x1p-24
		d.TopP = min(float32(s.p.TopP), below1)
	}
	if s.p.MinP > 0 {
		d.MinP = max(0, float32(-log(s.p.MinP)))
	}
	likely := !s.filters() || s.p.TopP < 1 || s.p.MinP > 0 || s.p.TopK < DeviceTopK
	return d, likely && d.InvTemperature >= leastInverse
}

// leastInverse is the least 1/temperature with which a device's floats are far from their smallest.
const leastInverse = 0x1p-40

// Skip counts n steps whose tokens the device has chosen: the random numbers of later ones are as if Sample had. Each token
// must be told to Accept besides.
func (s *Sampler) Skip(n int) { s.step += uint64(n) }

// From these on some of the first arrivals of a race are nearly always kept.
const (
	likelyTopP = 0.5
	likelyMinP = 2.0
)

// Draw says what candidates the next step wants when the device chooses; withMass, whether it looks at the logits again for rows
// with top_p (kernels.SampleArgs.Logits).
func (d *DeviceState) Draw(withMass bool) Draw {
	if d.InvTemperature == 0 {
		return Draw{InvTemperature: 1}
	}
	draw := Draw{InvTemperature: d.InvTemperature}
	if d.TopK == 0 && (d.TopP == 1 || withMass && d.TopP >= likelyTopP) && d.MinP >= likelyMinP {
		draw.Race, draw.Key = true, mix(d.Key^mix(d.Step))
	}
	return draw
}
