package pack

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/calibrate"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// options packs a golden checkpoint with all that calibration can do.
func options(t *testing.T, src weights.Source, out string, method Method) Options {
	t.Helper()
	var windows [][]int32
	for i := range 3 {
		w := make([]int32, 24)
		for j := range w {
			w[j] = int32((i*31 + j*j*7 + j) % src.Config().VocabSize)
		}
		windows = append(windows, w)
	}
	return Options{
		Source: src, Out: out, Windows: windows,
		Recipe: &Recipe{Method: method, Rules: []Rule{
			{Match: []string{"embed_tokens"}, Quant: "q8", Method: RTN},
			{Match: []string{"down_proj"}, Layers: "1", Quant: "q4"},
			{Match: []string{"*"}, Quant: "q2", Group: 32},
		}},
		Device: func(context.Context) (gpu.Device, error) { return cpu.Open(cpu.Options{}) },
	}
}

// files reads a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(raw)
	}
	return out
}

func TestRunWritesWhatTheRecipeSays(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, method := range methods {
		src := golden(t, "llama")
		out := filepath.Join(t.TempDir(), "bundle")
		phases := map[string]bool{}
		o := options(t, src, out, method)
		o.Progress = func(p Progress) {
			phases[p.Phase] = true
			if p.Done < 0 || p.Done > p.Total {
				t.Errorf("%s: %d of %d are done", p.Phase, p.Done, p.Total)
			}
		}
		if err := Run(ctx, o); err != nil {
			t.Fatal(err)
		}
		if phases["calibrating"] != (method != RTN) || !phases["quantizing"] || !phases["writing"] {
			t.Errorf("%s: the phases were %v", method, slices.Collect(maps.Keys(phases)))
		}
		b, err := weights.OpenBundle(ctx, weights.DirStore(out))
		if err != nil {
			t.Fatal(err)
		}
		if err := weights.Check(b); err != nil {
			t.Error(err)
		}
		for name, want := range map[string]quant.Format{
			"model.embed_tokens.weight":           {Kind: quant.Q8, Group: 32},
			"model.layers.1.mlp.down_proj.weight": {Kind: quant.Q4, Group: 32},
			"model.layers.0.mlp.down_proj.weight": {Kind: quant.Q2, Group: 32},
		} {
			if info, err := b.Info(name); err != nil || info.Format != want {
				t.Errorf("%s: %s is %v, want %v, error %v", method, name, info.Format, want, err)
			}
		}
		if _, _, linear := Sizes(b); !(linear > 3 && linear < 4) {
			t.Errorf("%s: %v bits in the linear layers", method, linear)
		}
		if _, err := os.Stat(out + ".packing"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the work folder is still there", method)
		}
		if err := errors.Join(b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// An interruption at any point costs nothing but time: the next run gives the same bytes, and makes again only what was not finished.
func TestRunGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	src := golden(t, "llama")
	whole := filepath.Join(t.TempDir(), "whole")
	steps := 0
	o := options(t, src, whole, GPTQ)
	o.Progress = func(Progress) { steps++ }
	if err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	want := files(t, whole)
	for _, at := range []int{steps / 4, 2 * steps / 3, steps - 1} {
		out := filepath.Join(t.TempDir(), "bundle")
		ctx, cancel := context.WithCancel(context.Background())
		o := options(t, src, out, GPTQ)
		n := 0
		o.Progress = func(Progress) {
			if n++; n == at {
				cancel()
			}
		}
		if err := Run(ctx, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted at step %d of %d: %v", at, steps, err)
		}
		cancel()
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("interrupted at step %d of %d, and there is a bundle", at, steps)
		}
		again := 0
		o.Progress = func(p Progress) {
			if p.Phase == "calibrating" && p.Done > 0 {
				again++
			}
		}
		if err := Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if got := files(t, out); !maps.Equal(got, want) {
			t.Errorf("interrupted at step %d of %d: the bundle differs", at, steps)
		}
		if at == steps-1 && again > 0 {
			t.Error("everything was finished, and it calibrated again")
		}
	}
}

// What lies in the work folder is used only when its bytes are what they were, and for the same command.
func TestRunTrustsNoChangedWork(t *testing.T) {
	t.Parallel()
	src := golden(t, "llama")
	dir := t.TempDir()
	if err := Run(context.Background(), options(t, src, filepath.Join(dir, "whole"), RTN)); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "bundle")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := options(t, src, out, RTN)
	o.Progress = func(p Progress) {
		if p.Phase == "writing" {
			cancel()
		}
	}
	if err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	parts, err := filepath.Glob(filepath.Join(out+".packing", "*.bin"))
	if err != nil || len(parts) < 10 {
		t.Fatalf("%d finished tensors, %v", len(parts), err)
	}
	for i, p := range parts {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 0:
			raw[len(raw)/2] ^= 1
		case 1:
			raw = raw[:len(raw)-4]
		case 2:
			if err := os.WriteFile(strings.TrimSuffix(p, ".bin")+".json", []byte("{"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(p, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o.Progress = nil
	if err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(files(t, out), files(t, filepath.Join(dir, "whole"))) {
		t.Error("changed tensors went into the bundle")
	}
	// Another recipe over the remains of the first.
	other := filepath.Join(dir, "other")
	ctx2, cancel2 := context.WithCancel(context.Background())
	defer cancel2()
	o = options(t, src, other, RTN)
	o.Progress = func(p Progress) {
		if p.Phase == "writing" {
			cancel2()
		}
	}
	if err := Run(ctx2, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.Progress, o.Recipe.Rules[2].Quant = nil, "q3"
	if err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	b, err := weights.OpenBundle(context.Background(), weights.DirStore(other))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if info, err := b.Info("model.layers.0.mlp.down_proj.weight"); err != nil || info.Format.Kind != quant.Q3 {
		t.Errorf("%v, %v", info.Format, err)
	}
}

// TestRunSurvivesBeingKilled kills a process that packs, and packs again.
func TestRunSurvivesBeingKilled(t *testing.T) {
	const env = "PAGELIGHT_TEST_PACK_TO"
	if out := os.Getenv(env); out != "" { // the process that is killed
		o := options(t, golden(t, "llama"), out, GPTQ)
		o.Progress = func(p Progress) {
			if p.Phase == "quantizing" {
				time.Sleep(20 * time.Millisecond) // leave time to be killed in
			}
		}
		if err := Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "bundle")
	cmd := exec.Command(os.Args[0], "-test.run=^TestRunSurvivesBeingKilled$")
	cmd.Env = append(os.Environ(), env+"="+out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is to be killed
	}()
	for done := false; !done; {
		finished, err := filepath.Glob(filepath.Join(out+".packing", "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			t.Fatal("it ended before it was killed")
		case <-time.After(2 * time.Millisecond):
			done = len(finished) >= 3
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("there is a bundle of a process that was killed")
	}
	whole := filepath.Join(dir, "whole")
	for _, to := range []string{out, whole} {
		if err := Run(context.Background(), options(t, golden(t, "llama"), to, GPTQ)); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(files(t, out), files(t, whole)) {
		t.Error("the bundle differs from one that was not interrupted")
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	src := golden(t, "llama")
	dir := t.TempDir()
	o := options(t, src, filepath.Join(dir, "a"), GPTQ)
	o.Windows = nil
	if err := Run(context.Background(), o); !errors.Is(err, calibrate.ErrText) {
		t.Errorf("without text: %v", err)
	}
	o = options(t, src, filepath.Join(dir, "b"), GPTQ)
	broken := errors.New("no device here")
	o.Device = func(context.Context) (gpu.Device, error) { return nil, broken }
	if err := Run(context.Background(), o); !errors.Is(err, broken) {
		t.Errorf("without a device: %v", err)
	}
	taken := filepath.Join(dir, "c")
	if err := os.WriteFile(taken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Run(context.Background(), options(t, src, taken, RTN)); err == nil {
		t.Error("a file was taken for a folder")
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o = options(t, src, full, RTN)
	o.Bundle.Replace = true
	if err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "no bundle") {
		t.Errorf("a folder of somebody's files: %v", err)
	}
}

// Quantized checkpoints are packed as they are.
func TestRunKeepsQuantizedWeights(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, name := range []string{"ernie-awq", "ernie-gptq"} {
		src := golden(t, name)
		out := filepath.Join(t.TempDir(), "bundle")
		none, err := Simple("none", 0, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(ctx, Options{Source: src, Recipe: none, Out: out}); err != nil {
			t.Fatal(err)
		}
		b, err := weights.OpenBundle(ctx, weights.DirStore(out))
		if err != nil {
			t.Fatal(err)
		}
		const matrix = "model.layers.0.mlp.up_proj.weight"
		want, err := src.Info(matrix)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Info(matrix); err != nil || got != want || got.Format.Kind != quant.Q4 {
			t.Errorf("%s: %v, want %v, error %v", name, got, want, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
