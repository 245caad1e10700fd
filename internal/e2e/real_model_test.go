package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/browsertest"
)

// TestRealModelInTheTab opens a trained model, SmolLM2-135M-Instruct as a GGUF file, as a reader does: picked from disk, dropped on
// the page, and by address. PAGELIGHT_REAL_MODEL is its path; it is no part of this project.
func TestRealModelInTheTab(t *testing.T) {
	path := os.Getenv("PAGELIGHT_REAL_MODEL")
	if path == "" {
		t.Skip("SKIPPED: it needs PAGELIGHT_REAL_MODEL, the path of SmolLM2-135M-Instruct.Q4_1.gguf")
	}
	path = absolute(t, path)
	name := strings.TrimSuffix(filepath.Base(path), ".gguf")
	const question, want = "What is the capital of France?", "Paris"
	b := browsertest.Start(t, browsertest.SwiftShader)
	p := open(t, b, serveSite(t).url, `{"theme":"light","lang":"en","temperature":0,"max_tokens":8,"max_model_len":256}`)
	p.waitState("ready")
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "Content-Range, ETag")
		w.Header().Set("ETag", `"1"`)
		http.ServeFile(w, r, path)
	}))
	t.Cleanup(func() {
		models.CloseClientConnections()
		models.Close()
	})
	for _, way := range []struct {
		what string
		open func()
	}{
		{"picked", func() { p.pick(testID("open-file"), path) }},
		{"dropped", func() { p.drop(path) }},
		{"by address", func() { p.address(models.URL + "/" + filepath.Base(path)) }},
		{"from the browser's cache", p.load},
	} {
		started := time.Now()
		way.open()
		p.wait("the load", `document.documentElement.dataset.state === "loading"`)
		p.inUse(name)
		loaded := time.Since(started)
		p.click(testID("composer"))
		p.send(question)
		a := p.finished()
		if !strings.Contains(a.Text, want) {
			t.Errorf("%s: the answer is %+v, want %q in it", way.what, a, want)
		}
		t.Logf("%s: loaded in %v; %q; %s", way.what, loaded.Round(time.Millisecond), a.Text, a.Facts)
		p.click(testID("new-chat"))
	}
}
