package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// busyEngine is a fake engine with statistics that tests set.
type busyEngine struct {
	*fakeEngine
	stats engine.Stats
}

func (e *busyEngine) Stats() engine.Stats { return e.stats }

// scrape reads /metrics into values by series ("name{labels}") and types by name.
func scrape(t *testing.T, url string) (values map[string]float64, types map[string]string) {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %s %v", resp.StatusCode, resp.Header.Get("Content-Type"), err)
	}
	values, types = map[string]float64{}, map[string]string{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if f := strings.Fields(line); f[0] == "#" {
			if f[1] == "TYPE" {
				types[f[2]] = f[3]
			}
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		values[line[:at]] = v
	}
	return values, types
}

func TestMetricsAreThoseOfVLLM(t *testing.T) {
	t.Parallel()
	eng := &busyEngine{fakeEngine: &fakeEngine{}, stats: engine.Stats{
		Running: 3, Waiting: 2, KVUsage: 0.25, PrefixQueries: 100, PrefixHits: 40, Preemptions: 5, PromptTokens: 1,
	}}
	s, _ := newTestServer(t, Config{Engine: eng, ServedModelNames: []string{"ernie", "other"}, APIKey: "k"})
	url := serve(t, s)
	o := s.Observer()
	o.Step(engine.StepRecord{Tokens: 60, Seqs: 2, PromptTokens: 64, GeneratedTokens: 1, FirstTokens: []time.Duration{30 * time.Millisecond}})
	o.Step(engine.StepRecord{Tokens: 2, Seqs: 2, GeneratedTokens: 2, InterToken: []time.Duration{20 * time.Millisecond, 60 * time.Millisecond}})
	done := engine.AnswerRecord{
		ID: "a", N: 2, Reason: engine.FinishStop, PromptTokens: 64, CachedTokens: 16, GeneratedTokens: 5, MaxTokens: 20,
		Queued: 400 * time.Millisecond, Prefill: time.Second, Decode: 2 * time.Second, Total: 3400 * time.Millisecond,
	}
	o.Done(done)
	done.Index, done.Last, done.Reason, done.GeneratedTokens, done.Decode = 1, true, engine.FinishLength, 1, 0
	o.Done(done)
	o.Done(engine.AnswerRecord{ID: "b", N: 2, GeneratedTokens: 9, Err: fmt.Errorf("step: %w", context.Canceled)})
	o.Done(engine.AnswerRecord{ID: "b", N: 2, Index: 1, Last: true, Reason: engine.FinishStop, GeneratedTokens: 3})
	o.Done(engine.AnswerRecord{ID: "c", N: 1, Last: true, Err: errors.New("broken")})

	values, types := scrape(t, url)
	const labels = `engine="0",model_name="ernie"`
	for name, want := range map[string]float64{
		"num_requests_running": 3, "num_requests_waiting": 2, "kv_cache_usage_perc": 0.25, "gpu_cache_usage_perc": 0.25,
		"prefix_cache_queries_total": 100, "prefix_cache_hits_total": 40, "num_preemptions_total": 5,
		"prompt_tokens_total": 64, "generation_tokens_total": 3,
		"time_to_first_token_seconds_count": 1, "time_to_first_token_seconds_sum": 0.03,
		"inter_token_latency_seconds_count": 2, "inter_token_latency_seconds_sum": 0.08, "time_per_output_token_seconds_count": 2,
		"iteration_tokens_total_count": 2, "iteration_tokens_total_sum": 62,
		"e2e_request_latency_seconds_count": 3, "e2e_request_latency_seconds_sum": 6.8, "request_queue_time_seconds_sum": 0.8,
		"request_prefill_time_seconds_sum": 2, "request_decode_time_seconds_sum": 2, "request_inference_time_seconds_sum": 4,
		"request_prompt_tokens_sum": 128, "request_generation_tokens_sum": 9, "request_prefill_kv_computed_tokens_sum": 96,
		"request_time_per_output_token_seconds_count": 3, "request_time_per_output_token_seconds_sum": 0.5,
		"request_params_max_tokens_sum": 40, "request_params_max_tokens_count": 2,
		"request_max_num_generation_tokens_count": 2, "request_max_num_generation_tokens_sum": 14, "request_params_n_count": 2, "request_params_n_sum": 4,
	} {
		series := "vllm:" + name + "{" + labels + "}"
		if got, there := values[series]; !there || got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s: got %v (%v), want %v", series, got, there, want)
		}
	}
	for reason, want := range map[string]float64{"stop": 2, "length": 1, "abort": 1, "error": 1} {
		series := `vllm:request_success_total{engine="0",finished_reason="` + reason + `",model_name="ernie"}`
		if got := values[series]; got != want {
			t.Errorf("%s: got %v, want %v", series, got, want)
		}
	}
	if got := values[`vllm:cache_config_info{block_size="0",cache_dtype="",engine="0",num_gpu_blocks="0"}`]; got != 1 {
		t.Error("no vllm:cache_config_info")
	}
	buckets := func(name, want string) {
		t.Helper()
		prefix, n := "vllm:"+name+"_bucket{"+labels+`,le="`, 0
		for _, le := range strings.Fields(want + " +Inf") {
			if _, there := values[prefix+le+`"}`]; !there {
				t.Errorf("%s has no bucket %s", name, le)
			}
		}
		for series := range values {
			if strings.HasPrefix(series, prefix) {
				n++
			}
		}
		if want := len(strings.Fields(want)) + 1; n != want {
			t.Errorf("%s has %d buckets, want %d", name, n, want)
		}
		if types["vllm:"+name] != "histogram" {
			t.Errorf("%s is a %q", name, types["vllm:"+name])
		}
	}
	const counts, token = "1 2 5 10 20 50 100", "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
	const request = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
	for _, name := range []string{
		"request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens", "request_params_max_tokens", "request_prefill_kv_computed_tokens",
	} {
		buckets(name, counts)
	}
	buckets("request_params_n", "1 2 5 10 20")
	buckets("iteration_tokens_total", "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384")
	buckets("time_to_first_token_seconds", "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560")
	for _, name := range []string{"inter_token_latency_seconds", "time_per_output_token_seconds", "request_time_per_output_token_seconds"} {
		buckets(name, token)
	}
	for _, name := range []string{
		"e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
	} {
		buckets(name, request)
	}
	for name, want := range map[string]string{"num_requests_running": "gauge", "kv_cache_usage_perc": "gauge", "prefix_cache_hits_total": "counter", "request_success_total": "counter"} {
		if got := types["vllm:"+name]; got != want {
			t.Errorf("%s is a %q, want %s", name, got, want)
		}
	}
	if values["go_goroutines"] == 0 {
		t.Error("nothing of the runtime")
	}
}

func TestMetricsBeforeAndAfterAnEngine(t *testing.T) {
	t.Parallel()
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, s)
	s.Observer().Step(engine.StepRecord{GeneratedTokens: 1}) // an engine that warms up
	s.Observer().Done(engine.AnswerRecord{N: 1, Last: true})
	if _, types := scrape(t, url); types["vllm:generation_tokens_total"] != "" || types["go_goroutines"] != "gauge" {
		t.Errorf("got %v", types)
	}
	s.SetEngine(&fakeEngine{})
	s.Observer().Step(engine.StepRecord{GeneratedTokens: 2})
	const series = `vllm:generation_tokens_total{engine="0",model_name="fake"}`
	if values, _ := scrape(t, url); values[series] != 2 {
		t.Errorf("got %v", values[series])
	}
	s.SetEngine(&fakeEngine{})
	if values, _ := scrape(t, url); values[series] != 0 {
		t.Errorf("got %v", values[series])
	}
}

func TestCountBuckets(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]string{1: "[1]", 4: "[1 2]", 100: "[1 2 5 10 20 50 100]"} {
		if got := fmt.Sprint(countBuckets(most)); got != want {
			t.Errorf("%d: got %s", most, got)
		}
	}
	if b := countBuckets(131072); b[len(b)-1] != 100000 {
		t.Errorf("got %v", b)
	}
}

func TestThroughputLineIsThatOfVLLM(t *testing.T) {
	t.Parallel()
	eng := &busyEngine{fakeEngine: &fakeEngine{}}
	at := time.Unix(1000, 0)
	th := throughput{idle: true}
	if _, _, ok := th.line(eng, at); ok {
		t.Error("a line without anything to compare with")
	}
	step := func(change func(*engine.Stats), wantLevel slog.Level, want string) {
		t.Helper()
		change(&eng.stats)
		at = at.Add(10 * time.Second)
		if level, line, ok := th.line(eng, at); !ok || level != wantLevel || line != want {
			t.Errorf("got %v %q %v\nwant %v %q", level, line, ok, wantLevel, want)
		}
	}
	step(func(*engine.Stats) {}, slog.LevelDebug,
		"Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%")
	step(func(st *engine.Stats) {
		*st = engine.Stats{PromptTokens: 500, GenerationTokens: 123, Running: 2, Waiting: 1, KVUsage: 0.1234, PrefixQueries: 400, PrefixHits: 100}
	}, slog.LevelInfo,
		"Engine 000: Avg prompt throughput: 50.0 tokens/s, Avg generation throughput: 12.3 tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.3%, Prefix cache hit rate: 25.0%")
	const idle = "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 25.0%"
	step(func(st *engine.Stats) { st.Running, st.Waiting, st.KVUsage = 0, 0, 0 }, slog.LevelInfo, idle)
	step(func(*engine.Stats) {}, slog.LevelDebug, idle)
	if _, _, ok := th.line(&busyEngine{}, at.Add(time.Second)); ok {
		t.Error("two engines were compared")
	}
}
