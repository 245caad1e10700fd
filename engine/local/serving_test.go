package local

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// reference is what a prompt is answered when it is alone: the ids, and how far the best logit is above the second best.
type reference struct {
	prompt, ids []int32
	margins     []float64
	random      bool // of a model that was not trained: it goes on after the end of an answer
}

// references answers chats that the model was made for, one after another and without a prefix cache. What such a model is
// asked leaves it few near-ties.
func references(t *testing.T, device string, cfg engine.Config, n, steps int) []reference {
	t.Helper()
	cfg.MaxSeqs, cfg.NoPrefixCache = 1, true
	eng := open(t, device, Options{Engine: cfg})
	var refs []reference
	for _, p := range readJSON[golden](t, "testdata/golden.json").Prompts {
		if len(refs) == n {
			break
		}
		if len(p.OutputIDs) < 20 || p.MinMargin < 0.05 || len(p.PromptIDs)+steps > 128 { // long answers need more blocks as they grow
			continue
		}
		ref := reference{prompt: p.PromptIDs}
		ref.answer(t, eng, steps)
		refs = append(refs, ref)
	}
	if len(refs) < n {
		t.Fatalf("only %d prompts of the right length", len(refs))
	}
	return refs
}

// answer has the reference's prompt answered.
func (r *reference) answer(t *testing.T, eng *engine.Engine, steps int) {
	t.Helper()
	two := 2
	params := engine.Params{Temperature: zero(), MaxTokens: steps, Logprobs: &two, IgnoreEOS: r.random}
	for _, ev := range events(t, eng, engine.Request{TokenIDs: r.prompt, Params: params}) {
		r.ids = append(r.ids, ev.TokenIDs...)
		for _, lp := range ev.Logprobs {
			r.margins = append(r.margins, lp.Top[0].Logprob-lp.Top[1].Logprob)
		}
	}
}

// TestSameTokensHoweverScheduled answers prompts alone and in batches, whole and cut into chunks, computed and found in the
// prefix cache, and with so few blocks that answers give way to each other. Kernels for different numbers of rows sum in
// different orders, so tokens are compared up to the first near-tie; with Deterministic all are.
func TestSameTokensHoweverScheduled(t *testing.T) {
	for _, device := range []string{"cpu", "gpu"} {
		for _, c := range []struct {
			kv            engine.KVType
			deterministic bool
			least         float64 // margins below it end a comparison
		}{{engine.KVF32, false, 1e-3}, {engine.KVF16, false, 0.02}, {engine.KVF16, true, 0}} {
			t.Run(fmt.Sprintf("%s/%s/deterministic=%v", device, c.kv, c.deterministic), func(t *testing.T) {
				base := engine.Config{KV: c.kv, Deterministic: c.deterministic, MaxModelLen: 128}
				refs := references(t, device, base, 5, 40)
				cfg := base
				cfg.MaxSeqs, cfg.MaxBatchedTokens = 5, 24

				few := cfg
				few.GPUMemory = fewBlocks(t, device, Options{Engine: cfg}, 8) // two or three answers
				if st := answerAll(t, device, Options{Engine: few}, refs, c.least, 1); st.Preemptions == 0 {
					t.Error("nothing was preempted")
				}
				if st := answerAll(t, device, Options{Engine: cfg}, refs, c.least, 2); st.PrefixHits == 0 {
					t.Error("nothing was found in the prefix cache")
				}
			})
		}
	}
}

// TestSameTokensOfEveryKindOfModel is TestSameTokensHoweverScheduled for mixtures of experts, for norms of queries and keys and for
// quantized files. The models are random, so most prompts begin alike for the prefix cache to have something.
func TestSameTokensOfEveryKindOfModel(t *testing.T) {
	const steps = 24
	for _, model := range []string{
		"../../internal/model/testdata/ernie-moe", "../../internal/model/testdata/qwen3", "../../internal/model/testdata/ernie-gptq",
		ggufFiles + "/llama-q4_k_m.gguf",
	} {
		for _, device := range []string{"cpu", "gpu"} {
			for _, deterministic := range []bool{false, true} {
				if deterministic && device == "gpu" {
					continue // internal/runner compares bits there, in steps of any shape
				}
				t.Run(fmt.Sprintf("%s/%s/deterministic=%v", filepath.Base(model), device, deterministic), func(t *testing.T) {
					o := Options{Model: model, Engine: engine.Config{KV: engine.KVF32, Deterministic: deterministic, MaxModelLen: 128, MaxSeqs: 1, NoPrefixCache: true}}
					least := 1e-4
					if deterministic {
						o.Engine.KV, least = engine.KVF16, 0
					}
					eng := open(t, device, o)
					refs := make([]reference, 6)
					for i := range refs {
						refs[i] = reference{prompt: append(lowIDs(20*(i%3), 1), lowIDs(9+7*i, 2+i)...), random: true}
						refs[i].answer(t, eng, steps)
					}
					o.Engine.MaxSeqs, o.Engine.MaxBatchedTokens, o.Engine.NoPrefixCache = 5, 24, false
					few := o
					few.Engine.GPUMemory = fewBlocks(t, device, o, 9)
					if st := answerAll(t, device, few, refs, least, 1); st.Preemptions == 0 {
						t.Error("nothing was preempted")
					}
					if st := answerAll(t, device, o, refs, least, 2); st.PrefixHits == 0 {
						t.Error("nothing was found in the prefix cache")
					}
				})
			}
		}
	}
}

// TestSameTokensUnderRandomSchedules draws the size of steps, the seats, the blocks, the policy and who arrives when, and has
// strangers come and go.
func TestSameTokensUnderRandomSchedules(t *testing.T) {
	number := uint64(0)
	for _, device := range []string{"cpu", "gpu"} {
		for _, deterministic := range []bool{false, true} {
			number++
			t.Run(fmt.Sprintf("%s/deterministic=%v", device, deterministic), func(t *testing.T) {
				base, least := engine.Config{KV: engine.KVF32, Deterministic: deterministic, MaxModelLen: 128}, 1e-3
				if deterministic {
					least = 0
				}
				refs := references(t, device, base, 5, 24)
				rng := rand.New(rand.NewPCG(number, 8)) // schedules of its own for each
				for range 2 {
					cfg := base
					cfg.MaxSeqs = 3 + rng.IntN(5)
					cfg.MaxBatchedTokens = cfg.MaxSeqs + rng.IntN(60)
					cfg.LongPrefillThreshold = max(0, rng.IntN(40)-20)
					cfg.NoPrefixCache = rng.IntN(4) == 0
					cfg.Policy = []engine.Policy{engine.PolicyFCFS, engine.PolicyPriority}[rng.IntN(2)]
					cfg.GPUMemory = fewBlocks(t, device, Options{Engine: cfg}, int64(8+rng.IntN(5)))
					t.Logf("seats %d, tokens %d, of one prompt %d, no cache %v, %s", cfg.MaxSeqs, cfg.MaxBatchedTokens, cfg.LongPrefillThreshold, cfg.NoPrefixCache, cfg.Policy)
					answerAll(t, device, Options{Engine: cfg}, refs, least, 2)
				}
			})
		}
	}
}

// lowIDs is words in any vocabulary of at least 500.
func lowIDs(n, seed int) []int32 {
	ids := words(n, seed)
	for i := range ids {
		ids[i] %= 500
	}
	return ids
}

// visit asks something else and leaves in the middle.
func visit(t *testing.T, eng *engine.Engine, number int) {
	req := engine.Request{TokenIDs: lowIDs(10+5*number, number), Priority: number%3 - 1, Params: engine.Params{MaxTokens: 30, IgnoreEOS: true}}
	seen := 0
	for _, err := range eng.Generate(t.Context(), req) {
		if err != nil {
			t.Error(err)
			return
		}
		if seen++; seen > 3*number {
			return
		}
	}
}

// answerAll asks everything at once, that many times, and compares.
func answerAll(t *testing.T, device string, o Options, refs []reference, least float64, rounds int) engine.Stats {
	t.Helper()
	eng := open(t, device, o)
	compared, all := 0, 0
	for round := range rounds {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i, ref := range refs {
			wg.Go(func() {
				time.Sleep(time.Duration((i*7+round*3)%5) * 5 * time.Millisecond)
				ids, _ := generate(t, eng, engine.Request{
					TokenIDs: ref.prompt, Priority: i % 3, Params: engine.Params{Temperature: zero(), MaxTokens: len(ref.ids), IgnoreEOS: ref.random},
				})
				n := compareGreedy(t, fmt.Sprintf("round %d, prompt %d", round, i), ids, ref.ids, ref.margins, least)
				mu.Lock()
				defer mu.Unlock()
				compared, all = compared+n, all+len(ref.ids)
			})
		}
		for i := range 2 {
			wg.Go(func() { visit(t, eng, i+round) })
		}
		wg.Wait()
	}
	eventually(t, "those who left are forgotten", func() bool { return eng.Stats().BlocksUsed == 0 })
	st := eng.Stats()
	t.Logf("%d of %d tokens compared; %d preemptions, %d of %d prompt tokens cached", compared, all, st.Preemptions, st.PrefixHits, st.PrefixQueries)
	if compared*100 < all*95 {
		t.Errorf("only %d of %d tokens were compared", compared, all)
	}
	return st
}

// fewBlocks is the memory budget with which an engine has that many blocks.
func fewBlocks(t *testing.T, device string, o Options, blocks int64) int64 {
	t.Helper()
	eng := open(t, device, o)
	defer func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	}()
	info := eng.Info()
	return info.WeightBytes + info.ScratchBytes + info.KVBytes/int64(info.NumBlocks)*blocks + info.KVBytes/int64(info.NumBlocks)/2
}

// TestSeededAnswersDoNotDependOnTheBatch samples with ten seeds alone and among others.
func TestSeededAnswersDoNotDependOnTheBatch(t *testing.T) {
	eng := open(t, "cpu", Options{Engine: engine.Config{MaxModelLen: 256, Deterministic: true}})
	one := 0.9
	ask := func(seed int64) engine.Request {
		return engine.Request{TokenIDs: prompt(20), Params: engine.Params{Temperature: &one, Seed: &seed, MaxTokens: 16, IgnoreEOS: true}}
	}
	alone := make([][]int32, 10)
	for i := range alone {
		alone[i], _ = generate(t, eng, ask(int64(i)))
	}
	var wg sync.WaitGroup
	for i := range alone {
		wg.Go(func() {
			ids, _ := generate(t, eng, ask(int64(i)))
			if fmt.Sprint(ids) != fmt.Sprint(alone[i]) {
				t.Errorf("seed %d: %v in a batch, %v alone", i, ids, alone[i])
			}
		})
	}
	wg.Wait()
}
