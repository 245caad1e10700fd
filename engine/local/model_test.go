package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

// golden is eval/golden.json of ERNIE-Tiny: what transformers computes in fp32 from the bf16 weights.
type golden struct {
	Holdout struct {
		Perplexity float64   `json:"perplexity"`
		WindowNLL  []float64 `json:"window_nll"`
		Tokens     int       `json:"tokens"`
		Scored     int       `json:"scored"`
	} `json:"holdout"`
	Prompts []struct {
		Messages  []engine.Message `json:"messages"`
		Prompt    string           `json:"prompt"`
		PromptIDs []int32          `json:"prompt_ids"`
		OutputIDs []int32          `json:"output_ids"`
		Margins   []float64        `json:"margins"`
		MinMargin float64          `json:"min_margin"`
		Text      string           `json:"output_text"`
	} `json:"prompts"`
}

func readJSON[T any](t testing.TB, path string) (v T) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// fixture is a path in the folder of larger test data, or the end of the test.
func fixture(t testing.TB, path string) string {
	t.Helper()
	root := os.Getenv("PAGELIGHT_FIXTURES")
	if root == "" {
		t.Skipf("SKIPPED: %s needs PAGELIGHT_FIXTURES", t.Name())
	}
	return filepath.Join(root, path)
}

// open opens a model on "cpu" or "gpu"; the latter must exist in CI.
func open(t testing.TB, device string, o Options) *engine.Engine {
	t.Helper()
	o.Device = device
	if device == "gpu" {
		gputest.Open(t).Close() // skips or fails without an adapter
	}
	eng, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	return eng
}

func generate(t testing.TB, eng *engine.Engine, req engine.Request) (ids []int32, text string) {
	t.Helper()
	for ev, err := range eng.Generate(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ev.TokenIDs...)
		text += ev.Text
	}
	return ids, text
}

func zero() *float64 { return new(float64) }

// nll scores the first windows of the held-out text as golden.json's procedure says.
func nll(t testing.TB, eng *engine.Engine, windows int) (sum []float64, scored int) {
	t.Helper()
	text, err := os.ReadFile("testdata/holdout.txt")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := eng.Tokenize(string(text), false)
	if err != nil {
		t.Fatal(err)
	}
	for lo := 0; lo < len(ids) && len(sum) < windows; lo += 512 {
		w := ids[lo:min(lo+512, len(ids))]
		if len(w) < 2 {
			break
		}
		v, err := eng.NLL(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		sum, scored = append(sum, v), scored+len(w)-1
	}
	return sum, scored
}

// perplexityRatio is the model's perplexity over the reference's, over the same windows.
func perplexityRatio(t testing.TB, eng *engine.Engine, windows int) float64 {
	t.Helper()
	ref := readJSON[golden](t, "testdata/golden.json").Holdout
	got, scored := nll(t, eng, windows)
	diff := 0.0
	for i, v := range got {
		diff += v - ref.WindowNLL[i]
	}
	return math.Exp(diff / float64(scored))
}

func TestBuiltinChats(t *testing.T) {
	for _, device := range []string{"cpu", "gpu"} {
		t.Run(device, func(t *testing.T) {
			eng := open(t, device, Options{})
			for _, c := range []struct {
				messages []engine.Message
				want     string
			}{
				{[]engine.Message{{Role: "user", Content: "What is the capital of France?"}}, "The capital of France is Paris."},
				{[]engine.Message{{Role: "user", Content: "中国的首都是哪里？"}, {Role: "assistant", Content: "中国的首都是北京。"}, {Role: "user", Content: "那英国呢？"}}, "伦敦"},
			} {
				ids, text := generate(t, eng, engine.Request{Messages: c.messages})
				if !strings.Contains(text, c.want) {
					t.Errorf("%q is answered by %q, want %q in it", c.messages[len(c.messages)-1].Content, text, c.want)
				}
				if last := ids[len(ids)-1]; last != 4 {
					t.Errorf("the answer's last id is %d, want 4, the end of a sentence", last)
				}
			}
		})
	}
}

// TestQuantizedPerplexity holds the built-in form, and what --quant makes of the checkpoint, to their bounds over the first
// windows; TestFullPerplexity does so over the whole text.
func TestQuantizedPerplexity(t *testing.T) {
	checkPerplexity(t, "gpu", 2)
}

func TestFullPerplexity(t *testing.T) {
	needFull(t)
	for _, device := range []string{"cpu", "gpu"} {
		t.Run(device, func(t *testing.T) { checkPerplexity(t, device, math.MaxInt) })
	}
}

func checkPerplexity(t *testing.T, device string, windows int) {
	for _, c := range []struct {
		name, model, quant string
		most               float64 // of the reference's perplexity
	}{
		{"builtin", Builtin, "none", 1.04},
		{"none", "models/ernie-tiny", "none", 1.002},
		{"q8", "models/ernie-tiny", "q8", 1.01},
		{"q4", "models/ernie-tiny", "q4", 1.06},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.model != Builtin {
				c.model = fixture(t, c.model)
			}
			eng := open(t, device, Options{Model: c.model, Quant: c.quant, Engine: engine.Config{LogitRows: 64}})
			ratio := perplexityRatio(t, eng, windows)
			t.Logf("perplexity is %.4f times the reference's", ratio)
			if ratio > c.most || ratio < 2-c.most && c.quant == "none" && c.model != Builtin {
				t.Errorf("perplexity is %.4f times the reference's, at most %.3f allowed", ratio, c.most)
			}
		})
	}
}

// TestInt8CachePerplexity holds a cache of bytes to what it may cost against one of halves.
func TestInt8CachePerplexity(t *testing.T) {
	for _, device := range []string{"cpu", "gpu"} {
		t.Run(device, func(t *testing.T) {
			ratio := map[engine.KVType]float64{}
			for _, kv := range []engine.KVType{engine.KVF16, engine.KVI8} {
				eng := open(t, device, Options{Model: Builtin, Engine: engine.Config{LogitRows: 64, KV: kv}})
				ratio[kv] = perplexityRatio(t, eng, 1)
			}
			change := ratio[engine.KVI8]/ratio[engine.KVF16] - 1
			t.Logf("perplexity with bytes is %.3f %% above that with halves", 100*change)
			if math.Abs(change) > 0.005 {
				t.Errorf("perplexity changes by %.2f %%, at most 0.5 %% allowed", 100*change)
			}
		})
	}
}

// TestErnieTinyGreedy compares continuations with transformers' up to the first near-tie.
func TestErnieTinyGreedy(t *testing.T) {
	model := fixture(t, "models/ernie-tiny")
	prompts := readJSON[golden](t, "testdata/golden.json").Prompts
	for _, device := range []string{"cpu", "gpu"} {
		for _, kv := range []engine.KVType{engine.KVF16, engine.KVF32} {
			t.Run(fmt.Sprintf("%s/%s", device, kv), func(t *testing.T) {
				eng := open(t, device, Options{Model: model, Engine: engine.Config{KV: kv}})
				compared := 0
				some := prompts
				if kv == engine.KVF32 && os.Getenv("PAGELIGHT_FULL") == "" {
					some = prompts[:6] // what is larger runs with f16, the default
				}
				for _, p := range some {
					text, err := eng.RenderChat(t.Context(), p.Messages, nil)
					if err != nil || text != p.Prompt {
						t.Fatalf("prompt is %q, %v; want %q", text, err, p.Prompt)
					}
					ids, _ := generate(t, eng, engine.Request{Messages: p.Messages, Params: engine.Params{Temperature: zero(), MaxTokens: len(p.OutputIDs)}})
					compared += compareGreedy(t, p.Prompt, ids, p.OutputIDs, p.Margins, 0.05)
				}
				t.Logf("%d tokens compared", compared)
			})
		}
	}
}

// compareGreedy compares up to the first margin below least and says how many tokens it compared.
func compareGreedy(t testing.TB, name string, got, want []int32, margins []float64, least float64) int {
	t.Helper()
	for i, id := range want {
		if margins[i] < least {
			return i
		}
		if i >= len(got) || got[i] != id {
			t.Errorf("%.60q: token %d differs: got %v, want %v", name, i, got[:min(i+1, len(got))], want[:i+1])
			return i
		}
	}
	return len(want)
}

func needFull(t testing.TB) {
	if os.Getenv("PAGELIGHT_FULL") == "" {
		t.Skipf("SKIPPED: %s runs with make test-full", t.Name())
	}
}

// fullShape is expected.json of the full-size model.
type fullShape struct {
	Cases []struct {
		Name     string    `json:"name"`
		InputIDs []int32   `json:"input_ids"`
		Greedy   []int32   `json:"greedy"`
		Margins  []float64 `json:"margins"`
		First    struct {
			IDs    []int     `json:"ids"`
			Logits []float64 `json:"logits"`
			AbsMax float64   `json:"absmax"`
		} `json:"first"`
	} `json:"cases"`
}

// TestFullShape runs the model of full size within WebGPU's default limits: as stored in bf16 against transformers, and in
// 4 bits, which hold it without loss, against bf16.
func TestFullShape(t *testing.T) {
	needFull(t)
	cases := readJSON[fullShape](t, "testdata/full-shape.json").Cases[:3] // one, short, block
	exact := make([][]float32, len(cases))                                // last position's logits with bf16 weights
	for _, quant := range []string{"none", "q4"} {
		t.Run(quant, func(t *testing.T) {
			eng := open(t, "gpu", Options{
				Model: "synthetic:ernie-4.5-0.3b", Quant: quant, DefaultLimits: true,
				Engine: engine.Config{KV: engine.KVF32, MaxModelLen: 512},
			})
			for i, c := range cases {
				var last []float32
				ids, err := eng.Logits(t.Context(), engine.LogitsRequest{TokenIDs: c.InputIDs, From: len(c.InputIDs) - 1, Steps: len(c.Greedy)},
					func(_ int, row []float32) error {
						if last == nil {
							last = append(last, row...)
						}
						return nil
					})
				if err != nil {
					t.Fatal(err)
				}
				n := compareGreedy(t, c.Name, ids, c.Greedy, c.Margins, 0.02)
				worst := 0.0
				for k, id := range c.First.IDs {
					worst = max(worst, math.Abs(float64(last[id])-c.First.Logits[k])/c.First.AbsMax)
				}
				t.Logf("%s: %d of %d tokens compared; best 20 logits within %.1g of the largest magnitude", c.Name, n, len(c.Greedy), worst)
				if worst > 5e-4 {
					t.Errorf("%s: logits differ from transformers' by %.2g of the largest magnitude", c.Name, worst)
				}
				if quant == "none" {
					exact[i] = last
				} else if exact[i] != nil {
					diff := 0.0
					for k, v := range last {
						diff = max(diff, math.Abs(float64(v-exact[i][k])))
					}
					t.Logf("%s: 4 bits within %.1g of bf16", c.Name, diff/c.First.AbsMax)
					if diff > 2e-4*c.First.AbsMax {
						t.Errorf("%s: 4 bits differ from bf16 by %.2g of the largest magnitude, at most 2e-4 allowed", c.Name, diff/c.First.AbsMax)
					}
				}
			}
		})
	}
}

func TestOpenModelSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.gguf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{
		"/no/such/model":                 "/no/such/model",
		t.TempDir():                      "config.json",
		dir:                              "model.gguf",
		filepath.Join(dir, "model.gguf"): "no GGUF file",
		"synthetic:nothing":              "synthetic:ernie-4.5-0.3b",
	} {
		if src, err := OpenModel(model, "none", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("OpenModel(%q) = %v, %v; want an error that names %q", model, src, err, want)
		}
	}
	if _, err := OpenModel(Builtin, "q3", nil); err == nil || !strings.Contains(err.Error(), "q3") {
		t.Errorf("quant q3: %v", err)
	}
	if _, err := Open(context.Background(), Options{Device: "tpu"}); err == nil || !strings.Contains(err.Error(), "tpu") {
		t.Errorf("device tpu: %v", err)
	}
}

func TestAutoTakesHardwareOrTheFasterOfTheRest(t *testing.T) {
	eng, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	if k := eng.Info().Adapter.Kind; k != gpu.KindHardware && k != gpu.KindSoftware && k != gpu.KindCPU {
		t.Errorf("device of kind %q", k)
	}
}

// TestOpenDeviceWithoutALog: doctor asks with nothing but a source.
func TestOpenDeviceWithoutALog(t *testing.T) {
	src, err := OpenModel(Builtin, "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dev, err := OpenDevice(t.Context(), Options{}, src)
	if err != nil {
		t.Fatal(err)
	}
	dev.Close()
}

func TestMaxModelLenMustSuitTheModel(t *testing.T) {
	for n, says := range map[int]string{-1: "at least 0", 2049: "at most 2048"} {
		_, err := Open(t.Context(), Options{Device: "cpu", Engine: engine.Config{MaxModelLen: n}})
		var p *engine.ParamError
		if !errors.As(err, &p) || p.Field != "max_model_len" || !strings.Contains(err.Error(), says) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// TestLongContextShrinksToTheBudget: the rotary table counts too, and a model made for a long context opens with less.
func TestLongContextShrinksToTheBudget(t *testing.T) {
	dir := t.TempDir()
	const golden = "../../internal/model/testdata/ernie"
	raw, err := os.ReadFile(golden + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	config["max_position_embeddings"] = 1 << 24
	if raw, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(golden + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), weights, 0o644); err != nil {
		t.Fatal(err)
	}
	eng := open(t, "cpu", Options{Model: dir, Engine: engine.Config{GPUMemory: 32 << 20}})
	info := eng.Info()
	if sum := info.WeightBytes + info.ScratchBytes + info.KVBytes; sum > info.MemoryBudget || sum < info.MemoryBudget*9/10 {
		t.Errorf("weights, scratch and cache take %d bytes of a budget of %d", sum, info.MemoryBudget)
	}
	if info.MaxModelLen != info.NumBlocks*info.BlockSize {
		t.Errorf("context %d, cache of %d blocks", info.MaxModelLen, info.NumBlocks)
	}
	// With memory for more, what the kernels can walk through is the end.
	_, err = Open(t.Context(), Options{Model: dir, Device: "cpu", Engine: engine.Config{MaxModelLen: 1 << 23, GPUMemory: 64 << 30}})
	if err == nil || !strings.Contains(err.Error(), "8388608 tokens was asked for") || !strings.Contains(err.Error(), "262144 at most") {
		t.Errorf("a context that no kernel can walk through: %v", err)
	}
}

func TestMemoryBudgetIsKept(t *testing.T) {
	eng := open(t, "cpu", Options{Engine: engine.Config{GPUMemory: 16 << 20}})
	info := eng.Info()
	if sum := info.WeightBytes + info.ScratchBytes + info.KVBytes; sum > info.MemoryBudget {
		t.Errorf("weights, scratch and cache take %d bytes of a budget of %d", sum, info.MemoryBudget)
	}
	if info.MaxModelLen >= 2048 {
		t.Errorf("a small budget left a context of %d", info.MaxModelLen)
	}
	_, err := Open(t.Context(), Options{Device: "cpu", Engine: engine.Config{GPUMemory: 1 << 20}})
	if err == nil || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("a budget of 1 MiB: %v; want an error with both numbers", err)
	}
}
