package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
)

const ggufDir = "../weights/testdata/gguf"

// ggufPrompt is a prompt of expected.json beside the files.
type ggufPrompt struct {
	IDs       []int32   `json:"ids"`
	TopIDs    []int32   `json:"top_ids"`
	TopLogits []float32 `json:"top_logits"`
	Greedy    []int32   `json:"greedy"`
}

// ggufPath is where a file lies: in this project or, for a full run, among the larger fixtures.
func ggufPath(name string) string {
	path := filepath.Join(ggufDir, name)
	if _, err := os.Stat(path); err != nil && os.Getenv("PAGELIGHT_FULL") == "1" {
		return filepath.Join(os.Getenv("PAGELIGHT_FIXTURES"), "gguf", name)
	}
	return path
}

// ggufFiles are the GGUF files that are there with what must come of them.
func ggufFiles(t *testing.T) map[string][]ggufPrompt {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(ggufDir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Files []struct {
			File    string
			Prompts []ggufPrompt
		}
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	files := map[string][]ggufPrompt{}
	for _, f := range all.Files {
		if _, err := os.Stat(ggufPath(f.File)); err == nil {
			files[f.File] = f.Prompts
		}
	}
	return files
}

// ggufSite has the worker and GGUF files.
func ggufSite(t *testing.T, names ...string) fstest.MapFS {
	t.Helper()
	files := site(t)
	for _, name := range names {
		data, err := os.ReadFile(ggufPath(name))
		if err != nil {
			t.Fatal(err)
		}
		files["models/"+name] = &fstest.MapFile{Data: data, ModTime: time.Unix(1700000000, 0)}
	}
	return files
}

func loadGGUF(id, name, device string) Message {
	m := loadMessage(id, "", "device", device)
	m["model"] = Message{"kind": "url", "url": "models/" + name}
	return m
}

// GGUF files give in a tab the logits that numpy computes from them.
func TestGGUF(t *testing.T) {
	const most = 1e-3 // of the row's largest magnitude
	want := ggufFiles(t)
	if len(want) < 3 {
		t.Fatalf("only %d files are there", len(want))
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	b := Start(t, SwiftShader)
	base := Serve(t, Mount{"/", ggufSite(t, names...)})
	for _, name := range names {
		devices := []string{"gpu"}
		if name == "ernie-m-q4_k_m.gguf" {
			devices = append(devices, "cpu")
		}
		for _, device := range devices {
			t.Run(name+"/"+device, func(t *testing.T) {
				c := b.NewClient(t, base)
				c.MustAsk(loadGGUF("l", name, device), "ready", patience)
				checkGGUF(t, c, want[name], most)
			})
		}
	}
}

func checkGGUF(t *testing.T, c *Client, prompts []ggufPrompt, most float64) {
	t.Helper()
	var list []Message
	for i, p := range prompts {
		list = append(list, Message{"name": fmt.Sprint(i), "input_ids": p.IDs, "from": len(p.IDs) - 1, "steps": len(p.Greedy)})
	}
	var got struct {
		Results []struct {
			Greedy []int32
			Logits string
		}
	}
	c.MustAsk(Message{"type": "logits", "id": "g", "cases": list}, "logits", patience).Decode(t, &got)
	for i, p := range prompts {
		if !slices.Equal(got.Results[i].Greedy, p.Greedy) {
			t.Errorf("prompt of %d: greedy ids are %v, want %v", len(p.IDs), got.Results[i].Greedy, p.Greedy)
		}
		raw, err := base64.StdEncoding.DecodeString(got.Results[i].Logits)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, len(raw)/4/len(p.Greedy))
		copy(gpu.Bytes(row), raw)
		largest, worst := 0.0, 0.0
		for _, v := range row {
			largest = max(largest, abs(v))
		}
		for j, id := range p.TopIDs {
			worst = max(worst, abs(row[id]-p.TopLogits[j]))
		}
		if !(worst <= most*largest) {
			t.Errorf("prompt of %d: the largest logits differ by %.2g of the row's largest, at most %g allowed", len(p.IDs), worst/largest, most)
		}
	}
}

func abs(v float32) float64 { return float64(max(v, -v)) }

// A file that the user has picked is read where it lies, and one at an address is kept for the next time.
func TestGGUFFromDiskAndFromCache(t *testing.T) {
	const name = "ernie-s-q4_0.gguf"
	prompts := ggufFiles(t)[name]
	files := ggufSite(t, name)
	b := Start(t, SwiftShader)
	base := Serve(t, Mount{"/", files})
	c := b.NewClient(t, base)

	picked := loadMessage("picked", "", "device", "cpu")
	picked["model"] = Message{"kind": "files"}
	Eval[bool](t, c.Tab, patience, fmt.Sprintf(`(async () => {
		const message = %s;
		const blob = await (await fetch("models/%s")).blob();
		message.model.files = [new File([blob], "Picked.Q4_0.gguf")];
		return client.post(message);
	})()`, marshal(t, picked), name))
	var ready struct{ Info struct{ Model string } }
	a := c.Wait("picked", patience)
	a.Decode(t, &ready)
	if a.Type != "ready" || ready.Info.Model != "Picked.Q4_0" {
		t.Fatalf("a picked file is answered by %.500s", a.Raw)
	}
	checkGGUF(t, c, prompts, 1e-3)

	c.MustAsk(loadGGUF("first", name, "cpu"), "ready", patience)
	right := files["models/"+name]
	files["models/"+name] = &fstest.MapFile{Data: make([]byte, len(right.Data)), ModTime: right.ModTime}
	c.MustAsk(loadGGUF("kept", name, "cpu"), "ready", patience) // nothing says that it has changed
	checkGGUF(t, c, prompts, 1e-3)
	files["models/"+name].ModTime = right.ModTime.Add(time.Hour)
	for _, e := range []struct{ name, code string }{{name, "bad_model"}, {"nobody.gguf", "file_missing"}, {"some-00001-of-00002.gguf", "bad_model"}} {
		a := c.Ask(loadGGUF("bad "+e.name, e.name, "cpu"), patience)
		if a.Type != "error" || a.Error.Code != e.code || !strings.Contains(a.Error.Message, e.name) || e.code == "file_missing" && a.Error.File != e.name {
			t.Errorf("%s is answered by %.500s", e.name, a.Raw)
		}
	}
}
