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
	"unicode"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
	"github.com/pagelight/pagelight/internal/browsertest"
	"github.com/pagelight/pagelight/internal/builtin"
)

const tinyGGUF = "../weights/testdata/gguf/ernie-s-q4_0.gguf"

// plain are settings with which answers are short and always the same.
const plain = `{"theme":"light","lang":"en","temperature":0,"max_tokens":12}`

// letters is what of a text Markdown leaves alone.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
}

// natively is what the same model answers outside of a browser.
func natively(t *testing.T, path, question string) string {
	t.Helper()
	eng, err := local.Open(t.Context(), local.Options{Model: path, Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	text := ""
	req := engine.Request{Messages: []engine.Message{{Role: "user", Content: question}}, Params: engine.Params{Temperature: new(float64), MaxTokens: 12}}
	for ev, err := range eng.Generate(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		text += ev.Text
	}
	if len(letters(text)) < 5 {
		t.Fatalf("the answer is %q, with which nothing can be compared", text)
	}
	return letters(text)
}

// pick presses a button that asks for files, and gives it some.
func (p *page) pick(button string, files ...string) {
	p.t.Helper()
	asked := make(chan dom.SetFileInputFilesParams, 1)
	err := chromedp.Listen(p.Ctx, func(event any) {
		if e, ok := event.(*cdppage.EventFileChooserOpened); ok {
			select {
			case asked <- dom.SetFileInputFilesParams{Files: files, BackendNodeID: e.BackendNodeID}:
			default:
			}
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := chromedp.Call(p.Ctx, cdppage.SetInterceptFileChooserDialog, cdppage.SetInterceptFileChooserDialogParams{Enabled: true}); err != nil {
		p.t.Fatal(err)
	}
	p.click(testID("model-chip"))
	p.click(button)
	select {
	case params := <-asked:
		if _, err := chromedp.Call(p.Ctx, dom.SetFileInputFiles, params); err != nil {
			p.t.Fatal(err)
		}
	case <-time.After(patience):
		p.t.Fatal("the browser does not ask for files")
	}
}

// drag moves files over the page; drop lets them fall.
func (p *page) drag(kind input.DispatchDragEventType, files ...string) {
	p.t.Helper()
	params := input.DispatchDragEventParams{Type: kind, X: 300, Y: 300, Data: &input.DragData{Files: files, DragOperationsMask: 1, Items: []*input.DragDataItem{}}}
	if _, err := chromedp.Call(p.Ctx, input.DispatchDragEvent, params); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) drop(files ...string) {
	p.t.Helper()
	p.drag(input.DispatchDragEventTypeDragEnter, files...)
	p.drag(input.DispatchDragEventTypeDragOver, files...)
	p.wait("the place to drop on", `!document.querySelector("#drop").hidden`)
	p.drag(input.DispatchDragEventTypeDrop, files...)
	p.wait("the end of the drag", `document.querySelector("#drop").hidden`)
}

// address loads a model from an address, as a reader does.
func (p *page) address(text string) {
	p.t.Helper()
	p.click(testID("model-chip"))
	p.click(testID("address"))
	p.text(text)
	p.click(testID("open-address"))
}

// inUse waits until a model is ready in this tab.
func (p *page) inUse(name string) {
	p.t.Helper()
	p.wait("the model "+name, `document.documentElement.dataset.state === "ready" && document.querySelector("#model-name").textContent === `+quote(name))
}

// absolute is the path of a file as a browser needs it.
func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copyTo writes a changed copy of a file under a name of its own.
func copyTo(t *testing.T, name, from string, change func(data []byte) []byte) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, change(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// retype gives a tensor of a GGUF file another type, by its number in ggml.
func retype(t *testing.T, tensor string, kind byte) func([]byte) []byte {
	return func(data []byte) []byte {
		at := bytes.Index(data, []byte(tensor))
		if at < 0 {
			t.Fatalf("there is no tensor %s", tensor)
		}
		at += len(tensor)
		at += 4 + 8*int(data[at]) // the number of dimensions, and these
		data[at] = kind
		return data
	}
}

// TestOwnModelFromDisk opens models that the reader picks and drops, and says of everything else what it is.
func TestOwnModelFromDisk(t *testing.T) {
	b := browsertest.Start(t, browsertest.None)
	p := open(t, b, serveSite(t).url, plain)
	p.waitState("ready")
	gguf := absolute(t, tinyGGUF)
	const question = "Hello"
	want := natively(t, gguf, question)

	p.pick(testID("open-file"), gguf)
	p.inUse("ernie-s-q4_0")
	p.send(question)
	if a := p.finished(); letters(a.Text) != want {
		t.Errorf("the picked model answers %q, outside of the browser %q", letters(a.Text), want)
	}
	if more := eval[string](p, `document.querySelector("#model-more").textContent`); !strings.Contains(more, "4-bit") {
		t.Errorf("beside the model's name stands %q", more)
	}
	p.accessible("a model of the reader's own")
	p.click(testID("model-chip"))
	p.wait("the model in the list", `document.querySelector('[data-id="files:ernie-s-q4_0.gguf"].current')?.innerText.includes("from this device")`)
	p.accessible("the list with a model of the reader's own")
	p.click("#models-close")

	copied := copyTo(t, "another.gguf", tinyGGUF, func(data []byte) []byte { return data })
	p.drop(copied)
	p.inUse("another")
	p.click(testID("new-chat"))
	p.send(question)
	if a := p.finished(); letters(a.Text) != want {
		t.Errorf("the dropped model answers %q, outside of the browser %q", letters(a.Text), want)
	}

	// A folder of a checkpoint has everything but a tokenizer here, and loads nevertheless.
	folder := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.CopyFS(folder, os.DirFS("../model/testdata/ernie")); err != nil {
		t.Fatal(err)
	}
	p.drop(folder)
	p.inUse("checkpoint")

	// A bundle, as pack writes it.
	packed := filepath.Join(t.TempDir(), "packed")
	if err := os.CopyFS(packed, builtin.FS()); err != nil {
		t.Fatal(err)
	}
	p.drop(packed)
	p.inUse("packed")
	p.ask("My name is Anna.", "Anna")

	for _, c := range []struct {
		name, file string
		words      []string
	}{
		{"cut short", copyTo(t, "short.gguf", tinyGGUF, func(data []byte) []byte { return data[:len(data)/2] }), []string{"short.gguf"}},
		{"no GGUF at all", copyTo(t, "noise.gguf", tinyGGUF, func([]byte) []byte { return []byte(strings.Repeat("noise", 100)) }), []string{"noise.gguf"}},
		{"empty", copyTo(t, "empty.gguf", tinyGGUF, func([]byte) []byte { return nil }), []string{"empty.gguf"}},
		{"a type that is not supported", copyTo(t, "iq2.gguf", tinyGGUF, retype(t, "blk.0.ffn_down.weight", 16)), []string{"iq2.gguf", "blk.0.ffn_down.weight", "IQ2_XXS"}},
		{"a picture", copyTo(t, "photo.jpg", tinyGGUF, func(data []byte) []byte { return data }), []string{"photo.jpg", "is no model", ".gguf"}},
		{"weights alone", copyTo(t, "model.safetensors", "../model/testdata/ernie/model.safetensors", func(data []byte) []byte { return data }), []string{"model.safetensors", "config.json"}},
		{"one part of two", copyTo(t, "x-00001-of-00002.gguf", tinyGGUF, func(data []byte) []byte { return data }), []string{"x-00002-of-00002.gguf", "missing"}},
	} {
		p.drop(c.file)
		text := p.box("bad-model")
		for _, word := range c.words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: the box says %q, without %q", c.name, text, word)
			}
		}
		if c.name == "cut short" {
			p.accessible("a broken file")
		}
		// The way on that is offered leads to a model that works.
		p.click(`[data-kind="bad-model"] .offers button:first-child`)
		p.click(`[data-id="files:another.gguf"] button`)
		p.inUse("another")
		p.noBox("bad-model")
	}

	// A file that is changed after it was picked is refused by the browser when it is read again.
	changing := copyTo(t, "changing.gguf", tinyGGUF, func(data []byte) []byte { return data })
	p.drop(changing)
	p.inUse("changing")
	p.drop(copied)
	p.inUse("another")
	if err := os.WriteFile(changing, []byte("something else"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.click(testID("model-chip"))
	p.click(`[data-id="files:changing.gguf"] button`)
	if text := p.box("file-changed"); !strings.Contains(text, "changing.gguf") {
		t.Errorf("the box says %q", text)
	}
	p.checkRequests(probe)
}

// modelHost is a server of another origin with files that a reader may name.
type modelHost struct {
	url string

	mu     sync.Mutex
	ranges []string // that were asked for
	hold   chan struct{}
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
	file := func(w http.ResponseWriter, r *http.Request, name string, data []byte) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Access-Control-Expose-Headers", "Content-Range, ETag")
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, len(data)))
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	}
	mux.HandleFunc("/open/", func(w http.ResponseWriter, r *http.Request) {
		if filepath.Ext(r.URL.Path) != ".gguf" {
			http.NotFound(w, r)
			return
		}
		file(w, r, "tiny.gguf", gguf)
	})
	mux.HandleFunc("/folder/", func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(filepath.Join("../model/testdata/ernie", filepath.Base(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		h.mu.Lock()
		hold := h.hold
		h.mu.Unlock()
		if hold != nil && !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
			<-hold
		}
		file(w, r, "x", data)
	})
	mux.HandleFunc("/broken/", func(w http.ResponseWriter, r *http.Request) { file(w, r, "x", gguf[:len(gguf)/2]) })
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
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
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
