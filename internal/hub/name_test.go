package hub

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

func TestParseName(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]Name{
		"hf:org/name":                    {"org/name", "main", ""},
		"hf:gpt2":                        {"gpt2", "main", ""},
		"hf:Org/Name-1.5_b@v1.0":         {"Org/Name-1.5_b", "v1.0", ""},
		"hf:org/name@refs/pr/7":          {"org/name", "refs/pr/7", ""},
		"hf:org/name:a.gguf":             {"org/name", "main", "a.gguf"},
		"hf:org/name@v2:sub/dir/a.gguf":  {"org/name", "v2", "sub/dir/a.gguf"},
		"hf:org/name:Q4_K_M":             {"org/name", "main", "Q4_K_M"},
		"hf://org/name":                  {"org/name", "main", ""},
		"hf://org/name@v2":               {"org/name", "v2", ""},
		"hf://org/name@v2/sub/a.gguf":    {"org/name", "v2", "sub/a.gguf"},
		"hf://org/name@v2:a.gguf":        {"org/name", "v2", "a.gguf"},
		"hf:org/name@" + hubtest.Commit:  {"org/name", hubtest.Commit, ""},
		"hf://org/name:sub/dir/a-1.gguf": {"org/name", "main", "sub/dir/a-1.gguf"},
	} {
		got, err := ParseName(model)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", model, got, err, want)
		}
		if again, err := ParseName(got.String()); err != nil || again != got {
			t.Errorf("%s is written %s, which is read as %+v, %v", model, got, again, err)
		}
	}
	for _, model := range []string{
		"", "org/name", "hf:", "hf:/", "hf:org/", "hf:/name", "hf:a/b/c", "hf:../..", "hf:org/..", "hf:.org/name", "hf:org/na--me", "hf:org/name.",
		"hf:org/name@", "hf:org/name:", "hf:org/name@../x", "hf:org/name@/x", "hf:org/name:../x", "hf:org/name:/x", `hf:org/name:a\b`, "hf:org/name:a:b",
		"hf:org/na me", "hf:org/name@a b", "hf:" + strings.Repeat("a", 97), "hf:org/name:a\x00b", "hf://org/name/a.gguf:b.gguf", "hf:org/name@a@b",
	} {
		if n, err := ParseName(model); err == nil {
			t.Errorf("%q was read as %+v", model, n)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"hf:org/name@v1:a.gguf", "hf://org/name/x", "hf:a/b@refs/pr/1", "hf:../..:/etc"} {
		f.Add(s)
	}
	cache := f.TempDir()
	f.Fuzz(func(t *testing.T, model string) {
		n, err := ParseName(model)
		if err != nil {
			return
		}
		h := &Hub{Cache: cache}
		for _, path := range []string{h.repoDir(n.Repo), h.ref(n.Repo, n.Revision), h.pointer(n.Repo, hubtest.Commit, n.File+"x")} {
			if rel, err := filepath.Rel(cache, path); err != nil || !filepath.IsLocal(rel) {
				t.Fatalf("%q leads to %s", model, path)
			}
		}
	})
}

// FuzzParseListing: whatever a hub answers, its paths stay inside a snapshot.
func FuzzParseListing(f *testing.F) {
	f.Add([]byte(`{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"a/b","size":1,"blobId":"` + strings.Repeat("a", 40) + `","lfs":{"sha256":"` + strings.Repeat("b", 64) + `","size":2}}]}`))
	f.Add([]byte(`{"sha":"` + hubtest.Commit + `","siblings":[{"rfilename":"../x","size":-1}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := parseListing(raw)
		if err != nil {
			return
		}
		for _, file := range l.Files {
			if !filepath.IsLocal(filepath.FromSlash(file.Path)) || file.Etag != "" && !safeEtag.MatchString(file.Etag) {
				t.Fatalf("%+v", file)
			}
		}
		_, _ = choose(Name{Repo: hubtest.Repo, Revision: "main"}, l.Files)
	})
}

func TestFromEnv(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	saved := filepath.Join(home, "saved")
	writeFile(t, saved, []byte("hf_saved\n"))
	writeFile(t, filepath.Join(home, ".cache", "huggingface", "token"), []byte("hf_default"))
	for name, c := range map[string]struct {
		env   map[string]string
		cache string
		token string
	}{
		"nothing":      {nil, home + "/.cache/huggingface/hub", "hf_default"},
		"XDG":          {map[string]string{"XDG_CACHE_HOME": "/xdg"}, "/xdg/huggingface/hub", ""},
		"HF_HOME":      {map[string]string{"HF_HOME": "/hf", "XDG_CACHE_HOME": "/xdg"}, "/hf/hub", ""},
		"tilde":        {map[string]string{"HF_HOME": "~/hf"}, home + "/hf/hub", ""},
		"HF_HUB_CACHE": {map[string]string{"HF_HOME": "/hf", "HF_HUB_CACHE": "/cache"}, "/cache", ""},
		"HF_TOKEN":     {map[string]string{"HF_TOKEN": " hf_env\n", "HF_TOKEN_PATH": saved}, home + "/.cache/huggingface/hub", "hf_env"},
		"token path":   {map[string]string{"HF_TOKEN_PATH": saved}, home + "/.cache/huggingface/hub", "hf_saved"},
		"not implicit": {map[string]string{"HF_TOKEN_PATH": saved, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, home + "/.cache/huggingface/hub", ""},
		"variable":     {map[string]string{"HF_HOME": "$DATA/hf", "DATA": "/data"}, "/data/hf/hub", ""},
	} {
		h, err := FromEnv(environment(home, c.env))
		if err != nil || filepath.ToSlash(h.Cache) != c.cache || h.Token != c.token || h.Endpoint != DefaultEndpoint || h.Offline {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	h, err := FromEnv(environment(home, map[string]string{"HF_ENDPOINT": "https://mirror.example/hf/", "HF_HUB_OFFLINE": "True", "HF_HUB_DISABLE_SYMLINKS": "1"}))
	if err != nil || h.Endpoint != "https://mirror.example/hf" || !h.Offline || !h.NoSymlinks {
		t.Errorf("%+v, %v", h, err)
	}
	for name, env := range map[string]map[string]string{
		"HF_ENDPOINT": {"HF_ENDPOINT": "mirror.example"}, "HF_HOME": {"HOME": ""},
	} {
		_, err := FromEnv(environment(home, env))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A token that cannot be one does not stand in the way of the cache, and is not printed.
	h, err = FromEnv(environment(home, map[string]string{"HF_TOKEN": "hf_a\nhf_b"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.List(t.Context(), mustName(t, "hf:org/name")); err == nil || !strings.Contains(err.Error(), "HF_TOKEN") || strings.Contains(err.Error(), "hf_a") {
		t.Errorf("%v", err)
	}
}

func environment(home string, env map[string]string) func(string) string {
	return func(name string) string {
		if v, ok := env[name]; ok {
			return v
		}
		if name == "HOME" {
			return home
		}
		return ""
	}
}
