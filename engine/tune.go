package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// Measured is what a tuner found for one choice among kernels.
type Measured = kernels.Measured

// Tune opens a model only to time the variants of its kernels on the device, for at most budget (0: any time), the most expensive
// first. Config.Choices takes what it finds. It closes the device and the source.
func Tune(ctx context.Context, cfg Config, budget time.Duration) ([]Measured, error) {
	e := &Engine{dev: cfg.Device, src: cfg.Source, config: cfg.Source.Config(), Text: &Text{}}
	defer e.release()
	if err := cfg.fill(e.dev.Info()); err != nil {
		return nil, err
	}
	cfg.Choices = nil
	e.numTokens = e.config.VocabSize
	r, err := e.openRunner(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Tune(ctx, budget)
}

// Choices are the variants that were measured to be faster than the defaults, by key.
func Choices(list []Measured) map[string]string {
	m := map[string]string{}
	for _, c := range list {
		if c.Chosen != c.Default {
			m[c.Key] = c.Chosen
		}
	}
	return m
}

// TuningKey names all that measured choices depend on, but for the shapes, which are in the keys of the choices: adapter, driver, its
// limits and features, and the kernels themselves.
func TuningKey(info gpu.Info, limits gpu.Limits) string {
	text, err := json.Marshal(struct {
		Info    gpu.Info
		Limits  gpu.Limits
		Kernels string
	}{info, limits, kernels.Hash()})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// noteChoices tells what was chosen otherwise than by default.
func noteChoices(cfg *Config) []string {
	if len(cfg.Choices) == 0 || cfg.Deterministic {
		return nil
	}
	return []string{fmt.Sprintf("choices among kernels are as measured on this adapter (%d known)", len(cfg.Choices))}
}
