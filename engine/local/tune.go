package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
)

// TuningFile is where choices for a device lie: PAGELIGHT_TUNING, a folder, or "pagelight/tuning" in the user's cache.
func TuningFile(dev gpu.Device) (string, error) {
	dir := os.Getenv("PAGELIGHT_TUNING")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("tuning: %w", err)
		}
		dir = filepath.Join(cache, "pagelight", "tuning")
	}
	return filepath.Join(dir, engine.TuningKey(dev.Info(), dev.Limits())+".json"), nil
}

// tuningOff is the value of PAGELIGHT_TUNING with which measured choices are neither used nor made.
const tuningOff = "off"

// loadChoices reads what was measured for a device. What cannot be read is left alone with a note, for defaults are always right.
func loadChoices(dev gpu.Device, log *slog.Logger) map[string]string {
	if os.Getenv("PAGELIGHT_TUNING") == tuningOff || dev.Info().Kind != gpu.KindHardware {
		return nil
	}
	file, err := TuningFile(dev)
	if err != nil {
		log.Debug("no measured choices among kernels", "err", err)
		return nil
	}
	t, err := readTuning(file)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("measured choices among kernels are ignored", "file", file, "err", err)
		}
		return nil
	}
	return t.Choices
}

func readTuning(file string) (t engine.Tuning, err error) {
	st, err := os.Stat(file)
	if err != nil {
		return t, err
	}
	if st.Size() > engine.MaxTuningBytes {
		return t, fmt.Errorf("has %d bytes, more than %d", st.Size(), engine.MaxTuningBytes)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return t, err
	}
	return engine.ParseTuning(raw)
}

// saveChoices adds what was measured to the file. It is replaced as a whole, so that no reader sees half of it.
func saveChoices(file, adapter string, list []engine.Measured) error {
	t, err := readTuning(file)
	if err != nil {
		t = engine.Tuning{}
	}
	t.Add(adapter, list)
	raw, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("tuning: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), "new-*")
	if err != nil {
		return fmt.Errorf("tuning: %w", err)
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("tuning: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// Tune measures the variants of a model's kernels on a hardware adapter and keeps what is faster than the defaults for the next time
// that a model is opened on it. file is where.
func Tune(ctx context.Context, o Options, budget time.Duration) (list []engine.Measured, file string, err error) {
	if os.Getenv("PAGELIGHT_TUNING") == tuningOff {
		return nil, "", errors.New("tuning: PAGELIGHT_TUNING is off")
	}
	src, err := OpenModel(o.Model, o.Quant, o.Engine.Logger)
	if err != nil {
		return nil, "", err
	}
	dev, err := OpenDevice(ctx, o, src)
	if err != nil {
		return nil, "", errors.Join(err, src.Close())
	}
	info := dev.Info()
	file, err = TuningFile(dev)
	if err == nil && info.Kind != gpu.KindHardware {
		err = fmt.Errorf("tuning: %s is no hardware adapter, and there is nothing to choose on others", info.Name)
	}
	if err != nil {
		dev.Close()
		return nil, "", errors.Join(err, src.Close())
	}
	o.Engine.Device, o.Engine.Source = dev, src
	if list, err = engine.Tune(ctx, o.Engine, budget); err != nil {
		return list, "", err
	}
	return list, file, saveChoices(file, info.Name, list)
}
