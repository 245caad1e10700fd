package site

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/pagelight/pagelight/internal/builtin"
)

func models(t *testing.T) fs.FS {
	t.Helper()
	m, err := Models(t.Context(), Bundle{ID: "builtin", Name: "ERNIE-Tiny", Files: builtin.FS(), Note: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModelsDescribesTheBundles(t *testing.T) {
	data, err := fs.ReadFile(models(t), "index.json")
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Models []Model }
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Models) != 2 {
		t.Fatalf("%d models, want the bundle and the synthetic one", len(index.Models))
	}
	b, s := index.Models[0], index.Models[1]
	if b.ID != "builtin" || b.URL != "models/builtin/" || b.Parameters != 15735168 || b.Bits != "4-bit" || b.Bytes < b.Memory || b.MaxModelLen != 2048 || b.MemoryFixed <= b.Memory {
		t.Errorf("bundle: %+v", b)
	}
	if s.Kind != "synthetic" || s.Bytes != 0 || s.Parameters != 360748032 {
		t.Errorf("synthetic: %+v", s)
	}
}

func TestModelsServesTheBundlesFiles(t *testing.T) {
	m := models(t)
	f, err := m.Open("builtin/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	want, err := fs.ReadFile(builtin.FS(), "manifest.json")
	if err != nil || string(got) != string(want) {
		t.Errorf("manifest differs from the bundle's: %v", err)
	}
	for _, name := range []string{"nothing", "nothing/index.json", "../index.json", "builtin/../index.json"} {
		if _, err := m.Open(name); err == nil {
			t.Errorf("Open(%q) succeeded", name)
		}
	}
}

func TestExportWritesPageAndModels(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	page := fstest.MapFS{
		"index.html": {Data: []byte("<p>")}, "dist/engine.wasm": {Data: []byte("wasm")}, "dist/.gitkeep": {}, "embed.go": {Data: []byte("package static")},
	}
	if err := Export(dir, page, models(t)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"index.html", "dist/engine.wasm", "models/index.json", "models/builtin/manifest.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"dist/.gitkeep", "embed.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if err := Export(dir, page, models(t)); err != nil {
		t.Errorf("a second export into the same folder: %v", err)
	}
}
