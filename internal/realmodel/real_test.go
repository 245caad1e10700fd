// Package realmodel runs a trained model that somebody else made and quantized, and compares with llama.cpp. Its tests need
// what scripts/fetch-real-model.sh fetches: make test-real runs them.
package realmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/engine/local"
)

const (
	modelFile = "SmolLM2-135M-Instruct.Q4_1.gguf"
	newTokens = 48

	// llama.cpp rounds the inputs of its matrices to 8 bits on a processor, so its log-probabilities are off by up to 0.37 on
	// these prompts. Two tokens whose logits are closer than this are a near-tie, and either may win.
	nearTie = 0.5
)

// folder is where model and llama.cpp lie. Tests are skipped without it.
func folder(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PAGELIGHT_REAL_MODEL")
	if path == "" {
		t.Skip("SKIPPED: it needs PAGELIGHT_REAL_MODEL, the path of " + modelFile + "; make test-real sets it")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(path)
}

// answer is what llama.cpp gave for a prompt.
type answer struct {
	IDs        []int32
	Confidence []float64 // the probability of each
}

// llamaCpp tokenizes texts and continues prompts.
func llamaCpp(t *testing.T, dir string, texts []string, prompts [][]int32) (ids [][]int32, answers []answer) {
	t.Helper()
	script, err := filepath.Abs("testdata/llama.mjs")
	if err != nil {
		t.Fatal(err)
	}
	request, err := json.Marshal(map[string]any{"model": filepath.Join(dir, modelFile), "texts": texts, "prompts": prompts, "tokens": newTokens})
	if err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "result.json")
	cmd := exec.CommandContext(t.Context(), "node", script, result)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(request)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("llama.cpp: %v\n%s", err, out)
	}
	b, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		IDs     [][]int32
		Answers []answer
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.IDs) != len(texts) || len(got.Answers) != len(prompts) {
		t.Fatalf("llama.cpp gave %d lists of ids and %d answers for %d and %d", len(got.IDs), len(got.Answers), len(texts), len(prompts))
	}
	return got.IDs, got.Answers
}

// randomTexts are made of what tokenizers take apart differently.
func randomTexts(n int) []string {
	pool := strings.Split("the| The|ing| |  |\n|\n\n|\t|'s|'LL|12|3456|7|0|.|, |!?|--|(|)|é|e\u0301|你好|世界|。|кот|🤗|\u00a0|\u3000|<|im_start|>|_|x|+=|http://|ﬁ|½|Ⅷ", "|")
	rng := rand.New(rand.NewPCG(4, 2))
	texts := make([]string, n)
	for i := range texts {
		for range 1 + rng.IntN(14) {
			texts[i] += pool[rng.IntN(len(pool))]
		}
	}
	return texts
}

func open(t *testing.T, dir string) *engine.Engine {
	t.Helper()
	device := os.Getenv("PAGELIGHT_DEVICE")
	if device == "" {
		device = "cpu"
	}
	e, err := local.Open(t.Context(), local.Options{
		Model: filepath.Join(dir, modelFile), Device: device,
		Engine: engine.Config{KV: "f32", MaxModelLen: 512, MaxSeqs: 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// generate runs one request to its end.
func generate(ctx context.Context, e *engine.Engine, ids []int32, p engine.Params) (prompt, out []engine.TokenLogprob, err error) {
	for ev, err := range e.Generate(ctx, engine.Request{TokenIDs: ids, Params: p}) {
		if err != nil {
			return nil, nil, err
		}
		prompt, out = append(prompt, ev.PromptLogprobs...), append(out, ev.Logprobs...)
	}
	return prompt, out, nil
}

// each runs f for 0 to n-1 at once, so that the engine batches them.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// lead says by how much the best token led the token id; +Inf if that is not among the alternatives.
func lead(at engine.TokenLogprob, id int32) float64 {
	if at.ID == id {
		return at.Top[0].Logprob - at.Logprob
	}
	for _, top := range at.Top {
		if top.ID == id {
			return at.Top[0].Logprob - top.Logprob
		}
	}
	return math.Inf(1)
}

// TestRealModelAsLlamaCpp: a model of llama.cpp's world, read, tokenized and computed here, says what it says there.
func TestRealModelAsLlamaCpp(t *testing.T) {
	dir := folder(t)
	b, err := os.ReadFile("testdata/prompts.json")
	if err != nil {
		t.Fatal(err)
	}
	var texts struct{ Complete, Chat []string }
	if err := json.Unmarshal(b, &texts); err != nil {
		t.Fatal(err)
	}
	e := open(t, dir)
	prompts := texts.Complete
	for _, content := range texts.Chat {
		prompt, err := e.RenderChat(t.Context(), []engine.Message{{Role: "user", Content: content}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, prompt)
	}
	all := slices.Concat(prompts, randomTexts(500))
	ids := make([][]int32, len(all))
	for i, text := range all {
		if ids[i], err = e.TokenizeBare(text, true); err != nil {
			t.Fatal(err)
		}
	}
	prompted := ids[:len(prompts)]
	theirs, answers := llamaCpp(t, dir, all, prompted)
	for i, text := range all {
		if !slices.Equal(ids[i], theirs[i]) {
			t.Errorf("%q:\n got %v\nwant %v", text, ids[i], theirs[i])
		}
	}
	t.Logf("%d texts have the same ids", len(all))
	checkFreely(t, e, prompted, answers)
	checkForced(t, e, prompted, answers)
}

// checkFreely lets the engine answer by itself. An answer is compared up to its first token that differs, which must be a
// near-tie.
func checkFreely(t *testing.T, e *engine.Engine, prompts [][]int32, answers []answer) {
	top, zero := engine.MaxLogprobs, 0.0
	same, whole, widest := 0, 0, 0.0
	outs := make([][]engine.TokenLogprob, len(prompts))
	each(len(prompts), func(i int) {
		var err error
		p := engine.Params{Temperature: &zero, MaxTokens: len(answers[i].IDs), Logprobs: &top, IgnoreEOS: true, KeepSpecial: true}
		if _, outs[i], err = generate(t.Context(), e, prompts[i], p); err != nil {
			t.Error(err)
		}
	})
	steps := 0
	for i, out := range outs {
		want := answers[i].IDs
		steps += len(want)
		n := 0
		for n < len(want) && n < len(out) && out[n].ID == want[n] {
			n++
		}
		same += n
		if n == len(want) {
			whole++
			continue
		}
		if n == len(out) {
			t.Errorf("prompt %d: %d tokens, want %d", i, len(out), len(want))
			continue
		}
		by := lead(out[n], want[n])
		if widest = max(widest, by); by > nearTie {
			t.Errorf("prompt %d: token %d is %d, llama.cpp has %d, whose logit is %.3f less (its confidence was %.3f)", i, n, out[n].ID, want[n], by, answers[i].Confidence[n])
		}
	}
	t.Logf("free: %d of %d answers are the same to the end; %d of %d tokens up to the first near-tie (by %.3f at most)", whole, len(outs), same, steps, widest)
}

// checkForced computes llama.cpp's answers as prompts, so that every one of their tokens is compared.
func checkForced(t *testing.T, e *engine.Engine, prompts [][]int32, answers []answer) {
	top := engine.MaxLogprobs
	rows := make([][]engine.TokenLogprob, len(prompts))
	each(len(prompts), func(i int) {
		text := slices.Concat(prompts[i], answers[i].IDs)
		prompt, _, err := generate(t.Context(), e, text, engine.Params{PromptOnly: true, PromptLogprobs: &top})
		if err != nil {
			t.Error(err)
			return
		}
		rows[i] = prompt[len(prompts[i]):]
	})
	steps, best, ties := 0, 0, 0
	sum, largest, widest := 0.0, 0.0, 0.0
	for i, row := range rows {
		for n, at := range row {
			steps++
			off := at.Logprob - math.Log(answers[i].Confidence[n])
			sum += off * off
			largest = max(largest, math.Abs(off))
			switch by := lead(at, at.ID); {
			case at.Rank == 1:
				best++
			case by <= nearTie:
				ties++
				widest = max(widest, by)
			default:
				t.Errorf("prompt %d, token %d: %d leads llama.cpp's %d by %.3f (its confidence was %.3f)", i, n, at.Top[0].ID, at.ID, by, answers[i].Confidence[n])
			}
		}
	}
	t.Logf("forced: %d of %d tokens of llama.cpp are the best here, %d more are near-ties (by %.3f at most); log-probabilities differ by %.3f (RMS), %.3f at most",
		best, steps, ties, widest, math.Sqrt(sum/float64(steps)), largest)
	if compared := float64(best+ties) / float64(steps); compared < 0.9 {
		t.Errorf("only %.3f of the tokens agree", compared)
	}
}
