package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
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

func same(data []byte) []byte { return data }

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

	copied := copyTo(t, "another.gguf", tinyGGUF, same)
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
		name, file, box string
		words           []string
	}{
		{"cut short", copyTo(t, "short.gguf", tinyGGUF, func(data []byte) []byte { return data[:len(data)/2] }), "bad-model", []string{"short.gguf", "cut short"}},
		{"no GGUF at all", copyTo(t, "noise.gguf", tinyGGUF, func([]byte) []byte { return []byte(strings.Repeat("noise", 100)) }), "bad-model", []string{"noise.gguf"}},
		{"empty", copyTo(t, "empty.gguf", tinyGGUF, func([]byte) []byte { return nil }), "bad-model", []string{"empty.gguf"}},
		{"a type that is not supported", copyTo(t, "iq2.gguf", tinyGGUF, retype(t, "blk.0.ffn_down.weight", 16)), "bad-model", []string{"iq2.gguf", "blk.0.ffn_down.weight", "IQ2_XXS"}},
		{"one part of two", copyTo(t, "x-00001-of-00002.gguf", tinyGGUF, same), "bad-model", []string{"x-00002-of-00002.gguf", "missing"}},
		{"a picture", copyTo(t, "photo.jpg", tinyGGUF, same), "not-a-model", []string{"photo.jpg", "is no model", ".gguf"}},
		{"weights alone", copyTo(t, "model.safetensors", "../model/testdata/ernie/model.safetensors", same), "not-a-model", []string{"model.safetensors", "config.json"}},
	} {
		p.drop(c.file)
		text := p.box(c.box)
		for _, word := range c.words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: the box says %q, without %q", c.name, text, word)
			}
		}
		if c.name == "cut short" {
			p.accessible("a broken file")
		}
		// The way on that is offered leads to a model that works.
		p.click(`[data-kind="` + c.box + `"] .offers button:first-child`)
		p.click(`[data-id="files:another.gguf"] button`)
		p.inUse("another")
		p.noBox(c.box)
	}

	// A file that is changed after it was picked is refused by the browser when it is read again.
	changing := copyTo(t, "changing.gguf", tinyGGUF, same)
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

// TestOwnFoldersOfEveryKind drops checkpoints of each architecture and of other tools' quantization. They have no tokenizer: what
// they compute is tested in internal/browsertest and internal/runner.
func TestOwnFoldersOfEveryKind(t *testing.T) {
	root := os.Getenv("PAGELIGHT_FIXTURES")
	if root == "" {
		t.Skip("SKIPPED: it needs PAGELIGHT_FIXTURES")
	}
	b := browsertest.Start(t, browsertest.None)
	p := open(t, b, serveSite(t).url, plain)
	p.waitState("ready")
	for name, bits := range map[string]string{
		"ernie": "16-bit", "ernie-bias-untied": "16-bit", "ernie-moe": "16-bit", "ernie-awq": "4-bit", "ernie-gptq": "4-bit",
		"llama": "16-bit", "qwen2": "16-bit", "qwen3": "16-bit",
	} {
		p.drop(absolute(t, filepath.Join(root, "goldens", name)))
		p.inUse(name)
		if more := eval[string](p, `document.querySelector("#model-more").textContent`); !strings.Contains(more, bits) {
			t.Errorf("beside the name of %s stands %q, want %s", name, more, bits)
		}
	}
}
