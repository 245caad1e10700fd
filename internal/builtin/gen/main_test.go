package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBundleIsWhatTheCheckpointGives packs the checkpoint again and compares every byte with the committed files.
func TestBundleIsWhatTheCheckpointGives(t *testing.T) {
	t.Parallel()
	root := os.Getenv("PAGELIGHT_FIXTURES")
	if root == "" {
		t.Skip("SKIPPED: models/ernie-tiny needs PAGELIGHT_FIXTURES")
	}
	out := t.TempDir()
	if err := run(filepath.Join(root, "models/ernie-tiny"), out); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "bundle"} {
		made, err := os.ReadDir(filepath.Join(out, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range made {
			if e.IsDir() {
				continue
			}
			got, err := os.ReadFile(filepath.Join(out, dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("..", dir, e.Name()))
			if err != nil {
				t.Fatalf("%v; run go generate ./internal/builtin", err)
			}
			if string(got) != string(want) {
				t.Errorf("%s/%s differs; run go generate ./internal/builtin", dir, e.Name())
			}
		}
		if dir == "bundle" {
			committed, err := os.ReadDir(filepath.Join("..", dir))
			if err != nil {
				t.Fatal(err)
			}
			if len(committed) != len(made) {
				t.Errorf("%d files are committed, %d are made; run go generate ./internal/builtin", len(committed), len(made))
			}
		}
	}
}

func TestRunNeedsAModel(t *testing.T) {
	t.Parallel()
	if err := run("", t.TempDir()); err == nil {
		t.Error("no model and no error")
	}
	if err := run(t.TempDir(), t.TempDir()); err == nil {
		t.Error("an empty folder and no error")
	}
}
