package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kvcache"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/weights"
)

// The goldens are tiny random checkpoints with what Hugging Face transformers computes for them in fp32.
const goldens = "../model/testdata"

// goldenModels are those of all architectures and kinds of checkpoint.
var goldenModels = []string{"ernie", "ernie-bias-untied", "ernie-awq", "ernie-gptq", "ernie-moe", "llama", "qwen2", "qwen3"}

type goldenCase struct {
	Name     string  `json:"name"`
	InputIDs []int32 `json:"input_ids"`
	Greedy   []int32 `json:"greedy"`
}

// devices are the drivers that must agree with the goldens.
func devices(t *testing.T) map[string]func() gpu.Device {
	return map[string]func() gpu.Device{
		"cpu": func() gpu.Device {
			d, err := cpu.Open(cpu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		"gpu":                func() gpu.Device { return gputest.Open(t) },
		"gpu default limits": func() gpu.Device { return gputest.OpenDefaultLimits(t) },
	}
}

func TestGoldens(t *testing.T) {
	for _, model := range goldenModels {
		for name, open := range devices(t) {
			for _, kv := range []struct {
				kv  quant.KVType
				tol float64 // of the row's largest magnitude
			}{{quant.KVF32, 5e-4}, {quant.KVF16, 1e-2}, {quant.KVI8, 6e-2}} {
				t.Run(fmt.Sprintf("%s/%s/%v", model, name, kv.kv), func(t *testing.T) {
					dev := open()
					defer dev.Close()
					checkGolden(t, dev, filepath.Join(goldens, model), kv.kv, kv.tol)
				})
			}
		}
	}
}

func checkGolden(t *testing.T, dev gpu.Device, dir string, kv quant.KVType, tol float64) {
	src, err := weights.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	checkSource(t, dev, src, dir, kv, tol)
}

// checkSource holds a source that has the weights of a golden checkpoint against what is expected of it.
func checkSource(t *testing.T, dev gpu.Device, src weights.Source, dir string, kv quant.KVType, tol float64, edit ...func(*Config)) {
	want, err := weights.OpenSafetensors(filepath.Join(dir, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	data, err := os.ReadFile(filepath.Join(dir, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	config := Config{
		KV: kv, Budget: 1 << 30, MaxModelLen: 512, MaxTokens: 48, MaxLogits: 16, MaxSeqs: 1, NumTokens: src.Config().VocabSize,
		Progress: func(string, int64, int64, string) {},
	}
	for _, e := range edit {
		e(&config)
	}
	r, err := Open(context.Background(), dev, src, config)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range cases {
		steps := max(1, len(c.Greedy)) // none where the two best logits after the prompt are too close to tell
		rows, greedy := run(t, r, c, steps)
		name, prompt := c.Name+".logits", rows[:len(rows)-steps+1]
		if len(c.InputIDs) > 64 {
			name, prompt = c.Name+".last_logits", prompt[len(prompt)-1:]
		}
		// Bytes in the cache are coarse enough to send a token to another expert where two have nearly the same score.
		flips := 0
		if kv == quant.KVI8 && src.Config().MoE != nil {
			flips = 3
		}
		compareRows(t, want, name, prompt, tol, min(flips, len(prompt)-1))
		if len(c.Greedy) > 0 {
			compareRows(t, want, c.Name+".greedy_logits", rows[len(rows)-len(c.Greedy):], tol, flips)
		}
		for i := range c.Greedy {
			if greedy[i] != c.Greedy[i] && kv != quant.KVI8 {
				t.Errorf("%s: greedy id %d = %d, want %d", c.Name, i, greedy[i], c.Greedy[i])
				break
			}
		}
	}
}

// run gives the logits of every position of prompt and continuation, and the continuation.
func run(t *testing.T, r *Runner, c goldenCase, steps int) (rows [][]float32, greedy []int32) {
	t.Helper()
	pool := kvcache.NewPool(kvcache.Config{NumBlocks: r.Limits().NumBlocks})
	s := sched.New(sched.Config{MaxBatchedTokens: r.Limits().MaxTokens, MaxLogits: r.Limits().MaxLogits, MaxSeqs: 1}, pool)
	q := &sched.Sequence{ID: c.Name, Tokens: append([]int32(nil), c.InputIDs...), MaxTokens: len(c.InputIDs) + steps}
	if err := s.Add(q); err != nil {
		t.Fatal(err)
	}
	defer s.Remove(q)
	for len(greedy) < steps {
		p := s.Schedule()
		res, err := r.Step(context.Background(), p, WantLogits)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.NumLogits {
			rows = append(rows, append([]float32(nil), res.Row(i)...))
		}
		s.Done(p)
		if q.NumComputed == len(q.Tokens) {
			best := int32(0)
			last := rows[len(rows)-1]
			for id, v := range last {
				if v > last[best] {
					best = int32(id)
				}
			}
			if greedy = append(greedy, best); len(greedy) > len(c.Greedy) {
				break
			}
			q.Tokens = append(q.Tokens, c.Greedy[len(greedy)-1]) // also where bytes in the cache would have chosen otherwise
		}
	}
	return rows, greedy
}

// compareRows holds rows against a tensor of expected ones. Up to mayFlip of them may be farther off.
func compareRows(t *testing.T, want *weights.Safetensors, name string, got [][]float32, tol float64, mayFlip int) {
	t.Helper()
	flat, err := want.Float32s(name)
	if err != nil {
		t.Fatal(err)
	}
	vocab := len(got[0])
	if len(flat) != len(got)*vocab {
		t.Fatalf("%s: reference has %d values, got %d rows of %d", name, len(flat), len(got), vocab)
	}
	worst, beyond := 0.0, 0
	for i, row := range got {
		ref := flat[i*vocab : (i+1)*vocab]
		most, diff := 0.0, 0.0
		for j, v := range row {
			most = max(most, math.Abs(float64(ref[j])))
			d := math.Abs(float64(v) - float64(ref[j]))
			if math.IsNaN(d) {
				d = math.Inf(1)
			}
			diff = max(diff, d)
		}
		if diff/most > tol && beyond < mayFlip {
			beyond++
			continue
		}
		worst = max(worst, diff/most)
	}
	if worst > tol {
		t.Errorf("%s: largest difference is %.2g of the row's largest magnitude, at most %g allowed", name, worst, tol)
	} else {
		t.Logf("%s: %.2g, %d of %d rows apart from it", name, worst, beyond, len(got))
	}
}
