package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/sched"
)

func TestSeveralAnswersOfOnePrompt(t *testing.T) {
	e := newFake(t, &fakeExec{}, 32)
	req := greedy([]int32{10}, 3)
	req.N = 3
	got := make([][]int32, 3)
	ends := make([]FinishReason, 3)
	for ev, err := range e.Generate(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		got[ev.Index] = append(got[ev.Index], ev.TokenIDs...)
		if ev.FinishReason != "" {
			ends[ev.Index] = ev.FinishReason
		}
	}
	for i := range got {
		if !slices.Equal(got[i], []int32{11, 12, 13}) || ends[i] != FinishLength {
			t.Errorf("answer %d: %v, %q", i, got[i], ends[i])
		}
	}
	if st := e.Stats(); st.Requests != 1 || st.GenerationTokens != 9 {
		t.Errorf("stats: %+v", st)
	}
	req.N = maxAnswers + 1
	var p *ParamError
	if _, _, _, err := collect(t.Context(), e, req); !errors.As(err, &p) || p.Field != "n" {
		t.Errorf("too many answers: %v", err)
	}
}

func TestOneCancelledStreamLeavesTheOtherAlone(t *testing.T) {
	e := newFake(t, &fakeExec{delay: time.Millisecond}, 64)
	ctx, cancel := context.WithCancel(t.Context())
	other := make(chan []int32, 1)
	go func() {
		_, ids, _, err := collect(t.Context(), e, greedy([]int32{100}, 60))
		if err != nil {
			t.Error(err)
		}
		other <- ids
	}()
	n := 0
	for _, err := range e.Generate(ctx, greedy([]int32{500}, 200)) {
		if err != nil {
			break
		}
		if n++; n == 10 {
			cancel()
		}
	}
	cancel()
	ids := <-other
	if len(ids) != 60 || ids[0] != 101 || ids[59] != 160 {
		t.Errorf("the other stream: %v", ids)
	}
	waitForNoBlocks(t, e)
}

func TestPrefixCacheIsUsedAndCounted(t *testing.T) {
	e := newFake(t, &fakeExec{}, 32)
	prompt := make([]int32, 50)
	for want, salt := range map[int]string{0: "a", 48: ""} {
		if want == 48 { // once to fill the cache
			if _, _, _, err := collect(t.Context(), e, greedy(prompt, 1)); err != nil {
				t.Fatal(err)
			}
		}
		req := greedy(prompt, 1)
		req.CacheSalt = salt
		_, _, last, err := collect(t.Context(), e, req)
		if err != nil || last.Usage.CachedTokens != want {
			t.Errorf("salt %q: %d tokens cached, %v; want %d", salt, last.Usage.CachedTokens, err, want)
		}
	}
	if st := e.Stats(); st.PrefixHits != 48 || st.PrefixQueries != 150 {
		t.Errorf("hits %d of %d, want 48 of 150", st.PrefixHits, st.PrefixQueries)
	}
}

func TestPreemptedAnswersComeOutRight(t *testing.T) {
	e := newFake(t, &fakeExec{delay: time.Millisecond}, 6) // 96 tokens for four answers of 60
	done := make(chan error, 4)
	for i := range int32(4) {
		go func() {
			_, ids, _, err := collect(t.Context(), e, greedy([]int32{100 * (i + 1)}, 60))
			for k, id := range ids {
				if id != 100*(i+1)+int32(k)+1 {
					err = errors.Join(err, errors.New("wrong token"))
				}
			}
			if len(ids) != 60 {
				err = errors.Join(err, errors.New("wrong number of tokens"))
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if st := e.Stats(); st.Preemptions == 0 {
		t.Error("nothing was preempted, so nothing was tested")
	}
}

func TestQueueFull(t *testing.T) {
	e := newFakeWith(t, &fakeExec{delay: 5 * time.Millisecond}, 64, sched.Config{MaxBatchedTokens: 32, MaxLogits: 1, MaxSeqs: 1, MaxWaiting: 1}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan struct{})
	go func() {
		once := false
		for _, err := range e.Generate(ctx, greedy([]int32{100}, 400)) {
			if err != nil {
				return
			}
			if !once {
				once = true
				close(started)
			}
		}
	}()
	<-started
	req := greedy([]int32{200}, 1)
	req.N = 2 // one seat for waiting: all of a request or none
	if _, _, _, err := collect(t.Context(), e, req); !errors.Is(err, ErrQueueFull) {
		t.Errorf("err = %v, want ErrQueueFull", err)
	}
	if st := e.Stats(); st.Waiting != 0 {
		t.Errorf("%d answers wait after a refusal", st.Waiting)
	}
}

func TestLogprobs(t *testing.T) {
	e := newFake(t, &fakeExec{}, 16)
	two, zero := 2, 0
	req := greedy([]int32{10, 11, 13}, 2)
	req.Params.Logprobs, req.Params.PromptLogprobs = &two, &zero
	req.N = 2
	var first *Event
	for ev, err := range e.Generate(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = &ev
		}
		if len(ev.Logprobs) != 1 || ev.Logprobs[0].ID != ev.TokenIDs[0] || ev.Logprobs[0].Rank != 1 || len(ev.Logprobs[0].Top) != 2 || ev.Logprobs[0].Logprob < -1e-6 {
			t.Errorf("answer %d: %+v", ev.Index, ev.Logprobs)
		}
	}
	pl := first.PromptLogprobs
	if len(pl) != 3 || pl[0].Rank != 0 || pl[1].Rank != 1 || pl[2].Rank < 2 || pl[2].Text != " 13" {
		t.Errorf("prompt: %+v", pl)
	}
}

// TestSamplingFromCandidates samples from what the device found, and from all logits where that proves nothing; a greedy
// answer beside is served by the same step.
func TestSamplingFromCandidates(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		exec := &fakeExec{unsure: unsure}
		e := newFake(t, exec, 16)
		e.loop.hardware = true
		one, half, seed := 1.0, 0.5, int64(7)
		req := Request{TokenIDs: []int32{20}, Params: Params{Temperature: &one, TopP: &half, Seed: &seed, MaxTokens: 5}}
		other := make(chan []int32, 1)
		go func() {
			_, ids, _, err := collect(t.Context(), e, greedy([]int32{40}, 5))
			if err != nil {
				t.Error(err)
			}
			other <- ids
		}()
		if _, ids, _, err := collect(t.Context(), e, req); err != nil || !slices.Equal(ids, []int32{21, 22, 23, 24, 25}) {
			t.Errorf("unsure=%v: ids %v, err %v", unsure, ids, err)
		}
		if ids := <-other; !slices.Equal(ids, []int32{41, 42, 43, 44, 45}) {
			t.Errorf("unsure=%v: beside it %v", unsure, ids)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if unsure != (exec.reads > 0) {
			t.Errorf("unsure=%v: all logits were read %d times", unsure, exec.reads)
		}
	}
}

func TestPromptOnly(t *testing.T) {
	e := newFake(t, &fakeExec{}, 16)
	req := Request{TokenIDs: slices.Repeat([]int32{5}, 40), Params: Params{PromptOnly: true}}
	text, ids, last, err := collect(t.Context(), e, req)
	if err != nil || text != "" || len(ids) != 0 || last.FinishReason != FinishLength || last.Usage.PromptTokens != 40 {
		t.Errorf("text %q, ids %v, last %+v, err %v", text, ids, last, err)
	}
}

func TestStopIDsAndLeastTokens(t *testing.T) {
	e := newFake(t, &fakeExec{}, 16)
	req := greedy([]int32{10}, 20)
	req.Params.StopTokenIDs = []int32{13}
	text, _, last, err := collect(t.Context(), e, req)
	if err != nil || text != " 11 12" || last.StopReason != int32(13) || last.FinishReason != FinishStop {
		t.Errorf("text %q, reason %v, %q, err %v", text, last.StopReason, last.FinishReason, err)
	}
	req.Params.IncludeStop = true
	if text, _, _, _ := collect(t.Context(), e, req); text != " 11 12 13" {
		t.Errorf("with the stop: text %q", text)
	}
	req = greedy([]int32{10}, 20)
	req.Params.Stop, req.Params.MinTokens = []string{"1"}, 3
	if text, _, last, _ := collect(t.Context(), e, req); !strings.HasPrefix(text, " 11 12 13") || last.FinishReason != FinishStop {
		t.Errorf("stop string after three tokens: text %q", text)
	}
	req.Params.IncludeStop = true
	if text, _, _, _ := collect(t.Context(), e, req); !strings.HasSuffix(text, "1") {
		t.Errorf("with the stop string: text %q", text)
	}
}

// recorder keeps what an engine tells.
type recorder struct {
	steps []StepRecord
	done  []AnswerRecord
}

func (r *recorder) Step(s StepRecord)   { r.steps = append(r.steps, s) }
func (r *recorder) Done(a AnswerRecord) { r.done = append(r.done, a) }

func TestObserverIsToldEverythingOnce(t *testing.T) {
	var rec recorder
	e := newFakeWith(t, &fakeExec{}, 16, sched.Config{MaxBatchedTokens: 32, MaxLogits: 4, MaxSeqs: 4}, &rec)
	prompt := slices.Repeat([]int32{100}, 50)
	for range 2 {
		if _, _, _, err := collect(t.Context(), e, greedy(prompt, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil { // the goroutine has ended: rec is ours
		t.Fatal(err)
	}
	promptTokens, generated, firsts, inter := 0, 0, 0, 0
	for _, s := range rec.steps {
		promptTokens += s.PromptTokens
		generated += s.GeneratedTokens
		firsts += len(s.FirstTokens)
		inter += len(s.InterToken)
	}
	if promptTokens != 100 || generated != 10 || firsts != 2 || inter != 8 {
		t.Errorf("prompt %d, generated %d, firsts %d, inter %d; want 100, 10, 2, 8", promptTokens, generated, firsts, inter)
	}
	if len(rec.done) != 2 || rec.done[0].CachedTokens != 0 || rec.done[1].CachedTokens != 48 || !rec.done[1].Last || rec.done[1].Reason != FinishLength {
		t.Errorf("done: %+v", rec.done)
	}
}

// TestAnswersOfOneRequestComputeItsPromptOnce: the others find what the first has computed, but for what is no whole block.
func TestAnswersOfOneRequestComputeItsPromptOnce(t *testing.T) {
	var steps promptCounter
	e := newFakeWith(t, &fakeExec{}, 64, sched.Config{MaxBatchedTokens: 256, MaxLogits: 4, MaxSeqs: 4}, &steps)
	req := greedy(slices.Repeat([]int32{7}, 100), 3)
	req.N = 4
	if _, ids, _, err := collect(t.Context(), e, req); err != nil || len(ids) != 12 {
		t.Fatalf("%v, %v", ids, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// What is found counts as computed for the prompt, but no step has it among its tokens.
	if want := 100 + 3*(100-96) + 4*2; steps.tokens != want {
		t.Errorf("%d tokens were computed, want %d", steps.tokens, want)
	}
}

// promptCounter counts the tokens of all steps. The engine's goroutine writes it; it may be read once the engine is closed.
type promptCounter struct{ tokens int }

func (c *promptCounter) Step(r StepRecord) { c.tokens += r.Tokens }

func (c *promptCounter) Done(AnswerRecord) {}
