package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/browsertest"
)

// modelHost is a server of another origin with files that a reader may name.
type modelHost struct {
	url  string
	stop func()

	mu     sync.Mutex
	ranges []string      // that were asked for
	hold   chan struct{} // if not nil, what keeps back all but the first chunk of a file in the folder
	fail   int           // requests for files in the folder to answer with 503
	tag    string        // part of the ETag of all but the first chunk
}

// asked gives the ranges asked for since the last call.
func (h *modelHost) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.ranges
	h.ranges = nil
	return list
}

func serveModels(t *testing.T) *modelHost {
	t.Helper()
	h := &modelHost{}
	gguf, err := os.ReadFile(tinyGGUF)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	file := func(w http.ResponseWriter, r *http.Request, tag string, data []byte) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Access-Control-Expose-Headers", "Content-Range, ETag")
		w.Header().Set("ETag", fmt.Sprintf(`"%x%s"`, len(data), tag))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
	mux.HandleFunc("/open/", func(w http.ResponseWriter, r *http.Request) {
		if filepath.Ext(r.URL.Path) != ".gguf" {
			http.NotFound(w, r)
			return
		}
		file(w, r, "", gguf)
	})
	mux.HandleFunc("/folder/", func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(filepath.Join("../model/testdata/ernie", filepath.Base(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		first := strings.HasPrefix(r.Header.Get("Range"), "bytes=0-")
		h.mu.Lock()
		hold, fail, tag := h.hold, h.fail > 0, h.tag
		h.fail = max(0, h.fail-1)
		h.mu.Unlock()
		if fail {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		if hold != nil && !first {
			<-hold
		}
		if first {
			tag = ""
		}
		file(w, r, tag, data)
	})
	mux.HandleFunc("/broken/", func(w http.ResponseWriter, r *http.Request) { file(w, r, "", gguf[:len(gguf)/2]) })
	mux.HandleFunc("/private/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
	mux.HandleFunc("/whole/", func(w http.ResponseWriter, _ *http.Request) { // knows no ranges
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", fmt.Sprint(1<<30))
		_, _ = w.Write(gguf)
	})
	mux.HandleFunc("/small/", func(w http.ResponseWriter, _ *http.Request) { // neither, but is small
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(gguf)
	})
	mux.HandleFunc("/page/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>log in"))
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.ranges = append(h.ranges, filepath.Base(r.URL.Path)+" "+r.Header.Get("Range"))
		h.mu.Unlock()
		if r.Header.Get("Referer") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("the page tells another site who it is: %v", r.Header)
		}
		if !strings.HasPrefix(r.URL.Path, "/closed/") {
			w.Header().Set("Access-Control-Allow-Origin", "*")
		} else {
			r.URL.Path = "/open/tiny.gguf"
		}
		mux.ServeHTTP(w, r)
	}))
	h.stop = func() {
		server.CloseClientConnections()
		server.Close()
	}
	t.Cleanup(h.stop)
	h.url = server.URL
	return h
}

// TestOwnModelFromAnAddress loads models that lie on another site, keeps them for next time, and says why others cannot be read.
func TestOwnModelFromAnAddress(t *testing.T) {
	b := browsertest.Start(t, browsertest.None)
	models := serveModels(t)
	// The real server, whose policy has to let the worker out, and nothing else.
	p := open(t, b, serveReal(t), plain)
	p.waitState("ready")
	const question = "Hello"
	want := natively(t, tinyGGUF, question)

	p.address(models.url + "/open/tiny.gguf")
	p.inUse("tiny")
	p.send(question)
	if a := p.finished(); letters(a.Text) != want {
		t.Errorf("the model answers %q, outside of the browser %q", letters(a.Text), want)
	}
	models.asked()
	p.load() // it is the model in use, and the cache has it
	p.inUse("tiny")
	if got := fmt.Sprint(models.asked()); got != "[tiny.gguf bytes=0-0]" {
		t.Errorf("after a reload the browser asked for %s, though it has the file", got)
	}

	// A folder, one of whose files is larger than a chunk: cancelled in the middle, it goes on where it was.
	models.mu.Lock()
	models.hold = make(chan struct{})
	models.mu.Unlock()
	p.address(models.url + "/folder/config.json")
	p.wait("the download", `document.documentElement.dataset.state === "loading" && /\d.*MB/.test(document.querySelector("#status-more").textContent)`)
	p.accessible("a model that is read from an address")
	p.click("#cancel-load")
	p.waitState("idle")
	models.mu.Lock()
	close(models.hold)
	models.hold = nil
	models.mu.Unlock()
	models.asked()
	p.click("#load")
	p.inUse("folder")
	for _, asked := range models.asked() {
		if strings.HasPrefix(asked, "model.safetensors bytes=0-") && asked != "model.safetensors bytes=0-0" {
			t.Errorf("what had come before the load was cancelled was asked for again: %s", asked)
		}
	}

	p.address(models.url + "/small/tiny.gguf")
	p.inUse("tiny")

	// A file that becomes another one while it is read is not put together from both; and a server that is busy is asked again.
	models.mu.Lock()
	models.tag = "new"
	models.mu.Unlock()
	p.address(models.url + "/folder/other/config.json")
	if text := p.box("file-changed"); !strings.Contains(text, "model.safetensors") {
		t.Errorf("the box says %q", text)
	}
	models.mu.Lock()
	models.tag, models.fail = "", 2
	models.mu.Unlock()
	p.address(models.url + "/folder/third/config.json")
	p.inUse("third")

	for _, c := range []struct{ path, box, word string }{
		{"/whole/tiny.gguf", "no-ranges", "HTTP ranges"},
		{"/closed/tiny.gguf", "unreachable", "CORS"},
		{"/open/missing.bin", "file-missing", "no file missing.bin at"},
		{"/page/tiny.gguf", "file-missing", "tiny.gguf"},
		{"/private/tiny.gguf", "file-refused", "account"},
		{"/broken/tiny.gguf", "bad-model", "tiny.gguf"},
	} {
		p.address(models.url + c.path)
		p.wait("the box about "+c.path, fmt.Sprintf(`document.documentElement.dataset.state === "error" && document.querySelector('[data-kind=%q]')?.innerText.includes(%q)`, c.box, c.word))
		p.accessible("an address that does not work")
	}

	// Without the other site, what is kept serves.
	p.address(models.url + "/open/tiny.gguf")
	p.inUse("tiny")
	models.stop()
	p.load()
	p.inUse("tiny")
	p.click(testID("model-chip"))
	p.click(`[data-id="builtin"] button`)
	p.waitState("ready")

	p.click(testID("model-chip"))
	for text, word := range map[string]string{"": "Write an address first", "tiny": "no address", "ftp://a/b.gguf": "no address", "hf:only": "no address"} {
		eval[bool](p, `document.querySelector("#address").value = `+quote(text)+`, true`)
		p.click(testID("open-address"))
		p.wait("the word about "+text, `document.querySelector("#address-error").textContent.includes(`+quote(word)+`)`)
	}
	p.accessible("a wrong address")
	// What is remembered can be removed, with all that the browser keeps of it.
	id := "url:" + models.url + "/open/tiny.gguf"
	kept := `caches.open("pagelight-files-v0").then((cache) => cache.keys()).then((keys) => keys.filter((key) => key.url.includes("open%2Ftiny.gguf")).length)`
	if n := eval[int](p, kept); n != 2 {
		t.Errorf("the browser keeps %d parts of the file, want what describes it and one chunk", n)
	}
	p.click(fmt.Sprintf(`[data-id=%q] .quiet`, id))
	p.wait("the end of the model in the list", fmt.Sprintf(`!document.querySelector('[data-id=%q]')`, id))
	p.wait("the end of what is kept", `window.e2eKept === 0 || (`+kept+`.then((n) => (window.e2eKept = n)), false)`)
}

// serveReal is the program's own server with the built-in model for the tab, and no engine.
func serveReal(t *testing.T) string {
	t.Helper()
	program := buildProgram(t)
	address, _ := serve(t, program, "0")
	return address
}

// TestAddressesAreUnderstood has every way of writing one.
func TestAddressesAreUnderstood(t *testing.T) {
	b := browsertest.Start(t, browsertest.None)
	p := open(t, b, serveSite(t).url, plain)
	for text, want := range map[string]string{
		"https://a.example/m/x.gguf":                                        "url https://a.example/m/x.gguf x",
		"  http://localhost:8080/m/x%20y.gguf#top ":                         "url http://localhost:8080/m/x%20y.gguf x y",
		"https://a.example/m/?id=3":                                         "url https://a.example/m/?id=3 m",
		"https://a.example/models/tiny/config.json":                         "url https://a.example/models/tiny/config.json tiny",
		"https://a.example":                                                 "url https://a.example/ a.example",
		"hf:org/name":                                                       "hub org/name@main name",
		"hf:org/name@v1":                                                    "hub org/name@v1 name",
		"hf:org/name:sub/x y.gguf":                                          "url https://huggingface.co/org/name/resolve/main/sub/x%20y.gguf x y",
		"hf:org/name@refs/pr/1:x.gguf":                                      "url https://huggingface.co/org/name/resolve/refs%2Fpr%2F1/x.gguf x",
		"https://huggingface.co/org/name":                                   "hub org/name@main name",
		"https://hf-mirror.com/org/name/blob/main/x.gguf":                   "url https://hf-mirror.com/org/name/resolve/main/x.gguf x",
		"huggingface.co/org/name/tree/v2":                                   "hub org/name@v2 name",
		"https://huggingface.co/org/name/blob/main/x.gguf":                  "url https://huggingface.co/org/name/resolve/main/x.gguf x",
		"https://huggingface.co/org/name/resolve/main/x.gguf?download=true": "url https://huggingface.co/org/name/resolve/main/x.gguf x",
		"": "none", "x.gguf": "none", "hf:name": "none", "hf:../x": "none", "javascript:alert(1)": "none", "file:///etc/passwd": "none", "https://me:secret@a.example/x.gguf": "none",
	} {
		got := eval[string](p, `import("./js/open.js").then(({ modelAt }) => { const m = modelAt(`+quote(text)+`); return m ? m.kind + " " + (m.url ?? m.repo + "@" + m.revision) + " " + m.name : "none"; })`)
		if got != want {
			t.Errorf("%q is understood as %q, want %q", text, got, want)
		}
	}
}
