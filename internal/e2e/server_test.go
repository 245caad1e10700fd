package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/host"
	"github.com/pagelight/pagelight/internal/browsertest"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/static"
)

// buildProgram builds the real thing.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "pagelight")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./cmd/pagelight")
	cmd.Dir = browsertest.Root(t)
	started := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("built in %v", time.Since(started).Round(time.Millisecond))
	return program
}

// serve starts the server on an address and waits for its ready line.
func serve(t *testing.T, program, port string) (address string, kill func()) {
	t.Helper()
	cmd := exec.Command(program, "serve", "--device", "cpu", "--port", port)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	kill = func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-done
	}
	t.Cleanup(kill)
	ready := make(chan string, 1)
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, address, ok := strings.Cut(lines.Text(), "HTTP server started on "); ok {
				ready <- address
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the server ended by itself") // it is killed, which Wait calls an error
		}
	}()
	select {
	case address = <-ready:
	case <-done:
		t.Fatal("the server ended")
	case <-time.After(patience):
		t.Fatal("the server does not get ready")
	}
	return address + "/", kill
}

// blocksUsed asks the server for its statistics.
func blocksUsed(t *testing.T, address string) int {
	t.Helper()
	resp, err := http.Get(address + "api/info")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var info struct{ Stats engine.Stats }
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		t.Fatal(err)
	}
	return info.Stats.BlocksUsed
}

// The same page from the real server: it answers, stops, dies in the middle of an answer; the tab goes on.
func TestServer(t *testing.T) {
	program := buildProgram(t)
	address, kill := serve(t, program, "0")
	b := browsertest.Start(t, browsertest.None)
	whole := open(t, b, address, `{"theme":"light","lang":"en"}`)
	whole.waitState("ready") // in this tab

	t.Run("two turns", func(t *testing.T) {
		p := whole.in(t)
		p.click(testID("place-server"))
		p.wait("the server", `document.querySelector("#place-server").ariaPressed === "true" && document.documentElement.dataset.state === "ready"`)
		p.ask("My name is Anna.", "Anna")
		a := p.ask("What is my name?", "Anna")
		if !strings.Contains(a.Facts, "server") {
			t.Errorf("the line under the answer says %q", a.Facts)
		}
		t.Logf("%d texts seen: %s", a.Grown, a.Facts)
		p.ask("天空为什么是蓝色的？", "蓝")
		p.accessible("a conversation with the server")
	})

	t.Run("stop frees the blocks", func(t *testing.T) {
		p := whole.in(t)
		eval[bool](p, `localStorage.setItem("pagelight.settings", JSON.stringify({`+rambling+`, theme: "light", lang: "en", place: "server"})), true`)
		p.load()
		p.waitState("ready")
		p.send("Tell me a story about a little cat on the Moon.")
		p.running()
		if n := blocksUsed(t, address); n == 0 {
			t.Error("no blocks are in use while it answers")
		}
		p.click(testID("stop"))
		stopped := time.Now()
		for blocksUsed(t, address) > 0 {
			if time.Since(stopped) > 20*time.Second {
				t.Fatal("the blocks are still in use after 20 s")
			}
		}
		took := time.Since(stopped)
		t.Logf("all blocks were free %v after the click", took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("the blocks were freed only %v after Stop", took)
		}
		if a := p.finished(); a.Status != "stopped" {
			t.Errorf("the answer is %+v", a)
		}
	})

	t.Run("server gone, continue in this tab", func(t *testing.T) {
		p := whole.in(t)
		// The tab's engine has to be there before its files are gone with the server.
		p.click(testID("place-tab"))
		p.waitState("ready")
		p.click(testID("place-server"))
		p.wait("the server", `document.querySelector("#place-server").ariaPressed === "true" && document.documentElement.dataset.state === "ready"`)
		p.send("Tell me a story about a little cat on the Moon.")
		p.running()
		kill()
		if text := p.box("server-gone"); !strings.Contains(text, "does not answer") {
			t.Errorf("the box says %q", text)
		}
		p.box("request-lost")
		if a := p.finished(); a.Status != "error" || len(a.Text) < 20 {
			t.Errorf("the answer that was under way is %+v", a)
		}
		p.accessible("the server is gone")
		p.click(`[data-kind="server-gone"] .offers button:first-child`)
		p.noBox("server-gone")
		p.wait("the tab's engine", `document.querySelector("#place-tab").ariaPressed === "true" && document.documentElement.dataset.state === "ready"`)
		eval[bool](p, `document.querySelector("#drawer-toggle").click(), document.querySelector("#reset-all").click(), document.querySelector("#drawer-close").click(), true`)
		a := p.ask("What is my name?", "Anna") // which was said to the server
		if !strings.Contains(a.Facts, "this tab") {
			t.Errorf("the line under the answer says %q", a.Facts)
		}
	})

	t.Run("server back", func(t *testing.T) {
		p := whole.in(t)
		p.click(testID("place-server"))
		p.box("server-gone")
		_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/"))
		if err != nil {
			t.Fatal(err)
		}
		serve(t, program, port)
		p.noBox("server-gone") // by itself
		p.waitState("ready")
		p.ask("What is the capital of France?", "Paris")
	})
}

// hostile is an answer that tries what a model could be made to say.
const hostile = "# Hello <script>window.pwned = 1; alert(1)</script>\n\n" +
	"<img src=x onerror=\"window.pwned = 2; alert(2)\">\n\n" +
	"![a picture](https://evil.test/track.png \"x\")\n\n" +
	"<iframe src=\"https://evil.test/frame\"></iframe> <svg/onload=alert(3)> <math><mtext></mtext><script>alert(4)</script></math>\n\n" +
	"[press](javascript:alert(5)) [data](data:text/html,<script>alert(6)</script>) [good](https://good.test/page) <javascript:alert(7)>\n\n" +
	"<link rel=stylesheet href=https://evil.test/style.css><style>@import url(https://evil.test/import.css); body { display: none }</style>\n\n" +
	"<form action=https://evil.test/form><input name=a><button formaction=https://evil.test/button>go</button></form>\n\n" +
	"<div style=\"background: url(https://evil.test/background.png)\" onmouseover=alert(8)>over</div>\n\n" +
	"<base href=https://evil.test/> <meta http-equiv=refresh content=\"0;url=https://evil.test/\"> <object data=https://evil.test/o></object>\n\n" +
	"```html\"><img src=x onerror=alert(9)>\n</code></pre><script>window.pwned = 3</script>\n```\n\n" +
	"| a | <img src=x onerror=alert(10)> |\n|---|---|\n| `<script>alert(11)</script>` | <a href=\"vbscript:x\" id=\"composer\" name=\"chat\">b</a> |\n\n" +
	"<noscript><p title=\"</noscript><img src=x onerror=alert(12)>\"> <template><script>alert(13)</script></template>\n\nThe end.\n"

// hostileEngine says hostile things, also about itself.
type hostileEngine struct{}

const hostileName = `<img src=x onerror=alert(20)>"'><script>alert(21)</script>`

func (hostileEngine) Info() engine.Info {
	return engine.Info{
		Model: hostileName, Architecture: hostileName, Weights: hostileName, KVType: engine.KVF16, BlockSize: 16, NumBlocks: 64,
		MaxModelLen: 1024, MemoryBudget: 1 << 30, HasChat: true, Notes: []string{hostileName}, Kernels: []string{hostileName},
		Adapter: gpu.Info{Name: hostileName, Driver: hostileName, Kind: gpu.KindCPU, Backend: hostileName},
	}
}

func (hostileEngine) Stats() engine.Stats { return engine.Stats{} }

func (hostileEngine) Detokenize([]int32, bool) (string, error) { return hostileName, nil }

func (hostileEngine) Piece(int32) (string, bool) { return hostileName, true }

func (hostileEngine) Tokenize(string, bool) ([]int32, error) { return nil, engine.ErrNoTokenizer }

func (hostileEngine) TokenizeBare(string, bool) ([]int32, error) { return nil, engine.ErrNoTokenizer }

func (hostileEngine) RenderChat(context.Context, []engine.Message, *bool) (string, error) {
	return "", engine.ErrNoTokenizer
}

func (hostileEngine) Generate(ctx context.Context, _ engine.Request) iter.Seq2[engine.Event, error] {
	return func(yield func(engine.Event, error) bool) {
		n := 0
		for rest := hostile; rest != ""; n++ {
			size := min(7, len(rest)) // every piece of the text is on the page unfinished for a moment
			for !utf8.ValidString(rest[:size]) {
				size++
			}
			if !yield(engine.Event{Text: rest[:size], TokenIDs: []int32{1}, Usage: engine.Usage{PromptTokens: 3, CompletionTokens: n + 1, TotalTokens: n + 4}}, nil) {
				return
			}
			rest = rest[size:]
			select { // slow enough that the page shows what there is so far
			case <-time.After(8 * time.Millisecond):
			case <-ctx.Done():
				yield(engine.Event{}, ctx.Err())
				return
			}
		}
		yield(engine.Event{FinishReason: engine.FinishStop, TokenIDs: []int32{2}, Usage: engine.Usage{PromptTokens: 3, CompletionTokens: n + 1, TotalTokens: n + 4}}, nil)
	}
}

// Nothing that a model says runs, loads anything, or gets out of its place.
func TestHostileAnswer(t *testing.T) {
	srv, err := host.New(host.Config{Engine: hostileEngine{}, Static: static.FS()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(srv)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b := browsertest.Start(t, browsertest.None)
	p := open(t, b, server.URL+"/", `{"theme":"light","lang":"en","drawer":true}`)
	p.waitState("ready")
	eval[bool](p, `document.querySelectorAll("#drawer details").forEach((section) => (section.open = true)), true`)
	look := func() {
		t.Helper()
		found := eval[[]string](p, `[...document.querySelectorAll("main script, main iframe, main img, main object, main embed, main link, main style, main meta, main base, main math, main template, " +
			".text svg, .text form, .text input, .text [style], .text [id], .text [name], #drawer img, header img, dialog img, .text a:not([href^='https:'])")]
			.concat([...document.querySelectorAll("main *, header *, aside *")].filter((node) => [...node.attributes].some((a) => a.name.startsWith("on"))))
			.filter((node) => !node.closest(".code-head, .actions"))
			.map((node) => node.outerHTML.slice(0, 200))`)
		for _, html := range found {
			t.Errorf("the page has %s", html)
		}
		if eval[bool](p, `"pwned" in window`) {
			t.Error("a script of the answer ran")
		}
		if body := eval[string](p, `getComputedStyle(document.body).display`); body != "grid" {
			t.Errorf("a style of the answer works: the body is %s", body)
		}
	}
	a := p.ask("Hello "+hostileName, "The end.")
	look()
	for _, part := range []string{"<script>window.pwned = 1; alert(1)</script>", "onerror", "https://good.test/page", "<form action"} {
		if html := eval[string](p, last+`.innerText + [...`+last+`.querySelectorAll("a")].map((a) => a.href)`); !strings.Contains(html, part) {
			t.Errorf("the answer does not show %q", part)
		}
	}
	if name := eval[string](p, `document.querySelector("#model-name").textContent`); name != hostileName {
		t.Errorf("the model's name is shown as %q", name)
	}
	links := eval[[]string](p, `[...document.querySelectorAll(".text a")].map((a) => a.rel + " " + a.target + " " + a.protocol)`)
	for _, link := range links {
		if link != "noopener noreferrer nofollow _blank https:" {
			t.Errorf("a link is %q", link)
		}
	}
	p.click(testID("model-chip"))
	p.wait("the dialog", `document.querySelector("#models").open`)
	p.click("#models-close")
	// The same from storage.
	p.load()
	p.restored(2)
	p.waitState("ready")
	look()
	p.accessible("a hostile answer")
	p.checkRequests("models/index.json")
	t.Logf("%d texts seen, longest task %.0f ms, %d links", a.Grown, a.Long, len(links))
}
