package browsertest

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pagelight/pagelight/internal/weights"
)

const (
	goldenDir = "../model/testdata"
	patience  = 2 * time.Minute // for what takes seconds on a machine that is not busy
)

// site is a folder with the worker, the engine and models made of Hugging Face folders.
func site(t *testing.T, goldens ...string) fstest.MapFS {
	t.Helper()
	files := WorkerFiles(t)
	files["dist/engine.wasm"] = &fstest.MapFile{Data: EngineWASM(t)}
	for _, name := range goldens {
		src, err := weights.OpenDir(filepath.Join(goldenDir, name))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), name)
		// Small shards, so that even a small model has several.
		if err := weights.WriteBundle(context.Background(), src, dir, weights.BundleOptions{ShardBytes: 256 << 10}, nil); err != nil {
			t.Fatal(err)
		}
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
		addDir(t, files, "models/"+name, os.DirFS(dir))
	}
	return files
}

func addDir(t *testing.T, files fstest.MapFS, at string, from fs.FS) {
	t.Helper()
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		files[at+"/"+name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// loadMessage loads a bundle of the site. Options are pairs of name and value.
func loadMessage(id, model string, options ...any) Message {
	o := Message{"device": "gpu", "kv": "f32", "gpu_memory": 256 << 20, "max_model_len": 0, "quant": "none"}
	for i := 0; i < len(options); i += 2 {
		o[options[i].(string)] = options[i+1]
	}
	return Message{"type": "load", "id": id, "model": Message{"kind": "bundle", "url": "models/" + model + "/"}, "options": o}
}

type goldenCase struct {
	Name     string  `json:"name"`
	InputIDs []int32 `json:"input_ids"`
	Greedy   []int32 `json:"greedy"`
}

func goldenCases(t *testing.T, name string) []goldenCase {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, name, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// The golden checkpoints give the logits and the greedy ids of Hugging Face transformers in a tab: on the software adapter
// and on the engine's own kernels.
func TestGoldens(t *testing.T) {
	b := Start(t, SwiftShader)
	goldens := []string{"ernie", "ernie-bias-untied", "ernie-awq", "ernie-gptq", "ernie-moe", "llama", "qwen2", "qwen3"}
	base := Serve(t, Mount{"/", site(t, goldens...)})
	for _, name := range goldens {
		for _, device := range []string{"gpu", "cpu"} {
			t.Run(name+"/"+device, func(t *testing.T) { checkGolden(t, b.NewClient(t, base), name, device) })
		}
	}
}

func checkGolden(t *testing.T, c *Client, name, device string) {
	ready := c.MustAsk(loadMessage("l", name, "device", device, "logit_rows", 64), "ready", patience)
	var r struct {
		Info struct {
			Adapter struct{ Kind, Driver string }
			Kernels []string
		}
	}
	ready.Decode(t, &r)
	if want := map[string]string{"gpu": "webgpujs", "cpu": "cpu"}[device]; r.Info.Adapter.Driver != want {
		t.Fatalf("runs on %+v, want the driver %s", r.Info.Adapter, want)
	}
	cases := goldenCases(t, name)
	var list []Message
	for _, g := range cases {
		from := 0
		if len(g.InputIDs) > 64 {
			from = len(g.InputIDs) - 1 // the references have the last row only
		}
		list = append(list, Message{"name": g.Name, "input_ids": g.InputIDs, "from": from, "steps": len(g.Greedy)})
	}
	started := time.Now()
	var got struct {
		Results []struct {
			Name   string
			Greedy []int32
			Rows   int
			Logits string
		}
	}
	c.MustAsk(Message{"type": "logits", "id": "g", "cases": list}, "logits", patience).Decode(t, &got)
	t.Logf("%d cases in %v", len(cases), time.Since(started))
	if len(got.Results) != len(cases) {
		t.Fatalf("%d results for %d cases", len(got.Results), len(cases))
	}
	want, err := weights.OpenSafetensors(filepath.Join(goldenDir, name, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	for i, g := range cases {
		res := got.Results[i]
		if !slices.Equal(res.Greedy, g.Greedy) {
			t.Errorf("%s: greedy ids are %v, want %v", g.Name, res.Greedy, g.Greedy)
		}
		prompt := g.Name + ".logits"
		if len(g.InputIDs) > 64 {
			prompt = g.Name + ".last_logits"
		}
		logits, err := base64.StdEncoding.DecodeString(res.Logits)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := want.Float32s(prompt)
		if err != nil {
			t.Fatal(err)
		}
		worst := compare(t, g.Name+" prompt", logits, ref)
		if len(g.Greedy) == 0 { // the two best ids after the prompt are too close to tell
			continue
		}
		rest, err := want.Float32s(g.Name + ".greedy_logits")
		if err != nil {
			t.Fatal(err)
		}
		// The first row of greedy_logits is the last of the prompt; the last id is chosen but not computed.
		vocab := len(rest) / len(g.Greedy)
		if 4*(len(ref)+len(rest)-vocab) != len(logits) {
			t.Errorf("%s: %d bytes of logits, want %d and %d rows of %d", g.Name, len(logits), len(ref)/vocab, len(g.Greedy)-1, vocab)
			continue
		}
		worst = max(worst, compare(t, g.Name+" answer", logits[4*(len(ref)-vocab):], rest))
		t.Logf("%-6s %d ids, logits differ by %.2g of the row's largest at most", g.Name, len(g.Greedy), worst)
	}
}

// compare gives the largest difference relative to the largest magnitude, and fails above what the order of sums explains.
func compare(t *testing.T, what string, got []byte, want []float32) float64 {
	t.Helper()
	if len(got) < 4*len(want) {
		t.Errorf("%s: %d bytes, want %d", what, len(got), 4*len(want))
		return 0
	}
	largest, worst := 0.0, 0.0
	for i, w := range want {
		g := math.Float32frombits(uint32(got[4*i]) | uint32(got[4*i+1])<<8 | uint32(got[4*i+2])<<16 | uint32(got[4*i+3])<<24)
		largest = max(largest, math.Abs(float64(w)))
		d := math.Abs(float64(g) - float64(w))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		worst = max(worst, d)
	}
	if worst > 1e-4*largest {
		t.Errorf("%s: logits differ by %g, the largest is %g", what, worst, largest)
	}
	return worst / largest
}

// chunk is what tests look at in a chunk of a stream.
type chunk struct {
	Data struct {
		Object  string `json:"object"`
		Choices []struct {
			Text         string  `json:"text"`
			FinishReason *string `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			PromptTokens     int `json:"prompt_tokens"`
			CompletionTokens int `json:"completion_tokens"`
		} `json:"usage"`
		Pagelight struct {
			TokenIDs []int32 `json:"token_ids"`
			Place    string  `json:"place"`
			Timing   *struct {
				Decode float64 `json:"decode_ms"`
			} `json:"timing"`
		} `json:"pagelight"`
	} `json:"data"`
}

func chunks(t *testing.T, a *Answer) []chunk {
	t.Helper()
	var out []chunk
	for _, raw := range a.Before {
		var c chunk
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func generateMessage(id string, ids []int32, maxTokens int) Message {
	return Message{"type": "generate", "id": id, "endpoint": "completions", "body": Message{
		"prompt": ids, "max_tokens": maxTokens, "temperature": 0, "ignore_eos": true, "stream": true,
		"stream_options": Message{"include_usage": true},
	}}
}

// One worker through a whole life: questions before anything is loaded, a load with progress, answers, mistakes, a
// cancelled answer, a second load.
func TestWorkerProtocol(t *testing.T) {
	b := Start(t, SwiftShader)
	base := Serve(t, Mount{"/", site(t, "ernie")})
	c := b.NewClient(t, base)
	c.MustAsk(Message{"type": "ping", "id": "p0"}, "pong", patience)

	var adapter struct {
		Available bool
		Reason    string
		Info      struct{ Kind, Name string }
		Limits    struct {
			MaxBufferSize int64 `json:"max_buffer_size"`
		}
	}
	c.MustAsk(Message{"type": "adapter", "id": "a"}, "adapter", patience).Decode(t, &adapter)
	if !adapter.Available || adapter.Reason != "" || adapter.Info.Kind != "software" || adapter.Limits.MaxBufferSize < 256<<20 {
		t.Errorf("the adapter is %+v", adapter)
	}
	for id, m := range map[string]Message{
		"no model": generateMessage("no model", []int32{1}, 1),
		"stats":    {"type": "stats", "id": "stats"},
		"strange":  {"type": "strange", "id": "strange"},
		"device":   loadMessage("device", "ernie", "device", "abacus"),
		"kv":       loadMessage("kv", "ernie", "kv", "f8"),
		"quant":    loadMessage("quant", "ernie", "quant", "q3"),
		"kind":     {"type": "load", "id": "kind", "model": Message{"kind": "gguf"}},
		"type":     {"type": "load", "id": "type", "model": 7},
	} {
		if a := c.Ask(m, patience); a.Type != "error" || a.Status < 400 || a.Error.Code == "" || a.Error.Message == "" {
			t.Errorf("%s is answered by %s", id, a.Raw)
		}
	}

	ready := c.MustAsk(loadMessage("l1", "ernie"), "ready", patience)
	phases := map[string]int{}
	var last string
	for _, raw := range ready.Before {
		var p struct {
			Type, Phase string
			Done, Total int64
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		if p.Type != "progress" || p.Total < p.Done || p.Done < 0 {
			t.Errorf("progress is %s", raw)
		}
		if p.Phase != last {
			phases[p.Phase]++
			last = p.Phase
		}
	}
	for _, phase := range []string{"download", "upload", "compile", "warmup"} {
		if phases[phase] != 1 {
			t.Errorf("phase %s was entered %d times: %v", phase, phases[phase], phases)
		}
	}

	golden := goldenCases(t, "ernie")[1]
	done := c.MustAsk(generateMessage("r1", golden.InputIDs, len(golden.Greedy)), "done", patience)
	var ids []int32
	list := chunks(t, done)
	for _, k := range list {
		ids = append(ids, k.Data.Pagelight.TokenIDs...)
	}
	if !slices.Equal(ids, golden.Greedy) {
		t.Errorf("the answer is %v, want %v", ids, golden.Greedy)
	}
	if n := len(list); n < 3 || list[n-1].Data.Usage == nil || list[n-1].Data.Usage.CompletionTokens != len(golden.Greedy) ||
		list[n-2].Data.Choices[0].FinishReason == nil || list[n-2].Data.Pagelight.Timing == nil || list[n-2].Data.Pagelight.Place != "tab" {
		t.Errorf("the stream ends with %s", done.Before[max(0, n-2):])
	}

	var stats struct {
		Info  struct{ Model string }
		Stats struct {
			Requests int `json:"requests"`
		}
	}
	c.MustAsk(Message{"type": "stats", "id": "s"}, "stats", patience).Decode(t, &stats)
	if stats.Stats.Requests != 1 {
		t.Errorf("stats are %+v", stats)
	}
	if a := c.Ask(Message{"type": "generate", "id": "bad", "endpoint": "completions", "body": Message{"prompt": "", "temperature": -1}}, patience); a.Type != "error" ||
		a.Status != 400 || a.Error.Param == nil || *a.Error.Param != "temperature" {
		t.Errorf("a wrong request is answered by %s", a.Raw)
	}
	cancelled(t, c, "r2")

	// Another load takes the place of the first. Its shards come from the cache.
	c.MustAsk(loadMessage("l2", "ernie", "kv", "f16"), "ready", patience)
	c.MustAsk(generateMessage("r3", golden.InputIDs, 4), "done", patience)
	c.MustAsk(Message{"type": "unload", "id": "u"}, "unloaded", patience)
	if a := c.Ask(generateMessage("r4", golden.InputIDs, 4), patience); a.Type != "error" {
		t.Errorf("a request after unloading is answered by %s", a.Raw)
	}
	for _, line := range c.Tab.Console() {
		t.Errorf("the console says %s", line)
	}
}

// cancelled starts a long answer and cancels it; pings are answered meanwhile.
func cancelled(t *testing.T, c *Client, id string) {
	t.Helper()
	c.Post(generateMessage(id, []int32{5, 6, 7}, 3000))
	for c.Count(id) < 5 {
		time.Sleep(20 * time.Millisecond)
	}
	started := time.Now()
	c.MustAsk(Message{"type": "ping", "id": id + "ping"}, "pong", patience)
	ping := time.Since(started)
	started = time.Now()
	c.Post(Message{"type": "cancel", "id": id})
	a := c.Wait(id, patience)
	t.Logf("while it answers, a ping takes %v and a cancel %v (the test's own way included)", ping, time.Since(started))
	if a.Type != "error" || a.Error.Code != "cancelled" || a.Status != 499 {
		t.Errorf("a cancelled request ends with %.300s", a.Raw)
	}
	if n := len(a.Before); n >= 3000 {
		t.Errorf("%d chunks came before the end", n)
	}
}

// The engine's own kernels share the worker's only thread with everything else.
func TestProcessorLetsMessagesIn(t *testing.T) {
	b := Start(t, None)
	c := b.NewClient(t, Serve(t, Mount{"/", site(t, "ernie")}))
	a := c.Ask(loadMessage("gpu", "ernie", "device", "gpu"), patience)
	if a.Type != "error" || a.Error.Code != "no_adapter" {
		t.Errorf("a load on a GPU that is not there is answered by %s", a.Raw)
	}
	var adapter struct {
		Available bool
		Reason    string
	}
	c.MustAsk(Message{"type": "adapter", "id": "a"}, "adapter", patience).Decode(t, &adapter)
	if adapter.Available || adapter.Reason != "no-adapter" {
		t.Errorf("the adapter is %+v", adapter)
	}
	var ready struct {
		Info struct {
			Adapter struct{ Driver string }
			Notes   []string
		}
	}
	c.MustAsk(loadMessage("auto", "ernie", "device", "auto"), "ready", patience).Decode(t, &ready)
	if ready.Info.Adapter.Driver != "cpu" || !strings.Contains(strings.Join(ready.Info.Notes, " "), "without a GPU") {
		t.Errorf("runs on %+v and says %q", ready.Info.Adapter, ready.Info.Notes)
	}
	cancelled(t, c, "r")
}

func TestInsecureOrigin(t *testing.T) {
	b := Start(t, SwiftShader)
	base := strings.Replace(Serve(t, Mount{"/", site(t, "ernie")}), "127.0.0.1", InsecureHost, 1)
	c := b.NewClient(t, base)
	var adapter struct {
		Available bool
		Reason    string
	}
	c.MustAsk(Message{"type": "adapter", "id": "a"}, "adapter", patience).Decode(t, &adapter)
	if adapter.Available || adapter.Reason != "insecure" {
		t.Errorf("the adapter is %+v", adapter)
	}
	if a := c.Ask(loadMessage("gpu", "ernie", "device", "gpu"), patience); a.Error.Code != "insecure_origin" {
		t.Errorf("a load is answered by %s", a.Raw)
	}
	// Without crypto.subtle and without a cache the model loads all the same.
	c.MustAsk(loadMessage("cpu", "ernie", "device", "cpu"), "ready", patience)
}

// Every kernel in every variant agrees with its reference in the browser.
func TestConformance(t *testing.T) {
	b := Start(t, SwiftShader)
	c := b.NewClient(t, Serve(t, Mount{"/", site(t)}))
	type result struct {
		Name    string
		OK      bool
		Message string
		MS      float64
	}
	for _, run := range []struct{ device, level, kind string }{{"gpu", "full", "software"}, {"cpu", "quick", "cpu"}} {
		var got struct {
			Adapter struct{ Kind, Name string }
			Results []result
		}
		m := Message{"type": "conformance", "id": run.device, "level": run.level, "device": run.device}
		started := time.Now()
		c.MustAsk(m, "conformance", 30*time.Minute).Decode(t, &got) // SwiftShader compiles slowly, busy machines slower
		if got.Adapter.Kind != run.kind {
			t.Errorf("ran on %+v", got.Adapter)
		}
		if len(got.Results) < 10 {
			t.Errorf("%d cases on %s", len(got.Results), run.device)
		}
		for _, r := range got.Results {
			if !r.OK {
				t.Errorf("%s: %s", r.Name, r.Message)
			}
		}
		t.Logf("%s: %d cases (%s) in %v", got.Adapter.Name, len(got.Results), run.level, time.Since(started))
		slices.SortFunc(got.Results, func(a, b result) int { return cmp.Compare(b.MS, a.MS) })
		for _, r := range got.Results[:10] {
			t.Logf("slowest: %s in %.1f s", r.Name, r.MS/1000)
		}
	}
	if a := c.Ask(Message{"type": "conformance", "id": "wrong", "level": "some"}, patience); a.Type != "error" || a.Status != 400 {
		t.Errorf("a wrong level is answered by %s", a.Raw)
	}
}
