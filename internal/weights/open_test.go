package weights

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestOpenFilesFindsTheModel among whatever was picked, and says of everything else what it is.
func TestOpenFilesFindsTheModel(t *testing.T) {
	gguf, err := os.ReadFile("testdata/gguf/ernie-s-q4_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		data, err := os.ReadFile("../model/testdata/ernie/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	config, safetensors := read("config.json"), read("model.safetensors")
	for _, c := range []struct {
		name  string
		files map[string][]byte
		model string // Config.Name, or
		wrong []string
	}{
		{"a GGUF file", map[string][]byte{"tiny.gguf": gguf}, "tiny", nil},
		{"in a folder with other things", map[string][]byte{"f/tiny.gguf": gguf, "f/README.md": nil, "f/mmproj-x.gguf": nil, "notes.txt": nil}, "tiny", nil},
		{"a folder of safetensors", map[string][]byte{"f/config.json": config, "f/model.safetensors": safetensors}, "f", nil},
		{"with its GGUF beside it", map[string][]byte{"f/config.json": config, "f/model.safetensors": safetensors, "f/tiny.gguf": gguf}, "f", nil},
		{"files without a folder", map[string][]byte{"config.json": config, "model.safetensors": safetensors}, "picked", nil},
		{"a GGUF and its configuration", map[string][]byte{"f/config.json": config, "f/tiny.gguf": gguf}, "tiny", nil},
		{"deeper ones do not count", map[string][]byte{"f/tiny.gguf": gguf, "f/old/other.gguf": nil}, "tiny", nil},

		{"two models", map[string][]byte{"a.gguf": gguf, "b.gguf": gguf}, "", []string{"2 GGUF models", "a.gguf, b.gguf"}},
		{"two folders", map[string][]byte{"f/a/tiny.gguf": gguf, "f/b/tiny.gguf": gguf}, "", []string{"several folders", "f/a, f/b"}},
		{"one part of two", map[string][]byte{"x-00001-of-00002.gguf": gguf}, "", []string{"x-00002-of-00002.gguf", "is missing", "all 2 parts"}},
		{"weights alone", map[string][]byte{"model.safetensors": safetensors}, "", []string{"model.safetensors", "config.json"}},
		{"something else", map[string][]byte{"photo.jpg": gguf}, "", []string{"photo.jpg", "is no model"}},
		{"many other things", map[string][]byte{"a": nil, "b": nil, "c/d": nil}, "", []string{"picked", "none of 3 files"}},
		{"nothing", nil, "", []string{"no files"}},
		{"an empty file", map[string][]byte{"tiny.gguf": nil}, "", []string{"tiny.gguf"}},
		{"a broken one", map[string][]byte{"tiny.gguf": gguf[:1000]}, "", []string{"tiny.gguf"}},
		{"a configuration alone", map[string][]byte{"f/config.json": config}, "", []string{"f: neither model.safetensors"}},
	} {
		fsys := fstest.MapFS{}
		var names []string
		for name, data := range c.files {
			fsys[name] = &fstest.MapFile{Data: data, Mode: 0o644}
			names = append(names, name)
		}
		slices.Sort(names)
		src, err := OpenFiles(t.Context(), fsys, "picked", names)
		switch {
		case c.wrong == nil && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.wrong == nil:
			if got := src.Config().Name; got != c.model {
				t.Errorf("%s: the model is called %q, want %q", c.name, got, c.model)
			}
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		case err == nil:
			t.Errorf("%s: no error", c.name)
		default:
			for _, part := range c.wrong {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %v lacks %q", c.name, err, part)
				}
			}
		}
	}
}
