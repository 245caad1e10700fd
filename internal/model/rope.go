package model

import (
	"math"

	"github.com/pagelight/pagelight/internal/weights"
)

// ropePiece is how many positions of the rotary table are computed and written at a time: a table of 131,072 positions has
// 64 MiB, which the Go heap need not hold.
const ropePiece = 2048

func ropeTableBytes(cfg *weights.Config, positions int) int64 {
	return 4 * int64(positions) * int64(cfg.HeadDim)
}

// ropeTable computes [positions, headDim/2] pairs (cos, sin) of position * frequency, in f64: WGSL's own sin and cos are too
// coarse.
type ropeTable struct {
	freqs   []float64 // [headDim/2]
	buf     []float32
	breathe func() // or nil
}

// ropeBreath is after how many positions others have their turn: a browser computes 8 million sines in a second.
const ropeBreath = 256

func newRopeTable(cfg *weights.Config, breathe func()) *ropeTable {
	freqs := make([]float64, cfg.HeadDim/2)
	for i, f := range ropeFrequencies(cfg) {
		freqs[i] = float64(f)
	}
	return &ropeTable{freqs: freqs, breathe: breathe}
}

// rows is the rows of the positions from..to-1, valid until the next call.
func (t *ropeTable) rows(from, to int) []float32 {
	t.buf = t.buf[:0]
	for p := from; p < to; p++ {
		if p%ropeBreath == 0 && t.breathe != nil {
			t.breathe()
		}
		for _, f := range t.freqs {
			sin, cos := math.Sincos(float64(float32(float64(p) * f)))
			t.buf = append(t.buf, float32(cos), float32(sin))
		}
	}
	return t.buf
}

// ropeFrequencies are theta^(-2i/headDim), scaled as the configuration says. transformers computes them, and the angles, in
// f32; so must whoever wants its results at high positions.
func ropeFrequencies(cfg *weights.Config) []float32 {
	freqs := make([]float32, cfg.HeadDim/2)
	for i := range freqs {
		freqs[i] = 1 / float32(math.Pow(cfg.RopeTheta, float64(float32(2*i)/float32(cfg.HeadDim))))
		if cfg.RopeScaling != nil {
			freqs[i] = llama3Frequency(cfg.RopeScaling, freqs[i])
		}
		if cfg.RopeFactors != nil {
			freqs[i] /= cfg.RopeFactors[i]
		}
		if cfg.RopeFrequenciesBF16 {
			freqs[i] = roundBF16(freqs[i])
		}
	}
	return freqs
}

// llama3Frequency scales one frequency as Llama 3.1 does (transformers, modeling_rope_utils.py): waves that turn often within
// the context of the first training stay, long ones are stretched by the factor, and those between are interpolated.
func llama3Frequency(s *weights.RopeScaling, freq float32) float32 {
	wave := 2 * math.Pi * float64(1/freq) // positions of a full turn
	low := float64(s.OriginalPosition) / s.LowFreqFactor
	high := float64(s.OriginalPosition) / s.HighFreqFactor
	switch wave := float64(float32(wave)); {
	case wave > low:
		return freq / float32(s.Factor)
	case wave < high:
		return freq
	}
	smooth := (float32(s.OriginalPosition)/float32(wave) - float32(s.LowFreqFactor)) / float32(s.HighFreqFactor-s.LowFreqFactor)
	return (1-smooth)*freq/float32(s.Factor) + smooth*freq
}

// roundBF16 rounds to the nearest bf16, ties to even.
func roundBF16(x float32) float32 {
	u := math.Float32bits(x)
	return math.Float32frombits((u + 0x7FFF + u>>16&1) &^ 0xFFFF)
}
