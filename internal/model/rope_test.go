package model

import (
	"math"
	"testing"

	"github.com/pagelight/pagelight/internal/weights"
)

// TestLlama3Frequencies compares with numpy's float32, which computed transformers' formula (modeling_rope_utils.py) for the
// configuration of Llama 3.1: waves shorter than 2,048 positions stay, those longer than 8,192 are eight times as long.
func TestLlama3Frequencies(t *testing.T) {
	cfg := &weights.Config{HeadDim: 128, RopeTheta: 500000, RopeScaling: &weights.RopeScaling{
		Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalPosition: 8192,
	}}
	got := ropeFrequencies(cfg)
	for i, want := range map[int]float32{0: 1.0, 1: 0.8146172, 10: 0.12868738, 27: 0.003942276, 29: 0.0021665706, 30: 0.0013718937, 31: 0.00085675146, 32: 0.000524846, 33: 0.00031269365, 34: 0.00017850779, 36: 7.7846555e-05, 50: 4.4115345e-06, 63: 3.068926e-07} {
		if d := math.Abs(float64(got[i]/want) - 1); d > 3e-7 {
			t.Errorf("frequency %d is %v, want %v", i, got[i], want)
		}
	}
	cfg.RopeScaling, cfg.RopeFactors = nil, make([]float32, 64)
	plain := ropeFrequencies(&weights.Config{HeadDim: 128, RopeTheta: 500000})
	for i := range cfg.RopeFactors {
		cfg.RopeFactors[i] = float32(1 + i)
	}
	for i, f := range ropeFrequencies(cfg) {
		if f != plain[i]/float32(1+i) {
			t.Errorf("frequency %d is %v, want %v", i, f, plain[i]/float32(1+i))
		}
	}
}
