package local

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
)

// namedDevice is a device that says to be another.
type namedDevice struct {
	gpu.Device
	info   gpu.Info
	limits gpu.Limits
}

func (d *namedDevice) Info() gpu.Info     { return d.info }
func (d *namedDevice) Limits() gpu.Limits { return d.limits }

// TestChoicesAreKeptByAdapter: what was measured is found again on the same adapter and on no other, is replaced choice by choice,
// and is left alone when it cannot be read.
func TestChoicesAreKeptByAdapter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "down")
	t.Setenv("PAGELIGHT_TUNING", dir)
	dev := &namedDevice{info: gpu.Info{Kind: gpu.KindHardware, Name: "some GPU", Features: []string{"subgroups"}}, limits: gpu.DefaultLimits}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	if got := loadChoices(dev, log); got != nil || said.Len() > 0 {
		t.Errorf("before anything was measured: %v, %s", got, &said)
	}
	file, err := TuningFile(dev)
	if err != nil {
		t.Fatal(err)
	}
	measured := func(key, chosen string) engine.Measured {
		return engine.Measured{Key: key, Default: "plain", Chosen: chosen}
	}
	save := func(list ...engine.Measured) {
		t.Helper()
		f, discard, err := newTuning(file)
		if err == nil {
			err = keepChoices(f, file, "some GPU", list)
			discard()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(want map[string]string) {
		t.Helper()
		if got := loadChoices(dev, log); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	save(measured("a", "fast"), measured("b", "fast"), measured("c", "plain"))
	want(map[string]string{"a": "fast", "b": "fast"})
	save(measured("b", "plain"), measured("d", "faster")) // another model on the same adapter, or again
	want(map[string]string{"a": "fast", "d": "faster"})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v; want one file", left, err)
	}

	for name, change := range map[string]func(*namedDevice){
		"name":     func(d *namedDevice) { d.info.Name = "another GPU" },
		"driver":   func(d *namedDevice) { d.info.Driver = "webgpujs" },
		"backend":  func(d *namedDevice) { d.info.Backend = "Metal" },
		"features": func(d *namedDevice) { d.info.Features = nil },
		"limits":   func(d *namedDevice) { d.limits.MaxInvocations = 1024 },
	} {
		other := *dev
		change(&other)
		if got := loadChoices(&other, log); got != nil {
			t.Errorf("with another %s the choices are %v", name, got)
		}
	}
	software := *dev
	software.info.Kind = gpu.KindSoftware
	if got := loadChoices(&software, log); got != nil {
		t.Errorf("a software adapter has choices: %v", got)
	}

	if said.Len() > 0 {
		t.Errorf("so far nothing was wrong, and yet: %s", &said)
	}
	for _, broken := range []string{"", "{", `{"version":2,"choices":{"a":"fast"}}`, strings.Repeat(" ", engine.MaxTuningBytes+1)} {
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		said.Reset()
		if got := loadChoices(dev, log); got != nil || !strings.Contains(said.String(), file) {
			t.Errorf("%.40q: choices %v, %q", broken, got, said.String())
		}
	}
	save(measured("a", "fast"))
	want(map[string]string{"a": "fast"})
	if _, _, err := newTuning(filepath.Join(file, "below.json")); err == nil {
		t.Error("a file below a file can be begun")
	}
	t.Setenv("PAGELIGHT_TUNING", "off")
	want(nil)
}

// TestTuneNeedsAGPU: the processor has one way to compute, so there is nothing to measure.
func TestTuneNeedsAGPU(t *testing.T) {
	t.Setenv("PAGELIGHT_TUNING", t.TempDir())
	_, _, err := Tune(t.Context(), Options{Model: Builtin, Device: "cpu"}, time.Second)
	if err == nil || !strings.Contains(err.Error(), "no hardware adapter") || !errors.Is(err, gpu.ErrNoAdapter) {
		t.Errorf("%v", err)
	}
	src, err := OpenModel(Builtin, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := OpenDevice(t.Context(), Options{Device: "cpu"}, src)
	if err != nil {
		t.Fatal(err)
	}
	list, err := engine.Tune(t.Context(), engine.Config{Device: dev, Source: src, MaxModelLen: 64}, time.Second)
	if len(list) != 0 || err != nil || dev.Err() == nil {
		t.Errorf("%v, %v; the device is closed: %v", list, err, dev.Err())
	}
}
