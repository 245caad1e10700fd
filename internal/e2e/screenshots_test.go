package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/pagelight/pagelight/internal/browsertest"
)

// Pictures of the page with real answers, for those who changed it to look at: set PAGELIGHT_SCREENSHOTS to a folder.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("PAGELIGHT_SCREENSHOTS")
	if dir == "" {
		t.Skip("PAGELIGHT_SCREENSHOTS is not set")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := browsertest.Start(t, browsertest.SwiftShader)
	sizes := []struct {
		name          string
		width, height int64
		options       []chromedp.EmulateViewportOption
	}{
		{"phone", 360, 740, []chromedp.EmulateViewportOption{chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)}},
		{"desktop", 1280, 800, nil},
	}
	for lang, talk := range map[string]struct {
		code      string
		questions []string
	}{
		"en": {"en", []string{"My name is Anna.", "Explain paged attention in one sentence.", "Write a hello world program in Go.", "What is my name?"}},
		"zh": {"zh-CN", []string{"我叫小明。", "天空为什么是蓝色的？", "用 Python 写一个函数，把两个数相加。", "我叫什么名字？"}},
	} {
		p := open(t, b, serveSite(t).url, `{"theme":"light","lang":"`+lang+`"}`)
		each := func(what string) {
			t.Helper()
			for _, size := range sizes {
				p.do("size", chromedp.EmulateViewport(size.width, size.height, size.options...))
				for _, theme := range []string{"light", "dark"} {
					p.look(theme, talk.code)
					p.capture(filepath.Join(dir, fmt.Sprintf("%s-%s-%s-%s.png", what, size.name, theme, lang)))
				}
			}
			p.do("size", chromedp.EmulateViewport(1280, 800))
		}
		p.do("size", chromedp.EmulateViewport(1280, 800))
		p.waitState("ready")
		p.box("software")
		each("first")
		p.click(`[data-kind="software"] .offers button:last-child`)
		for _, question := range talk.questions {
			p.ask(question, "")
		}
		each("conversation")
		p.click(testID("drawer-toggle"))
		p.wait("the drawer's figures", `/\d/.test(document.querySelector("#speed-now").textContent) && document.querySelector("#memory-total").textContent`)
		each("drawer")
		p.click("#drawer-close")
		p.click(testID("model-chip"))
		each("models")
		eval[bool](p, `document.querySelector("#models").scrollTo(0, 1e6), true`)
		p.click(testID("open-address"))
		p.wait("the word about the address", `document.querySelector("#address-error").textContent`)
		each("own-model")
		p.click("#models-close")
		p.click(testID("new-chat"))
		p.drag(input.DispatchDragEventTypeDragEnter, tinyGGUF)
		p.wait("the place to drop on", `!document.querySelector("#drop").hidden`)
		each("drop")
		p.drag(input.DispatchDragEventTypeDragCancel, tinyGGUF)
		p.drop(copyTo(t, "photo.jpg", tinyGGUF, same))
		p.box("not-a-model")
		each("not-a-model")
		p.drop(absolute(t, tinyGGUF))
		p.inUse("ernie-s-q4_0")
		p.click(testID("model-chip"))
		each("own-in-use")
		p.click("#models-close")
	}
}

// The two pictures of the README, before they are made smaller: the page in the middle of an answer.
func TestReadmePictures(t *testing.T) {
	dir := os.Getenv("PAGELIGHT_SCREENSHOTS")
	if dir == "" {
		t.Skip("PAGELIGHT_SCREENSHOTS is not set")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := browsertest.Start(t, browsertest.SwiftShader)
	p := open(t, b, serveSite(t).url, `{"theme":"light","lang":"en","drawer":true,"temperature":0}`)
	p.do("size", chromedp.EmulateViewport(1280, 800))
	p.waitState("ready")
	p.click(`[data-kind="software"] .offers button:last-child`)
	p.click("#d-memory summary")
	p.ask("Explain paged attention in one sentence.", "blocks")
	p.ask("Write a hello world program in Go.", "fmt.Println")
	p.send("Tell me a story about a little cat on the Moon.")
	p.wait("half of the answer", last+`?.innerText.length > 200 && /^[1-9]/.test(document.querySelector("#blocks-summary").textContent)`)
	p.capture(filepath.Join(dir, "page.png"))
	p.finished()
	p.click("#drawer-close")
	p.look("dark", "en")
	p.do("size", chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)))
	p.ask("Write a poem about the sea.", "sea")
	p.capture(filepath.Join(dir, "page-phone.png"))
}

// capture writes what the page looks like, at its end and without a pointer on it.
func (p *page) capture(file string) {
	p.t.Helper()
	p.do("move the pointer away", chromedp.MouseEvent("mouseMoved", 0, 0))
	browsertest.Eval[bool](p.t, p.Tab, 10*time.Second, `new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(() => {
		const scroller = document.querySelector("#scroller");
		if (scroller) scroller.scrollTop = document.querySelector("article") ? scroller.scrollHeight : 0;
		requestAnimationFrame(() => requestAnimationFrame(() => next(true)));
	})))`)
	picture, err := chromedp.Run(p.Ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
