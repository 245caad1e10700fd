package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/runner"
)

// Capability is something beyond the portable subset of WebGPU that variants of kernels need.
type Capability = kernels.Capability

// Capabilities lists all of them.
func Capabilities() []Capability { return kernels.Capabilities() }

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

// tunes is what TuneIdle needs of the runner.
type tunes interface {
	NewTuner(only func(key string) bool) *runner.Tuner
}

// TuneIdle times the variants of the kernels for single tokens while no answer is under way, but for choices that known names. A request
// that comes has to wait for the kernels under way, some milliseconds, and measuring goes on after its answer. The engine goes on with the
// kernels that it has: Config.Choices of the next Open takes what was found. When ctx ends, it gives what was found by then.
func (e *Engine) TuneIdle(ctx context.Context, known func(key string) bool) ([]Measured, error) {
	r, ok := e.loop.exec.(tunes)
	if !ok || e.dev.Info().Kind != gpu.KindHardware {
		return nil, nil
	}
	var t *runner.Tuner
	var list []Measured
	for {
		var err error
		done := make(chan struct{})
		call := func(l *loop) {
			defer close(done)
			if t == nil {
				t = r.NewTuner(func(key string) bool { return !known(key) })
			}
			list, err = l.tune(ctx, t)
		}
		select {
		case e.loop.calls <- call:
			<-done // it ends soon after ctx does
		case <-e.loop.stopped:
			return list, ErrClosed
		case <-ctx.Done():
			return list, ctx.Err()
		}
		if err == nil || ctx.Err() != nil || !errors.Is(err, errInterrupted) {
			return list, err
		}
	}
}

// errInterrupted says that measuring was interrupted by a request or by the end of the engine.
var errInterrupted = errors.New("engine: interrupted")

// tune runs on the loop's goroutine until all is measured or a request comes.
func (l *loop) tune(ctx context.Context, t *runner.Tuner) ([]Measured, error) {
	select {
	case <-l.wanted: // old, or seen below
	default:
	}
	if l.waiting.Load() > 0 {
		return nil, errInterrupted
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-l.wanted:
		case <-l.quit:
		case <-ctx.Done():
			return
		}
		cancel(errInterrupted)
	}()
	list, err := t.Run(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errInterrupted) {
		err = errInterrupted
	}
	cancel(nil)
	<-watched
	return list, err
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

// Tuning is what is kept of what was measured on an adapter, for the models of all sizes that were measured there.
type Tuning struct {
	Version  int               `json:"version"`
	Adapter  string            `json:"adapter"`            // for people
	Choices  map[string]string `json:"choices"`            // as Config.Choices
	Measured []string          `json:"measured,omitempty"` // keys of all choices that were looked at
}

const (
	// tuningVersion is that of the form of a Tuning.
	tuningVersion = 1
	// MaxTuningBytes bounds its text.
	MaxTuningBytes = 1 << 20
)

// ParseTuning reads the JSON text of a Tuning.
func ParseTuning(text []byte) (t Tuning, err error) {
	if len(text) > MaxTuningBytes {
		return t, fmt.Errorf("has %d bytes, more than %d", len(text), MaxTuningBytes)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return Tuning{}, err
	}
	if t.Version != tuningVersion {
		return Tuning{}, fmt.Errorf("is of version %d, not %d", t.Version, tuningVersion)
	}
	return t, nil
}

// Add takes over what was measured, choice by choice.
func (t *Tuning) Add(adapter string, list []Measured) {
	t.Version, t.Adapter = tuningVersion, adapter
	if t.Choices == nil {
		t.Choices = map[string]string{}
	}
	chosen := Choices(list)
	for _, m := range list {
		delete(t.Choices, m.Key)
		if v, ok := chosen[m.Key]; ok {
			t.Choices[m.Key] = v
		}
		if !slices.Contains(t.Measured, m.Key) {
			t.Measured = append(t.Measured, m.Key)
		}
	}
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
