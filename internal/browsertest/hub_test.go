package browsertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestHub loads the one model of a repository from a hub that speaks as Hugging Face's does, and says why it cannot load others.
func TestHub(t *testing.T) {
	const name = "ernie-s-q4_0.gguf"
	data, err := os.ReadFile(filepath.Join(ggufDir, name))
	if err != nil {
		t.Fatal(err)
	}
	files := site(t)
	repository := func(repo, list string) {
		files["api/models/"+repo+"/revision/main"] = &fstest.MapFile{Data: []byte(list)}
	}
	repository("org/one", `{"siblings":[{"rfilename":"README.md"},{"rfilename":"sub/`+name+`"}]}`)
	files["org/one/resolve/main/sub/"+name] = &fstest.MapFile{Data: data}
	repository("org/two", `{"siblings":[{"rfilename":"a.Q4_0.gguf"},{"rfilename":"b.Q8_0.gguf"}]}`)
	repository("org/none", `{"siblings":[{"rfilename":"pytorch_model.bin"}]}`)
	repository("org/odd", `{"siblings":7}`)
	b := Start(t, None)
	base := Serve(t, Mount{"/", files})
	c := b.NewClient(t, base)
	load := func(repo string) Message {
		m := loadMessage(repo, "", "device", "cpu")
		m["model"] = Message{"kind": "hub", "url": base, "name": repo, "revision": "main"}
		return m
	}
	c.MustAsk(load("org/one"), "ready", patience)
	checkGGUF(t, c, ggufFiles(t)[name], 1e-3)
	for _, e := range []struct{ repo, code, word string }{
		{"org/two", "bad_model", "a.Q4_0.gguf, b.Q8_0.gguf"},
		{"org/none", "not_a_model", "pytorch_model.bin"},
		{"org/odd", "network_failed", "no list of files"},
		{"org/missing", "file_missing", "org/missing"},
	} {
		a := c.Ask(load(e.repo), patience)
		if a.Type != "error" || a.Error.Code != e.code || !strings.Contains(a.Error.Message, e.word) {
			t.Errorf("%s is answered by %.500s, want %s with %q", e.repo, a.Raw, e.code, e.word)
		}
	}
}
