package bench

import (
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/weights"
)

// TestHistoryCountsFullSteps: three answers, the second and third of which begin later; one ends before the others.
func TestHistoryCountsFullSteps(t *testing.T) {
	var h history
	h.begin(3)
	first := make([]time.Duration, 1)
	at := func(steps int64) engine.Clock { return engine.Clock{Steps: steps, Submits: 2 * steps} }
	h.Step(engine.StepRecord{Seqs: 1, GeneratedTokens: 1, FirstTokens: first, Clock: at(10)})
	h.Step(engine.StepRecord{Seqs: 2, GeneratedTokens: 2, FirstTokens: first, Clock: at(11)})
	h.Step(engine.StepRecord{Seqs: 3, GeneratedTokens: 3, FirstTokens: first, Clock: at(12)}) // counting begins after this
	h.Step(engine.StepRecord{Seqs: 3, GeneratedTokens: 3, Clock: at(13)})
	h.Step(engine.StepRecord{Seqs: 3, GeneratedTokens: 3, Clock: at(15)}) // a burst of two
	h.Step(engine.StepRecord{Seqs: 2, GeneratedTokens: 2, Clock: at(15)})
	h.Step(engine.StepRecord{Seqs: 2, GeneratedTokens: 2, Clock: at(16)})
	if tokens, steps, took := h.window(); tokens != 6 || steps != 2 || took < 0 {
		t.Errorf("%d tokens in %d steps and %v", tokens, steps, took)
	}
	if s := h.span(); s.steps != 3 || s.clock != at(3) || s.took < 0 || h.first() != at(12) {
		t.Errorf("%+v after %+v", s, h.first())
	}
	if ahead := h.begin(3); ahead != 2 {
		t.Errorf("early answers were %d tokens ahead, want 2", ahead)
	}
	if ahead := h.begin(2); ahead != 0 {
		t.Errorf("another test begins %d ahead", ahead)
	}
	if tokens, _, _ := h.window(); tokens != 0 || h.span() != (span{}) {
		t.Errorf("another test begins with %d tokens, %+v", tokens, h.span())
	}
}

// TestHistoryEndsWithinABurst: the four steps of a burst are told of at once, and an answer ended with the second.
func TestHistoryEndsWithinABurst(t *testing.T) {
	at := time.Now()
	ms := time.Millisecond
	clock := func(steps int64) engine.Clock { return engine.Clock{Steps: steps, Wait: time.Duration(steps) * ms} }
	h := history{rows: 2, steps: []moment{
		{at: at, full: true, clock: clock(1)},
		{at.Add(3 * ms), 3 * ms, 2, true, clock(2)},
		{at.Add(11 * ms), 2 * ms, 2, true, clock(6)},
		{at.Add(11 * ms), 2 * ms, 2, true, clock(6)},
		{at.Add(11 * ms), 2 * ms, 1, false, clock(6)},
		{at.Add(11 * ms), 2 * ms, 1, false, clock(6)},
		{at.Add(15 * ms), 4 * ms, 1, false, clock(7)},
	}}
	if tokens, steps, took := h.window(); tokens != 6 || steps != 3 || took != 7*ms {
		t.Errorf("%d tokens in %d steps and %v, want 6, 3 and 7ms", tokens, steps, took)
	}
	if s := h.span(); s != (span{clock(5), 11 * ms, 5}) {
		t.Errorf("%+v, want the whole burst: 5 steps in 11ms", s)
	}
}

// TestStages: a span of 9 ms in which 10 tokens came, while 8 steps were submitted.
func TestStages(t *testing.T) {
	s := span{engine.Clock{Steps: 8, Dispatches: 400, Submits: 4, ReadBacks: 4, ReadBytes: 32, Encode: 2 * time.Millisecond, Wait: 6 * time.Millisecond}, 9 * time.Millisecond, 10}
	var sum span
	sum.add(&s)
	sum.add(&s)
	want := Stages{EncodeUS: 200, WaitUS: 600, HostUS: 100, Dispatches: 50, Submits: 0.5, ReadBacks: 0.5, BytesRead: 4}
	if got := sum.stages(KindDecode); got == nil || *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.steps = 1
	want = Stages{EncodeUS: 2000, WaitUS: 6000, HostUS: 1000, Dispatches: 400, Submits: 4, ReadBacks: 4, BytesRead: 32}
	if got := s.stages(KindPrefill); got == nil || *got != want {
		t.Errorf("a prompt: %+v, want %+v", got, want)
	}
	if got := (&span{}).stages(KindBatch); got != nil {
		t.Errorf("nothing: %+v", got)
	}
}

// TestPromptsAreNoPartOfAnswers: a step of an answer is a step of one token, however many runs there were and however many steps their
// prompts took, and no part of it takes less than no time.
func TestPromptsAreNoPartOfAnswers(t *testing.T) {
	b := must(New(Options{Gens: []int{6}, Depths: []int{0, 120}, Repetitions: 3}))(t)
	dev, src := must(cpu.Open(cpu.Options{}))(t), must(weights.OpenDir(tiny))(t)
	eng := must(engine.Open(t.Context(), b.Configure(engine.Config{Device: dev, Source: src, GPUMemory: 64 << 20, MaxBurst: 1, MaxBatchedTokens: 16})))(t)
	t.Cleanup(func() { _ = eng.Close() })
	run := must(b.Run(t.Context(), eng, Device{}))(t)
	for _, x := range run.Tests {
		s := x.Stages
		if s == nil || s.Dispatches != float64(run.Token.Dispatches) || s.Submits != 1 || s.ReadBacks != 1 || s.BytesRead != 4 {
			t.Errorf("%s: %+v, want those of %d dispatches, 1 submission and 1 read-back of 4 bytes", x.Name, s, run.Token.Dispatches)
			continue
		}
		if s.EncodeUS <= 0 || s.WaitUS <= 0 || s.HostUS < 0 {
			t.Errorf("%s: %+v", x.Name, s)
		}
	}
}
