//go:build js && wasm

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall/js"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/openai"
)

const (
	// tuneRest is how long the engine has had nothing to do when measuring begins, after its first answer.
	tuneRest = 2 * time.Second
	// tuneLook is how often that is looked at.
	tuneLook = 500 * time.Millisecond
	// storageTime is how long a load waits for the browser's storage.
	storageTime = time.Second
)

// tuningKey names the adapter, the browser with its version, and the kernels.
func tuningKey(dev gpu.Device) string {
	agent := js.Global().Get("navigator").Get("userAgent").String()
	sum := sha256.Sum256([]byte(engine.TuningKey(dev.Info(), dev.Limits()) + "\n" + agent))
	return hex.EncodeToString(sum[:])
}

// tunes says whether there is anything to measure on a device.
func tunes(info gpu.Info) bool { return info.Kind == gpu.KindHardware }

// readTuning gives what is kept under a key. What cannot be read is nothing: the defaults are always right.
func (w *worker) readTuning(ctx context.Context, key string) engine.Tuning {
	ctx, cancel := context.WithTimeout(ctx, storageTime)
	defer cancel()
	v, err := await(ctx, w.storage.Call("get", key), "tuning")
	if err != nil {
		return engine.Tuning{}
	}
	t, err := engine.ParseTuning([]byte(text(v)))
	if err != nil {
		return engine.Tuning{}
	}
	return t
}

// keepTuning keeps t and says whether it could be kept.
func (w *worker) keepTuning(ctx context.Context, key string, t engine.Tuning) bool {
	raw, err := openai.Marshal(t)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	v, err := await(ctx, w.storage.Call("put", key, string(raw)), "tuning")
	return err == nil && v.Type() == js.TypeBoolean && v.Bool()
}

// tune measures the choices of a model but for those that known names, and keeps what comes of it, also when it is interrupted.
func (w *worker) tune(ctx context.Context, m *model, known func(key string) bool) (list []engine.Measured, kept bool, err error) {
	m.tuning.Lock()
	defer m.tuning.Unlock()
	list, err = m.TuneIdle(ctx, known)
	if len(list) == 0 {
		return list, false, err
	}
	t := w.readTuning(w.ctx, m.tuningKey)
	t.Add(m.Info().Adapter.Name, list)
	return list, w.keepTuning(w.ctx, m.tuningKey, t), err
}

// tuneWhenIdle measures once the model has answered something and then has had nothing to do for a while. What was measured before
// is not measured again.
func (w *worker) tuneWhenIdle(m *model) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	go func() {
		select {
		case <-m.closed:
		case <-m.Lost():
		case <-ctx.Done():
		}
		cancel()
	}()
	look := time.NewTicker(tuneLook)
	defer look.Stop()
	for busy := time.Now(); time.Since(busy) < tuneRest; {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		if s := m.Stats(); s.Requests == 0 || s.Running+s.Waiting > 0 {
			busy = time.Now()
		}
	}
	// Of a failure the reader need not know: the kernels in use are right, and the button tells it when asked.
	_, _, _ = w.tune(ctx, m, func(key string) bool { return slices.Contains(m.known.Measured, key) })
}

type tunedMessage struct {
	simpleMessage
	Choices []engine.Measured `json:"choices"` // times in nanoseconds
	Kept    bool              `json:"kept"`    // for the next load
}

type tuneFields struct {
	Only string `json:"only"` // what the keys begin with
}

// tuneNow measures the choices of the model that is open anew, as soon as it has nothing to do.
func (w *worker) tuneNow(ctx context.Context, id string, f tuneFields) error {
	if _, err := w.engine(); err != nil {
		return err
	}
	w.mu.Lock()
	m := w.model
	w.mu.Unlock()
	if m == nil || m.tuningKey == "" {
		return openai.NewError(400, codeNothingToTune, "", "there is nothing to measure: the model runs on the processor, or measuring is switched off")
	}
	list, kept, err := w.tune(ctx, m, func(key string) bool { return !strings.HasPrefix(key, f.Only) })
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("measuring kernels: %w", err)
	}
	if err != nil {
		return err
	}
	w.say(tunedMessage{simpleMessage{typeTuned, id}, list, kept})
	return nil
}
