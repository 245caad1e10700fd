package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/pagelight/pagelight/internal/browsertest"
)

// probe is the one request that a plain file host cannot answer: the page asks whether a server is behind it.
const probe = "v1/models"

// A reader's visit to a plain file host: the model loads in the tab, on WebGPU, and answers.
func TestTab(t *testing.T) {
	host := serveSite(t)
	b := browsertest.Start(t, browsertest.SwiftShader)
	whole := open(t, b, host.url, "")

	t.Run("first screen while loading", func(t *testing.T) {
		p := whole.in(t)
		name, _ := shard(t)
		release := host.hold(name)
		defer release()
		p.load()
		p.wait("the download in the status line", `/\d.*\sMB/.test(document.querySelector('[data-testid="status"]').innerText)`)
		if state := eval[string](p, `document.documentElement.dataset.state`); state != "loading" {
			t.Errorf("the state is %q", state)
		}
		if id := eval[string](p, `document.activeElement.id`); id != "input" {
			t.Errorf("the focus is in %q, not in the message box", id)
		}
		p.checkerWorks()
		p.accessible("the first screen while the model loads")
		p.send("My name is Anna.") // waits for the model
		p.wait("the waiting question", last+`?.dataset.status === "waiting"`)
		p.accessible("a question that waits for the model")
		release()
		if a := p.finished(); a.Status != "done" || !strings.Contains(a.Text, "Anna") || a.Grown < 3 {
			t.Errorf("the question that was typed while loading is answered by %+v", a)
		}
	})

	t.Run("second turn sees the first", func(t *testing.T) {
		p := whole.in(t)
		p.waitState("ready")
		if text := p.box("software"); !strings.Contains(text, "processor") {
			t.Errorf("the box about the software adapter says %q", text)
		}
		a := p.ask("What is my name?", "Anna")
		t.Logf("%d texts seen, longest task %.0f ms: %s", a.Grown, a.Long, a.Facts)
		for _, part := range []string{"tokens", "tokens/s", "first word after", "this tab", "finished"} {
			if !strings.Contains(a.Facts, part) {
				t.Errorf("the line under the answer is %q and lacks %q", a.Facts, part)
			}
		}
	})

	t.Run("regenerate", func(t *testing.T) {
		p := whole.in(t)
		before := eval[string](p, last+`.dataset.id`)
		p.click(`[data-testid="message-assistant"]:last-of-type footer .actions button:nth-child(2)`)
		p.wait("another answer", last+`.dataset.status === "running"`)
		if a := p.finished(); a.Status != "done" || !strings.Contains(a.Text, "Anna") {
			t.Errorf("the second answer is %+v", a)
		}
		if n := len(p.messages()); n != 4 || eval[string](p, last+`.dataset.id`) != before {
			t.Errorf("after Regenerate there are %d messages: %q", n, p.messages())
		}
	})

	t.Run("Chinese", func(t *testing.T) {
		p := whole.in(t)
		p.look("light", "zh-CN")
		p.ask("中国的首都是哪里？", "北京")
		if text := eval[string](p, `document.querySelector("#status-text").textContent`); text != "就绪" {
			t.Errorf("the status says %q", text)
		}
		p.look("light", "en")
	})

	t.Run("conversation survives a reload", func(t *testing.T) {
		p := whole.in(t)
		before := p.messages()
		host.requests("")
		p.load()
		p.restored(len(before))
		if after := p.messages(); strings.Join(after, "\x00") != strings.Join(before, "\x00") {
			t.Errorf("before: %q\nafter: %q", before, after)
		}
		p.waitState("ready")
		if n := host.requests(".bin"); n != 0 {
			t.Errorf("%d files of the model were fetched again, which are in the browser's cache", n)
		}
	})

	t.Run("accessible with an answer, the drawer and the dialog", func(t *testing.T) {
		p := whole.in(t)
		p.ask("Write a hello world program in Go.", "fmt.Println")
		p.accessible("a conversation")
		p.click(testID("drawer-toggle"))
		eval[bool](p, `document.querySelectorAll("#drawer details").forEach((section) => (section.open = true)), true`)
		p.wait("the speed in the drawer", `/\d/.test(document.querySelector("#speed-now").textContent)`)
		p.wait("the memory in the drawer", `document.querySelector("#memory-total").textContent`)
		p.wait("the waterfall", `document.querySelectorAll("#waterfall li").length >= 4`)
		p.accessible("the drawer")
		p.click("#drawer-close")
		p.click(testID("model-chip"))
		p.wait("the dialog", `document.querySelector("#models").open && document.querySelectorAll("#model-list li").length === 2`)
		// The buttons behind a modal dialog cannot be pressed, so the looks change through their handlers, which need no pointer.
		p.accessible("the model dialog")
		p.click("#models-close")
	})

	t.Run("keyboard", func(t *testing.T) { keyboard(whole.in(t)) })

	t.Run("long answer: smooth, stopped, blocks freed", func(t *testing.T) {
		p := whole.in(t)
		longTasks(p)
		eval[bool](p, `localStorage.setItem("pagelight.settings", JSON.stringify({`+rambling+`, theme: "light"})), true`)
		p.load()
		p.waitState("ready")
		p.click(testID("drawer-toggle"))
		p.send("Tell me a story about a little cat on the Moon.")
		p.running()
		p.wait("blocks in use", `/^[1-9]/.test(document.querySelector("#blocks-summary").textContent)`)
		p.wait("this conversation in the map of blocks", `document.querySelector("#blocks-legend").textContent.startsWith("this conversation")`)
		p.click(testID("stop"))
		pressed := time.Now()
		a := p.finished()
		if a.Status != "stopped" || len(a.Text) < 20 || !strings.Contains(a.Facts, "stopped") {
			t.Errorf("the stopped answer is %+v", a)
		}
		t.Logf("stopped %v after the click", time.Since(pressed).Round(time.Millisecond))
		p.wait("free blocks", `/^0 of/.test(document.querySelector("#blocks-summary").textContent)`)
		p.click("#drawer-close")
	})

	t.Run("context full", func(t *testing.T) {
		p := whole.in(t)
		eval[bool](p, `localStorage.setItem("pagelight.settings", '{"max_model_len":96,"theme":"light"}'), true`)
		p.load()
		p.waitState("ready")
		p.send("What is my name?")
		p.box("context-full")
		if a := p.finished(); a.Status != "error" {
			t.Errorf("the answer is %+v", a)
		}
		p.accessible("the context is full")
		p.click(`[data-kind="context-full"] .offers button:first-child`) // without the oldest turns
		p.noBox("context-full")
		if a := p.finished(); a.Status != "done" || a.Text == "" || !strings.Contains(a.Facts, "without the") {
			t.Errorf("without the oldest turns the answer is %+v", a)
		}
	})

	t.Run("not enough memory", func(t *testing.T) {
		p := whole.in(t)
		eval[bool](p, `localStorage.setItem("pagelight.settings", '{"model":"synthetic:ernie-4.5-0.3b","gpu_memory":64,"theme":"light"}'), true`)
		p.load()
		if text := p.box("not-enough-memory"); !strings.Contains(text, "needs") || !strings.Contains(text, "64\u00a0MiB") {
			t.Errorf("the box says %q", text)
		}
		p.accessible("not enough memory")
		p.click(`[data-kind="not-enough-memory"] .offers button:nth-child(2)`) // memory settings
		p.wait("the field of the budget", `document.querySelector("#f-gpu_memory").offsetParent`)
		p.click("#drawer-close")
		p.click(`[data-kind="not-enough-memory"] .offers button:nth-child(1)`) // choose a model
		// The list says before any download what each needs of the budget, and for how many tokens it has room.
		for id, words := range map[string][2]string{
			"synthetic:ernie-4.5-0.3b": {"needs more than the memory budget", ""}, "builtin": {"of a budget of 64\u00a0MiB", "up to 2,048 tokens fit"},
		} {
			text := eval[string](p, fmt.Sprintf(`document.querySelector('[data-id=%q]').innerText`, id))
			if !strings.Contains(text, words[0]) || !strings.Contains(text, words[1]) {
				t.Errorf("the list says of %s: %q", id, text)
			}
		}
		p.click(`[data-id="builtin"] button`)
		p.noBox("not-enough-memory")
		p.waitState("ready")
	})

	t.Run("new chat", func(t *testing.T) {
		p := whole.in(t)
		p.click(testID("new-chat"))
		p.wait("the first screen", `!document.querySelector("#welcome").hidden && !document.querySelector("article")`)
		p.accessible("the first screen")
		p.load()
		p.waitState("ready")
		if n := len(p.messages()); n != 0 {
			t.Errorf("after a reload the new conversation has %d messages", n)
		}
	})

	whole.checkRequests(probe)
}

// longTasks fails when the page's thread is blocked while an answer streams. On a machine that is busy with other things,
// anything may take long once, so the best of a few answers counts.
func longTasks(p *page) {
	p.t.Helper()
	const limit, tries = 200, 3
	best := 1e9
	for range tries {
		a := p.ask("Tell me a story about a little cat on the Moon.", "cat")
		best = min(best, a.Long)
		if best < limit {
			break
		}
	}
	p.t.Logf("the longest task of the page while an answer streams took %.0f ms (0: none above 50)", best)
	if best >= limit {
		p.t.Errorf("the page's thread was blocked for %.0f ms in each of %d answers", best, tries)
	}
}

// keyboard goes through the page without a pointer.
func keyboard(p *page) {
	t := p.t
	t.Helper()
	focused := func() string {
		return eval[string](p, `document.activeElement?.dataset?.testid ?? document.activeElement?.id ?? ""`)
	}
	expect := func(what, want string) {
		t.Helper()
		if got := focused(); got != want {
			t.Errorf("%s: the focus is on %q, want %q", what, got, want)
		}
	}
	// Everything is reached, in the order of the page, and whatever has the focus shows it.
	eval[bool](p, `document.querySelector(".skip").focus(), true`)
	var order []string
	for range 60 {
		p.key(kb.Tab)
		at := focused()
		if at == "" && len(order) > 0 {
			at = eval[string](p, `document.activeElement?.tagName ?? ""`)
		}
		order = append(order, at)
		seen := eval[bool](p, `(() => {
			const node = document.activeElement;
			const ring = (n) => getComputedStyle(n).outlineStyle !== "none" && parseFloat(getComputedStyle(n).outlineWidth) > 0;
			return node === document.body || ring(node) || ring(node.closest("form") ?? node);
		})()`)
		if !seen {
			t.Errorf("nothing shows that %q has the focus", at)
		}
		if at == "composer" {
			break
		}
	}
	want := []string{"model-chip", "place-tab", "place-server", "adapter-chip", "new-chat", "lang", "theme", "drawer-toggle", "scroller", "composer"}
	i := 0
	for _, at := range order {
		if i < len(want) && at == want[i] {
			i++
		}
	}
	if i < len(want) {
		t.Errorf("Tab does not reach %q; the order is %q", want[i], order)
	}
	p.text("x")
	p.key(kb.Tab)
	expect("after the message box", "send")
	p.key(kb.Tab, chromedp.ModifierShift)
	expect("back", "composer")
	p.clear()

	// The dialog takes the focus, and gives it back.
	eval[bool](p, `document.querySelector("#model-chip").focus(), true`)
	p.key(kb.Enter)
	p.wait("the dialog", `document.querySelector("#models").open && document.activeElement.closest("#models")`)
	p.key(kb.Escape)
	p.wait("the dialog's end", `!document.querySelector("#models").open`)
	expect("after the dialog", "model-chip")

	// So does the drawer.
	eval[bool](p, `document.querySelector("#drawer-toggle").focus(), true`)
	p.key(" ")
	p.wait("the drawer", `!document.querySelector("#drawer").hidden && document.activeElement.closest("#drawer")`)
	p.key(kb.Escape)
	p.wait("the drawer's end", `document.querySelector("#drawer").hidden`)
	expect("after the drawer", "drawer-toggle")

	// Shift+Enter breaks the line; Enter while an input method composes picks a candidate; Enter alone sends.
	before := len(p.messages())
	p.click(testID("composer"))
	p.text("Tell me a story")
	p.key(kb.Enter, chromedp.ModifierShift)
	if value := eval[string](p, `document.activeElement.value`); !strings.HasSuffix(value, "\n") {
		t.Errorf("after Shift+Enter the message box has %q", value)
	}
	p.clear()
	p.click(testID("composer"))
	if _, err := chromedp.Call(p.Ctx, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "ni hao", SelectionStart: 6, SelectionEnd: 6}); err != nil {
		t.Fatal(err)
	}
	eval[bool](p, `document.activeElement.addEventListener("keydown", (event) => (window.composing = event.isComposing), { once: true }), true`)
	// An input method takes the key's character, so there is none.
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
		enter := input.DispatchKeyEventParams{Type: kind, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13}
		if _, err := chromedp.Call(p.Ctx, input.DispatchKeyEvent, enter); err != nil {
			t.Fatal(err)
		}
	}
	if !eval[bool](p, `window.composing`) {
		t.Error("the test's Enter was no part of a composition")
	}
	p.text("你好")
	if n := len(p.messages()); n != before {
		t.Errorf("Enter in a composition sent the question: %q", p.messages())
	}
	if value := eval[string](p, `document.activeElement.value`); value != "你好" {
		t.Errorf("after the composition the message box has %q", value)
	}
	p.key(kb.Enter)
	p.wait("the question", fmt.Sprintf(`document.querySelectorAll('[data-testid="message-text"]').length === %d`, before+2))
	p.finished()

	// Esc stops.
	p.send("Tell me a story about a little cat on the Moon.")
	p.wait("an answer", last+`.dataset.status === "running"`)
	p.key(kb.Escape)
	if a := p.finished(); a.Status != "stopped" {
		t.Errorf("after Esc the answer is %+v", a)
	}
	expect("after Esc", "composer")
}

// Without a GPU the model runs on the processor, and the page says so.
func TestTabWithoutGPU(t *testing.T) {
	b := browsertest.Start(t, browsertest.None)
	host := serveSite(t)
	t.Run("no adapter", func(t *testing.T) {
		p := open(t, b, host.url, `{"theme":"light","lang":"en"}`)
		p.waitState("ready")
		if text := p.box("no-adapter"); !strings.Contains(text, "runs on the processor") {
			t.Errorf("the box says %q", text)
		}
		p.ask("My name is Anna.", "Anna")
		a := p.ask("What is my name?", "Anna")
		t.Logf("%d texts seen: %s", a.Grown, a.Facts)
		if chip := eval[string](p, `document.querySelector('[data-testid="adapter-chip"]').innerText`); !strings.Contains(chip, "CPU") {
			t.Errorf("the chip says %q", chip)
		}
		p.accessible("no GPU")
		p.checkRequests(probe)
	})
	t.Run("no WebGPU", func(t *testing.T) {
		p := open(t, b, serveChanged(t, "worker.js", "delete WorkerNavigator.prototype.gpu;\n").url, `{"theme":"light","lang":"en"}`)
		p.waitState("ready")
		if text := p.box("no-webgpu"); !strings.Contains(text, "Chrome") {
			t.Errorf("the box says %q", text)
		}
		p.ask("What is the capital of France?", "Paris")
		p.accessible("no WebGPU")
		// The box can be put away, and nothing takes its place.
		p.click(`[data-kind="no-webgpu"] .offers button:last-child`)
		p.noBox("no-webgpu")
		p.checkRequests(probe)
	})
	t.Run("insecure origin", func(t *testing.T) {
		p := open(t, b, strings.Replace(host.url, "127.0.0.1", browsertest.InsecureHost, 1), `{"theme":"light","lang":"en"}`)
		p.waitState("ready")
		if text := p.box("insecure"); !strings.Contains(text, "https") {
			t.Errorf("the box says %q", text)
		}
		if offer := eval[string](p, `document.querySelector('[data-kind="insecure"] .offers button').innerText`); !strings.Contains(offer, "https://"+browsertest.InsecureHost) {
			t.Errorf("the first offer is %q", offer)
		}
		p.ask("What is the capital of France?", "Paris")
		p.accessible("an insecure origin")
		p.checkRequests(probe)
	})
	t.Run("server asked for", func(t *testing.T) {
		p := open(t, b, host.url, `{"theme":"light","lang":"en"}`)
		p.waitState("ready")
		p.click(testID("place-server"))
		if text := p.box("no-server"); !strings.Contains(text, "pagelight serve") {
			t.Errorf("the box says %q", text)
		}
		if pressed := eval[string](p, `document.querySelector("#place-tab").ariaPressed`); pressed != "true" {
			t.Error("the place has changed")
		}
	})
	t.Run("loading is cancelled", func(t *testing.T) {
		name, _ := shard(t)
		other := serveSite(t)
		release := other.hold(name)
		defer release()
		p := open(t, b, other.url, `{"theme":"light","lang":"en"}`)
		p.wait("the download in the status line", `/\d.*\sMB/.test(document.querySelector('[data-testid="status"]').innerText)`)
		p.click("#cancel-load")
		p.waitState("idle")
		release()
		p.accessible("a cancelled load")
		p.click("#load")
		p.waitState("ready")
	})
	t.Run("damaged file", func(t *testing.T) {
		name, size := shard(t)
		other := serveSite(t)
		other.through(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, name) {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(size))
			_, err := io.CopyN(w, zeros{}, size)
			if err != nil {
				t.Log(err) // the browser may give up
			}
			return true
		})
		p := open(t, b, other.url, `{"theme":"light","lang":"en"}`)
		if text := p.box("broken-file"); !strings.Contains(text, name[:16]) {
			t.Errorf("the box does not name the file: %q", text)
		}
		p.accessible("a damaged file")
		other.through(nil)
		p.click(`[data-kind="broken-file"] .offers button:first-child`)
		p.noBox("broken-file")
		p.waitState("ready")
	})
	t.Run("missing file", func(t *testing.T) {
		name, _ := shard(t)
		other := serveSite(t)
		other.through(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, name) {
				return false
			}
			http.NotFound(w, r)
			return true
		})
		p := open(t, b, other.url, `{"theme":"light","lang":"en"}`)
		if text := p.box("broken-file"); !strings.Contains(text, name[:16]) {
			t.Errorf("the box does not name the file: %q", text)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// hold stops a file half way until it is released.
func (h *fileHost) hold(name string) (release func()) {
	gate := make(chan struct{})
	h.through(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, name) {
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return sync.OnceFunc(func() { close(gate) })
}

// serveChanged serves the site with something in front of one of its scripts.
func serveChanged(t *testing.T, name, before string) *fileHost {
	t.Helper()
	h := serveSite(t)
	dir, err := siteDir()
	if err != nil {
		t.Fatal(err)
	}
	script := readFile(t, dir, name)
	h.through(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/"+name) {
			return false
		}
		w.Header().Set("Content-Type", "text/javascript")
		_, err := io.WriteString(w, before+script)
		return err == nil
	})
	return h
}

// The browser ends the GPU process in the middle of an answer, as it does after a driver's crash.
func TestLostDevice(t *testing.T) {
	b := browsertest.Start(t, browsertest.SwiftShader)
	p := open(t, b, serveSite(t).url, `{"theme":"light","lang":"en",`+rambling+`}`)
	p.waitState("ready")
	p.send("Tell me a story about a little cat on the Moon.")
	p.running()
	crashed := time.Now()
	crash := func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.CallBrowser(ctx, browser.CrashGPUProcess, cdp.Empty{})
		return err
	}
	if err := chromedp.Do(p.Ctx, chromedp.Func(crash)); err != nil {
		t.Logf("the call that ends the GPU process gave %v", err)
	}
	if text := p.box("device-lost"); !strings.Contains(text, "Nothing is lost") {
		t.Errorf("the box says %q", text)
	}
	if a := p.finished(); a.Status != "error" || len(a.Text) < 20 {
		t.Errorf("the answer that was under way is %+v", a)
	}
	t.Logf("the page says so %v after the crash", time.Since(crashed).Round(time.Millisecond))
	p.accessible("a lost device")
	reloaded := time.Now()
	eval[bool](p, `document.querySelector("#drawer-toggle").click(), document.querySelector("#reset-all").click(), document.querySelector("#drawer-close").click(), true`)
	p.click(`[data-kind="device-lost"] .offers button:first-child`)
	p.noBox("device-lost")
	if a := p.finished(); a.Status != "done" || !strings.Contains(a.Text, "cat") {
		t.Errorf("after the reload the answer is %+v", a)
	}
	t.Logf("reloaded and answered in %v", time.Since(reloaded).Round(time.Millisecond))
	if n := len(p.messages()); n != 2 {
		t.Errorf("%d messages: %q", n, p.messages())
	}
}
