// Package e2e has the tests of the whole page, as a reader meets it: real Chromium, real files, a real model, real clicks
// and keys. The pieces have their own tests beside them; these fail when the pieces do not fit.
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pagelight/pagelight/internal/browsertest"
	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/site"
	"github.com/pagelight/pagelight/static"
)

// patience is for what takes a few seconds on a quiet machine.
const patience = 90 * time.Second

var exported string // the folder of siteDir, to remove

// siteDir is the exported site, written once.
var siteDir = sync.OnceValues(func() (string, error) {
	if _, err := static.FS().Open("dist/engine.wasm"); err != nil {
		return "", fmt.Errorf("the engine for the browser is not built, run make wasm: %w", err)
	}
	dir, err := os.MkdirTemp("", "pagelight-site-")
	if err != nil {
		return "", err
	}
	exported = dir
	models, err := site.Models(context.Background(), site.Bundle{
		ID: "builtin", Name: "ERNIE-Tiny", Files: builtin.FS(), Languages: []string{"en", "zh"}, Note: "demo",
	})
	if err != nil {
		return dir, err
	}
	return dir, site.Export(dir, static.FS(), models)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if exported != "" {
		os.RemoveAll(exported)
	}
	os.Exit(code)
}

// subPath is where the plain file host has the site: not at its root.
const subPath = "/some/where/"

// fileHost is a plain file server: no header but what net/http sends by itself.
type fileHost struct {
	url string

	mu     sync.Mutex
	counts map[string]int
	change func(w http.ResponseWriter, r *http.Request) (done bool)
}

func serveSite(t *testing.T) *fileHost {
	t.Helper()
	dir, err := siteDir()
	if err != nil {
		t.Fatal(err)
	}
	h := &fileHost{counts: map[string]int{}}
	files := http.StripPrefix(strings.TrimSuffix(subPath, "/"), http.FileServer(http.Dir(dir)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.counts[strings.TrimPrefix(r.URL.Path, subPath)]++
		change := h.change
		h.mu.Unlock()
		if change != nil && change(w, r) {
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections() // a request may be held back for ever
		server.Close()
	})
	h.url = server.URL + subPath
	return h
}

// through has every request go through change first; nil ends it.
func (h *fileHost) through(change func(w http.ResponseWriter, r *http.Request) (done bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.change = change
}

// requests counts requests whose path has a suffix, and forgets them.
func (h *fileHost) requests(suffix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for path, count := range h.counts {
		if strings.HasSuffix(path, suffix) {
			n += count
			delete(h.counts, path)
		}
	}
	return n
}

// shard is the largest file of the built-in model.
func shard(t *testing.T) (name string, size int64) {
	t.Helper()
	dir, err := siteDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "models", "builtin", "*.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > size {
			name, size = filepath.Base(file), info.Size()
		}
	}
	if size < 1<<20 {
		t.Fatal("no shard found")
	}
	return name, size
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// page is the page in a tab, as seen by one test.
type page struct {
	*browsertest.Tab
	t   *testing.T
	url string
	log *pageLog
}

// pageLog is what the browser tells about a tab.
type pageLog struct {
	mu       sync.Mutex
	requests []string
	failed   []string
	dialogs  []string
}

// open opens the page with settings as they would be remembered, "" for none.
func open(t *testing.T, b *browsertest.Browser, address, settings string) *page {
	t.Helper()
	p := &page{Tab: b.Open(t, address+"favicon.svg"), t: t, url: address, log: &pageLog{}}
	err := chromedp.Listen(p.Ctx, func(event any) {
		p.log.mu.Lock()
		defer p.log.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			p.log.requests = append(p.log.requests, e.Request.URL)
		case *network.EventResponseReceived:
			if e.Response.Status >= 400 {
				p.log.failed = append(p.log.failed, e.Response.URL)
			}
		case *cdppage.EventJavascriptDialogOpening:
			p.log.dialogs = append(p.log.dialogs, e.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(p.Ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if settings != "" {
		eval[bool](p, `localStorage.setItem("pagelight.settings", `+quote(settings)+`), true`)
	}
	p.load()
	return p
}

// in gives the page to another test.
func (p *page) in(t *testing.T) *page {
	q := *p
	q.t = t
	return &q
}

func (p *page) load() {
	p.t.Helper()
	p.Navigate(p.t, p.url)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(b)
}

func eval[T any](p *page, script string) T {
	p.t.Helper()
	return browsertest.Eval[T](p.t, p.Tab, 30*time.Second, script)
}

// do runs steps of chromedp.
func (p *page) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.Ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%s: %v\n%s", what, err, p.describe())
	}
}

// wait waits until an expression is true.
func (p *page) wait(what, condition string) {
	p.t.Helper()
	p.waitWithin(patience, what, condition)
}

func (p *page) waitWithin(limit time.Duration, what, condition string) {
	p.t.Helper()
	started := time.Now()
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	var err error
	for time.Since(started) < limit {
		var ok bool
		// An error is a page that is being loaded.
		if ok, err = browsertest.TryEval[bool](p.Tab, 30*time.Second, "Boolean("+condition+")"); err == nil && ok {
			return
		}
		<-tick.C
	}
	p.t.Fatalf("waited %v for %s (%v)\n%s", limit, what, err, p.describe())
}

// describe is what the page shows, for failures.
func (p *page) describe() string {
	text, err := browsertest.TryEval[string](p.Tab, 30*time.Second, `JSON.stringify({
		state: document.documentElement.dataset.state, status: document.querySelector("#status")?.innerText,
		boxes: [...document.querySelectorAll("[data-testid=state-banner]")].map((box) => box.dataset.kind + ": " + box.innerText),
		messages: [...document.querySelectorAll("article")].slice(-4).map((m) => (m.dataset.status ?? "question") + ": " + m.innerText.slice(0, 300)),
		focus: document.activeElement?.id, address: location.href}, null, 1)`)
	if err != nil {
		return "the page cannot be read: " + err.Error()
	}
	return "the page has " + text
}

func testID(id string) string { return `[data-testid="` + id + `"]` }

// click presses with the mouse at the middle of what a selector finds, as soon as a pointer can reach it there.
func (p *page) click(selector string) {
	p.t.Helper()
	const find = `(() => {
		const node = document.querySelector(%s);
		node?.scrollIntoView({ block: "nearest" });
		const box = node?.getBoundingClientRect();
		if (!box?.width || node.disabled) return null;
		const at = [box.left + box.width / 2, box.top + box.height / 2];
		return node.contains(document.elementFromPoint(...at)) ? at : null;
	})()`
	script := fmt.Sprintf(find, quote(selector))
	p.wait("a way to press "+selector, script)
	at := eval[[]float64](p, script)
	if len(at) != 2 {
		p.t.Fatalf("%s went away", selector)
	}
	p.do("click "+selector, chromedp.MouseClickXY(at[0], at[1]))
}

// key presses and releases keys. A key that makes a character does so unless the page prevents it: chromedp's own KeyEvent
// sends the character by itself.
func (p *page) key(keys string, modifiers ...chromedp.Modifier) {
	p.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		for i, event := range events {
			chromedp.KeyModifiers(modifiers...)(event)
			switch event.Type {
			case kb.KeyChar:
				continue
			case kb.KeyDown:
				if i+1 < len(events) && events[i+1].Type == kb.KeyChar {
					event.Text = events[i+1].Text
				}
			}
			if _, err := chromedp.Call(p.Ctx, input.DispatchKeyEvent, *event); err != nil {
				p.t.Fatalf("key %q: %v", r, err)
			}
		}
	}
}

// clear empties the message box.
func (p *page) clear() {
	p.t.Helper()
	p.click(testID("composer"))
	eval[bool](p, `document.activeElement.select(), true`)
	p.key(kb.Delete)
}

// text types text where the focus is, as one piece.
func (p *page) text(text string) {
	p.t.Helper()
	if _, err := chromedp.Call(p.Ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) waitState(state string) {
	p.t.Helper()
	p.wait("the state "+state, `document.documentElement.dataset.state === `+quote(state))
}

// box waits for the box of a state and gives its text.
func (p *page) box(kind string) string {
	p.t.Helper()
	find := `document.querySelector('[data-testid="state-banner"][data-kind="` + kind + `"]')`
	p.wait("the box "+kind, find)
	return eval[string](p, find+`.innerText`)
}

func (p *page) noBox(kind string) {
	p.t.Helper()
	p.wait("the end of the box "+kind, `!document.querySelector('[data-kind="`+kind+`"]')`)
}

// last is an expression for the last answer.
const last = `[...document.querySelectorAll('[data-testid="message-assistant"]')].at(-1)`

// answer is an answer as the page shows it.
type answer struct {
	Text   string
	Status string
	Facts  string
	Grown  int     // how many different texts were seen on the way
	Long   float64 // the longest task of the page's thread, in ms
}

// send types a question and sends it with Enter. The answer's growth and the page's long tasks are watched from here on.
func (p *page) send(question string) {
	p.t.Helper()
	eval[bool](p, `(() => {
		const watch = { texts: new Set(), long: 0 };
		window.e2e?.stop();
		const look = () => { const text = `+last+`?.querySelector('[data-testid="message-text"]').textContent; if (text) watch.texts.add(text); };
		const growth = new MutationObserver(look);
		growth.observe(document.querySelector("#messages"), { subtree: true, childList: true, characterData: true });
		const note = (entries) => { for (const entry of entries) watch.long = Math.max(watch.long, entry.duration); };
		const tasks = new PerformanceObserver((list) => note(list.getEntries()));
		tasks.observe({ type: "longtask" });
		watch.read = () => { note(tasks.takeRecords()); return watch.long; };
		watch.stop = () => { growth.disconnect(); tasks.disconnect(); };
		window.e2e = watch;
		return true;
	})()`)
	p.click(testID("composer"))
	p.text(question)
	p.key(kb.Enter)
	p.wait("the question in the conversation", `[...document.querySelectorAll('[data-testid="message-user"]')].at(-1)?.innerText.includes(`+quote(question)+`)`)
	if value := eval[string](p, `document.querySelector("#input").value`); value != "" {
		p.t.Errorf("after sending, the message box has %q", value)
	}
}

// finished waits for the end of the last answer.
func (p *page) finished() answer {
	p.t.Helper()
	p.wait("the end of the answer", `["done", "stopped", "error", "interrupted"].includes(`+last+`?.dataset.status) && document.documentElement.dataset.state !== "running"`)
	return eval[answer](p, `({ Text: `+last+`.querySelector('[data-testid="message-text"]').innerText, Status: `+last+`.dataset.status,
		Facts: `+last+`.querySelector('[data-testid="message-facts"]').textContent, Grown: window.e2e?.texts.size ?? 0, Long: window.e2e?.read() ?? 0 })`)
}

// ask sends a question and gives the answer, which must come in pieces and contain want.
func (p *page) ask(question, want string) answer {
	p.t.Helper()
	p.send(question)
	a := p.finished()
	if a.Status != "done" || !strings.Contains(a.Text, want) {
		p.t.Errorf("%q is answered by %+v, want %q in it", question, a, want)
	}
	if a.Grown < 3 {
		p.t.Errorf("the answer to %q was seen in %d states: it does not stream", question, a.Grown)
	}
	return a
}

// rambling are settings with which the model does not find an end before the context is full.
const rambling = `"temperature":2,"seed":7,"top_p":1,"top_k":0`

// running waits until an answer has a few words.
func (p *page) running() {
	p.t.Helper()
	p.wait("a growing answer", `document.documentElement.dataset.state === "running" && `+last+`?.querySelector('[data-testid="message-text"]').textContent.length > 20`)
}

// messages gives the texts of the conversation.
func (p *page) messages() []string {
	p.t.Helper()
	// Not innerText: what is out of sight has none.
	return eval[[]string](p, `[...document.querySelectorAll('[data-testid="message-text"]')].map((m) => m.textContent.trim())`)
}

// restored waits until a conversation of n messages is shown again: first there are its elements, a frame later its texts.
func (p *page) restored(n int) {
	p.t.Helper()
	p.wait("the conversation", fmt.Sprintf(`((list) => list.length === %d && list.every((m) => m.textContent))([...document.querySelectorAll('[data-testid="message-text"]')])`, n))
}

// checkRequests fails when the tab asked another origin for anything, when a request other than those allowed failed, when
// a dialog of the browser opened, or when the console says anything else.
func (p *page) checkRequests(mayFail ...string) {
	p.t.Helper()
	own, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	if len(p.log.requests) < 10 {
		p.t.Errorf("only %d requests were seen: %q", len(p.log.requests), p.log.requests)
	}
	for _, address := range p.log.requests {
		if u, err := url.Parse(address); err != nil || u.Host != own.Host && u.Scheme != "data" && u.Scheme != "blob" {
			p.t.Errorf("the page asked for %s", address)
		}
	}
	for _, address := range p.log.failed {
		if strings.HasSuffix(address, "/favicon.ico") {
			continue // asked for by the browser itself, for the picture with which open begins
		}
		if !slices.ContainsFunc(mayFail, func(part string) bool { return strings.Contains(address, part) }) {
			p.t.Errorf("the host does not have %s", address)
		}
	}
	for _, text := range p.log.dialogs {
		p.t.Errorf("a dialog opened: %q", text)
	}
	for _, line := range p.Console() {
		// The lists above have what was not found by its address. The other is Chromium's own word about a missing GPU.
		if !strings.Contains(line, "status of 404") && !strings.Contains(line, "No available adapters") {
			p.t.Errorf("the console says %s", line)
		}
	}
}
