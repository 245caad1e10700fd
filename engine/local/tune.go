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
	if !st.Mode().IsRegular() { // reading a pipe would never end
		return t, errors.New("is no regular file")
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

// newTuning begins the file that is to replace file, so that nothing is measured for a place where nothing can be kept. discard forgets it
// unless it was kept.
func newTuning(file string) (f *os.File, discard func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, nil, fmt.Errorf("tuning: %w", err)
	}
	if f, err = os.CreateTemp(filepath.Dir(file), "new-*"); err != nil {
		return nil, nil, fmt.Errorf("tuning: %w", err)
	}
	return f, func() { _, _ = f.Close(), os.Remove(f.Name()) }, nil
}

// keepChoices adds what was measured to the file by way of f. The file is replaced as a whole, so that no reader sees half of it.
func keepChoices(f *os.File, file, adapter string, list []engine.Measured) error {
	t, err := readTuning(file)
	if err != nil {
		t = engine.Tuning{}
	}
	t.Add(adapter, list)
	raw, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("tuning: %w", err)
	}
	return nil
}

// Tune measures the variants of a model's kernels on a hardware adapter and keeps what is faster than the defaults for the next time
// that a model is opened on it. file is where. What was measured before an error, such as the end of ctx, is kept too.
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
		err = fmt.Errorf("tuning: %s is no hardware adapter, and there is nothing to choose on others (%w)", info.Name, gpu.ErrNoAdapter)
	}
	var f *os.File
	discard := func() {}
	if err == nil {
		f, discard, err = newTuning(file)
	}
	if err != nil {
		dev.Close()
		return nil, "", errors.Join(err, src.Close())
	}
	defer discard()
	o.Engine.Device, o.Engine.Source = dev, src
	list, err = engine.Tune(ctx, o.Engine, budget)
	if len(list) == 0 {
		if err == nil {
			err = fmt.Errorf("tuning: nothing was measured within %v", budget)
		}
		return nil, "", err
	}
	return list, file, errors.Join(err, keepChoices(f, file, info.Name, list))
}
