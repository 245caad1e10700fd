package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const msec = time.Millisecond

// exactly asks for a distribution of one value.
func exactly(t *testing.T, what string, d *Distribution, samples int, value float64) {
	t.Helper()
	if d == nil || d.Samples != samples || d.Min != value || d.Max != value || d.Median != value || math.Abs(d.Mean-value) > 1e-9 || d.Percentiles["p99"] != value {
		t.Errorf("%s is %+v, want %d times %g", what, d, samples, value)
	}
}

func TestLatenciesOfAServerOfKnownTiming(t *testing.T) {
	for _, backend := range []Backend{Completions, Chat} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{answer: always(plan{first: 100 * msec, gap: 10 * msec, tokens: 5, role: backend == Chat, cached: 4})}
			_, s := measure(t, Config{Client: f.start(t, backend), Requests: 3, Concurrency: 1})
			exactly(t, "TTFT", s.TTFT, 3, 100)
			exactly(t, "ITL", s.ITL, 12, 10)
			exactly(t, "TPOT", s.TPOT, 3, 10)
			exactly(t, "E2EL", s.E2EL, 3, 140)
			if s.Seconds != 0.42 || s.Succeeded != 3 || s.Failed != 0 || s.MaxInFlight != 1 || f.dialled != 1 {
				t.Errorf("%+v, %d connections", s, f.dialled)
			}
			if s.InputTokens != 30 || s.OutputTokens != 15 || *s.CachedTokens != 12 || s.Finish["length"] != 3 {
				t.Errorf("%+v", s)
			}
			if near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }; !near(s.RequestRate, 3/0.42) || !near(s.OutputRate, 15/0.42) || !near(s.TotalRate, 45/0.42) {
				t.Errorf("%+v", s)
			}
			if s.SentTTFT != nil || s.SendDelay != nil || s.Notes != nil {
				t.Errorf("a closed loop has %+v", s)
			}
		})
	}
}

func TestClosedLoopKeepsItsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: time.Second, tokens: 1})}
		c := f.start(t, Completions)
		_, s := measure(t, Config{Client: c, Requests: 10, Concurrency: 4})
		if f.most != 4 || s.MaxInFlight != 4 || s.Seconds != 3 || len(f.bodies) != 10 {
			t.Errorf("%d ran at once, %+v", f.most, s)
		}
		if s.TPOT != nil || s.ITL != nil {
			t.Errorf("answers of one token have a TPOT %+v and gaps %+v", s.TPOT, s.ITL)
		}
		f.most = 0
		if _, s = measure(t, Config{Client: c, Requests: 7}); f.most != 7 || s.Seconds != 1 {
			t.Errorf("all at once: %d ran, %+v", f.most, s)
		}
	})
}

func TestDurationStopsNewRequestsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: time.Second, tokens: 1})}
		c := f.start(t, Completions)
		// Each worker sends at 0, 1 and 2 s; the last answers come at 3 s.
		_, s := measure(t, Config{Client: c, Duration: 2500 * msec, Concurrency: 2})
		if s.Succeeded != 6 || s.Failed != 0 || s.Seconds != 3 {
			t.Errorf("closed loop: %+v", s)
		}
		// Due at 0.4, 0.8, … 2.4 s.
		_, s = measure(t, Config{Client: c, Duration: 2500 * msec, Rate: 2.5, Burstiness: math.Inf(1)})
		if s.Succeeded != 6 || s.Failed != 0 || math.Abs(s.Seconds-3.4) > 1e-6 {
			t.Errorf("open loop: %+v", s)
		}
	})
}

// TestOpenLoopCountsFromWhenARequestWasDue: the server answers one request a second and two are due each second. Whoever
// measures from the sending sees a second each time.
func TestOpenLoopCountsFromWhenARequestWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: time.Second, tokens: 1})}
		out, s := measure(t, Config{Client: f.start(t, Completions), Requests: 4, Rate: 2, Burstiness: math.Inf(1), Concurrency: 1})
		var due, sent, ttft []time.Duration
		for _, r := range out.Results {
			due, sent, ttft = append(due, r.Scheduled), append(sent, r.Sent), append(ttft, r.TTFT())
		}
		if want := []time.Duration{500 * msec, 1000 * msec, 1500 * msec, 2000 * msec}; !reflect.DeepEqual(due, want) {
			t.Errorf("due at %v, want %v", due, want)
		}
		if want := []time.Duration{500 * msec, 1500 * msec, 2500 * msec, 3500 * msec}; !reflect.DeepEqual(sent, want) {
			t.Errorf("sent at %v, want %v", sent, want)
		}
		if want := []time.Duration{1000 * msec, 1500 * msec, 2000 * msec, 2500 * msec}; !reflect.DeepEqual(ttft, want) {
			t.Errorf("TTFT %v, want %v", ttft, want)
		}
		exactly(t, "TTFT from sending", s.SentTTFT, 4, 1000)
		exactly(t, "E2EL from sending", s.SentE2EL, 4, 1000)
		if s.SendDelay.Max != 1500 || s.TTFT.Max != 2500 || s.TTFT.Mean != 1750 || f.most != 1 {
			t.Errorf("%+v, %+v, %d at once", s.SendDelay, s.TTFT, f.most)
		}
	})
}

func TestOpenLoopSendsWhateverStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: 10 * time.Second, tokens: 1})}
		_, s := measure(t, Config{Client: f.start(t, Completions), Requests: 8, Rate: 4, Burstiness: math.Inf(1)})
		if f.most != 8 || s.MaxInFlight != 8 || s.Seconds != 12 || s.SendDelay.Max != 0 {
			t.Errorf("%d at once, %+v", f.most, s)
		}
		exactly(t, "TTFT", s.TTFT, 8, 10_000)
	})
}

func TestWarmUpDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: func(n int, _ *http.Request, _ map[string]any) plan {
			return plan{first: time.Duration(1+4*max(0, 2-n)) * time.Second, tokens: 1} // the first two are slow
		}}
		c := f.start(t, Completions)
		_, s := measure(t, Config{Client: c, Requests: 2, Concurrency: 1, Warmups: 2})
		exactly(t, "TTFT", s.TTFT, 2, 1000)
		if len(f.bodies) != 4 || s.Seconds != 2 {
			t.Errorf("%d requests, %+v", len(f.bodies), s)
		}
		f.answer = always(plan{status: 500, body: `{"error":{"message":"no memory"}}`})
		_, err := Run(t.Context(), Config{Client: c, Source: text("x"), Requests: 1, Warmups: 3, Concurrency: 1})
		if err == nil || !strings.Contains(err.Error(), "no memory") || len(f.bodies) != 5 {
			t.Errorf("a warm-up that fails: %v after %d requests", err, len(f.bodies)-4)
		}
	})
}

// TestWarmUpAsksForOtherPrompts: what it asked may be in the server's cache.
func TestWarmUpAsksForOtherPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{tokens: 1})}
		measure(t, Config{Client: f.start(t, Completions), Source: numbered{}, Requests: 2, Concurrency: 1, Warmups: 2})
		var prompts []string
		for _, b := range f.bodies {
			prompts = append(prompts, b["prompt"].(string))
		}
		slices.Sort(prompts[:2]) // they may run at once
		if !slices.Equal(prompts, []string{"-1", "-2", "0", "1"}) {
			t.Errorf("prompts %q", prompts)
		}
	})
}

// numbered is a source whose prompts are their indices.
type numbered struct{}

func (numbered) Request(i int) Request { return Request{Text: strconv.Itoa(i), Output: 1} }

func TestTimeLimitGivesUpAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: 2 * time.Second, tokens: 1})}
		c := f.start(t, Completions)
		out, s := measure(t, Config{Client: c, Requests: 10, Concurrency: 1, TimeLimit: 5 * time.Second})
		if !errors.Is(out.Stopped, ErrTimeLimit) || s.Succeeded != 2 || s.Failed != 1 || s.Errors[0].Kind != KindTimeLimit || s.Seconds != 5 {
			t.Errorf("%v, %+v", out.Stopped, s)
		}
		// In the open loop those that were due and never sent are failures as well.
		out, s = measure(t, Config{Client: c, Requests: 10, Rate: 1, Burstiness: math.Inf(1), Concurrency: 1, TimeLimit: 4500 * msec})
		if !errors.Is(out.Stopped, ErrTimeLimit) || s.Succeeded != 1 || s.Failed != 3 || len(f.bodies) != 5 {
			t.Errorf("%v, %+v, %d requests in all", out.Stopped, s, len(f.bodies))
		}
	})
}

func TestCancelReturnsWhatWasMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: 2 * time.Second, tokens: 1})}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("Ctrl-C"))
		defer cancel()
		out, err := Run(ctx, Config{Client: f.start(t, Completions), Source: text("x"), Requests: 10, Concurrency: 2})
		if err != nil || len(out.Results) != 6 || out.Stopped == nil || out.Duration != 5*time.Second {
			t.Fatalf("%v, %+v", err, out)
		}
		if s := Summarize(out, nil, nil); s.Succeeded != 4 || s.Errors[0].Kind != KindCancelled || !strings.Contains(s.Notes[0], "ended early") {
			t.Errorf("%+v", s)
		}
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{first: time.Second, tokens: 2})}
		var seen []Snapshot
		measure(t, Config{
			Client: f.start(t, Completions), Requests: 3, Concurrency: 1, Warmups: 1,
			Progress: func(s Snapshot) { seen = append(seen, s) }, ProgressEvery: 700 * msec,
		})
		if len(seen) != 6 || !seen[0].WarmingUp || seen[0].Finished != 0 {
			t.Fatalf("%+v", seen)
		}
		if got, want := seen[3], (Snapshot{Elapsed: 1800 * msec, Planned: 3, Finished: 1, InFlight: 1, OutputTokens: 2}); got != want {
			t.Errorf("after 2.8 s %+v, want %+v", got, want)
		}
		if got := seen[5]; got.Finished != 3 || got.InFlight != 0 || got.OutputTokens != 6 {
			t.Errorf("at the end %+v", got)
		}
	})
}

func TestWrongConfigurations(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no limit":         {Concurrency: 1},
		"negative":         {Requests: -1},
		"rate":             {Requests: 1, Rate: math.NaN()},
		"burstiness":       {Requests: 1, Rate: 1, Burstiness: -1},
		"all of no number": {Duration: 1},
	} {
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: always(plan{tokens: 1})}
		warm := 0.5
		o := RequestOptions{Temperature: &warm, IgnoreEOS: true, Seed: 7, Extra: map[string]json.RawMessage{"top_p": json.RawMessage(`0.9`), "model": json.RawMessage(`"other"`)}}
		measure(t, Config{Client: f.start(t, Chat), Requests: 2, Concurrency: 1, Options: o})
		got := f.bodies[1]
		if got["seed"] != 8.0 || got["ignore_eos"] != true || got["top_p"] != 0.9 || got["model"] != "other" || got["max_completion_tokens"] != 5.0 || got["stream"] != true {
			t.Errorf("%v", got)
		}
		cold := 0.0
		f = &fake{answer: always(plan{tokens: 1})}
		c := f.start(t, Completions)
		measure(t, Config{Client: c, Source: ids{1, 2}, Requests: 1, Concurrency: 1, Options: RequestOptions{Temperature: &cold}})
		got = f.bodies[0]
		if _, has := got["seed"]; has || got["temperature"] != 0.0 || got["max_tokens"] != 3.0 || !reflect.DeepEqual(got["prompt"], []any{1.0, 2.0}) {
			t.Errorf("%v", got)
		}
		if _, has := got["ignore_eos"]; has {
			t.Error("ignore_eos is sent to a server that may not know it")
		}
		if _, has := got["messages"]; has || !slices.Equal(keysOf(got["stream_options"]), []string{"include_usage"}) {
			t.Errorf("%v", got)
		}
	})
}

// ids is a source of one prompt.
type ids []int32

func (s ids) Request(int) Request { return Request{IDs: s, Input: len(s), Output: 3} }

func keysOf(v any) (names []string) {
	for k := range v.(map[string]any) {
		names = append(names, k)
	}
	return names
}
