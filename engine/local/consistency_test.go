package local

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/pagelight/pagelight/engine"
)

// events reads a stream to its end.
func events(t testing.TB, eng *engine.Engine, req engine.Request) (list []engine.Event) {
	t.Helper()
	for ev, err := range eng.Generate(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, ev)
	}
	return list
}

// deterministic opens the builtin model so that equal questions have answers that are equal bit for bit.
func deterministic(t testing.TB, kv engine.KVType) *engine.Engine {
	return open(t, "cpu", Options{Engine: engine.Config{MaxModelLen: 128, MaxSeqs: 4, MaxBatchedTokens: 24, KV: kv, Deterministic: true}})
}

// TestAnswersAreSeededOneByOne: answer i to a request is the answer to a request with the seed + i.
func TestAnswersAreSeededOneByOne(t *testing.T) {
	for _, kv := range []engine.KVType{engine.KVF16, engine.KVI8} {
		eng := deterministic(t, kv)
		temperature, seed := 1.2, int64(math.MaxInt64-1) // the third wraps around
		req := engine.Request{TokenIDs: prompt(20), N: 4, Params: engine.Params{Temperature: &temperature, Seed: &seed, MaxTokens: 10, IgnoreEOS: true}}
		together := make([][]int32, req.N)
		for _, ev := range events(t, eng, req) {
			together[ev.Index] = append(together[ev.Index], ev.TokenIDs...)
		}
		for i, ids := range together {
			one := seed + int64(i)
			req.N, req.Params.Seed = 1, &one
			if alone, _ := generate(t, eng, req); len(alone) != 10 || !slices.Equal(alone, ids) {
				t.Errorf("%s: answer %d: %v, a request with its seed gets %v", kv, i, ids, alone)
			}
		}
		if slices.Equal(together[0], together[1]) {
			t.Errorf("%s: two seeds give the same answer, so nothing was tested", kv)
		}
	}
}

// TestProbabilitiesOfAPromptAreItsLikelihood: together they are what NLL says, whatever the cache holds, and with them the
// prompt is computed again.
func TestProbabilitiesOfAPromptAreItsLikelihood(t *testing.T) {
	for _, kv := range []engine.KVType{engine.KVF16, engine.KVI8} {
		eng := deterministic(t, kv)
		ids := prompt(70) // several blocks and chunks
		two := 2
		req := engine.Request{TokenIDs: ids, Params: engine.Params{Temperature: zero(), MaxTokens: 4, IgnoreEOS: true, Logprobs: &two}}
		var runs [2][]engine.Event
		for i := range runs { // the second finds most of the prompt in the cache
			runs[i] = events(t, eng, req)
		}
		if c := [2]int{runs[0][0].Usage.CachedTokens, runs[1][0].Usage.CachedTokens}; c != [2]int{0, 64} {
			t.Errorf("%s: %v tokens of the prompts were cached, want 0 and 64", kv, c)
		}
		for i := range runs[0] {
			if a, b := runs[0][i].Logprobs, runs[1][i].Logprobs; !reflect.DeepEqual(a, b) {
				t.Errorf("%s: token %d: %+v computed, %+v cached", kv, i, a, b)
			}
		}
		want, err := eng.NLL(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		var scored []engine.TokenLogprob
		for _, only := range []bool{false, true} {
			r := req
			r.Params.PromptLogprobs = &two
			if r.Params.PromptOnly = only; only {
				r.Params.MaxTokens = 0
			}
			first := events(t, eng, r)[0]
			if first.Usage.CachedTokens != 0 {
				t.Errorf("%s: %d tokens were not computed again", kv, first.Usage.CachedTokens)
			}
			sum := 0.0
			for i, lp := range first.PromptLogprobs {
				if lp.ID != ids[i] || (lp.Rank == 0) != (i == 0) {
					t.Fatalf("%s: place %d: %+v, want id %d", kv, i, lp, ids[i])
				}
				sum += lp.Logprob
			}
			if len(first.PromptLogprobs) != len(ids) || math.Abs(sum+want) > 1e-6*want {
				t.Errorf("%s: %d probabilities of together %v, NLL says %v", kv, len(first.PromptLogprobs), sum, want)
			}
			if scored != nil && !reflect.DeepEqual(scored, first.PromptLogprobs) {
				t.Errorf("%s: they differ when no answer is wanted", kv)
			}
			scored = first.PromptLogprobs
		}
		// What an answer is given is what its tokens get as a prompt.
		whole := append(slices.Clone(ids), runs[0][0].TokenIDs...)
		for _, ev := range runs[0][1:] {
			whole = append(whole, ev.TokenIDs...)
		}
		r := engine.Request{TokenIDs: whole, Params: engine.Params{PromptOnly: true, PromptLogprobs: &two}}
		again := events(t, eng, r)[0].PromptLogprobs[len(ids):]
		for i, ev := range runs[0] {
			if got, want := fmt.Sprint(again[i]), fmt.Sprint(ev.Logprobs[0]); got != want {
				t.Errorf("%s: token %d of the answer: %s as a prompt, %s when it was chosen", kv, i, got, want)
			}
		}
	}
}
