package loadtest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// sample is a record of three requests, one of which failed.
func sample() *Record {
	a, b := result(3, 100, 120, 140), result(2, 1300, 1350)
	cached := 40
	b.Usage.PromptTokensDetails = &struct {
		CachedTokens *int `json:"cached_tokens"`
	}{&cached}
	a.FinishReason, b.FinishReason = "length", "stop"
	failed := Result{Exchange: Exchange{Err: &Fault{Kind: "http_429", Status: 429, Message: "queue | full"}, End: msec}}
	out := &Outcome{Results: []Result{a, b, failed}, Duration: 2 * time.Second, OpenLoop: true, MaxInFlight: 2, Stopped: ErrTimeLimit}
	cold := 0.0
	return &Record{
		Tool: "pagelight bench serve", Version: "1", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"pagelight", "bench"},
		Machine: Machine{OS: "linux", Arch: "amd64", Cores: 4, Go: "go1"},
		Server:  ServerRecord{URL: "http://h/v1/completions", Model: "m", Info: json.RawMessage(`{"a":1}`)},
		Load: LoadRecord{
			Loop: "open", Rate: 2, Burstiness: 1, Concurrency: 8, Requests: 3, Duration: 90, Warmups: 2,
		},
		Prompts: PromptRecord{
			From: "random", Format: FormatIDs, Input: "100", Output: "1-3", PrefixTokens: 16, PrefixShare: 0.5, Prefixes: 2, Temperature: &cold, IgnoreEOS: true,
		},
		Summary:  Summarize(out, []float64{90, 99.9}, []Goal{{"ttft", time.Second}}),
		Requests: RecordRequests(out),
	}
}

func TestText(t *testing.T) {
	const want = `server      http://h/v1/completions, model m
load        open loop, 2 requests/s (Poisson), at most 8 at a time, 3 requests, for 1m30s; before them 2 to warm up
prompts     random token ids, 100 tokens after a prefix of 16 (50 % of requests share 2); answers of at most 1-3 tokens, past their end
requests    2 succeeded, 1 failed, in 2.00 s; at most 2 at once
throughput  1 requests/s; tokens/s: 2.5 output, 100.0 input, 102.5 total
tokens      200 input (100.0 a request), 5 output (2.5 a request), 40 cached (20.0 % of input)
goodput     0.5 requests/s: 1 of 3 keep every goal
429         1 answers, 0 tried again

latency, ms           mean  median    p90  p99.9    max  samples
TTFT from when due   700.0   700.0   1180   1299   1300        2
TTFT from sending    690.0   690.0   1170   1289   1290        2
E2EL from when due   745.0   745.0   1229   1349   1350        2
E2EL from sending    735.0   735.0   1219   1339   1340        2
sent later than due   6.67   10.00  10.00  10.00  10.00        3

errors
  http_429         1  queue | full

note: the measurement was ended early: the time limit of the measurement was reached
`
	var b strings.Builder
	if err := sample().WriteText(&b, View{Metrics: []string{"ttft", "e2el"}, Percentiles: []float64{90, 99.9}}); err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	r := sample()
	r.Command = append(r.Command, "a|b")
	if err := r.WriteMarkdown(&b, View{Metrics: []string{"itl"}, Percentiles: []float64{90}}); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{
		"| requests | 2 succeeded, 1 failed, in 2.00 s; at most 2 at once |\n",
		"| client | processor not known, 4 cores, linux/amd64, go1, pagelight 1 |\n| date | 2026-01-02T03:04:05Z |\n| command | `pagelight bench a\\|b` |\n",
		"\n| latency, ms | mean | median | p90 | max | samples |\n|---|---:|---:|---:|---:|---:|\n| ITL, gap between tokens | 30.00 | 20.00 | 44.00 | 50.00 | 3 |\n",
		"\n| http_429 | 1 | queue \\| full |\n",
		"\nNote: the measurement was ended early",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestRecordJSON(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Server   struct{ Info map[string]int }
		Load     map[string]any
		Summary  map[string]json.RawMessage
		Prompts  map[string]any
		Requests []map[string]any
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	var ttft Distribution
	if err := json.Unmarshal(got.Summary["ttft_ms"], &ttft); err != nil || ttft.Samples != 2 || ttft.Percentiles["p90"] != 1180 {
		t.Errorf("%s, %v", got.Summary["ttft_ms"], err)
	}
	for name, want := range map[string]string{
		"duration_s": "2", "succeeded": "2", "failed": "1", "cached_tokens": "40", "requests_per_s": "1", "output_tokens_per_s": "2.5", "good_requests": "1",
	} {
		if string(got.Summary[name]) != want {
			t.Errorf("%s is %s, want %s", name, got.Summary[name], want)
		}
	}
	if got.Server.Info["a"] != 1 || got.Load["loop"] != "open" || got.Load["request_rate_per_s"] != 2.0 || got.Prompts["temperature"] != 0.0 {
		t.Errorf("%s", b.String())
	}
	if len(got.Requests) != 3 || got.Requests[0]["first_ms"] != 100.0 || got.Requests[2]["error"] != "http_429: queue | full" || got.Requests[1]["cached_tokens"] != 40.0 {
		t.Errorf("%v", got.Requests)
	}
}

// TestNothingSucceeded has no table, and no number that could be taken for a measured one.
func TestNothingSucceeded(t *testing.T) {
	r := sample()
	r.Summary = Summarize(&Outcome{Results: []Result{{Exchange: Exchange{Err: &Fault{Kind: KindConnect, Message: "refused"}}}}, Duration: msec}, []float64{99}, nil)
	var text, js strings.Builder
	if err := errors.Join(r.WriteText(&text, View{Metrics: Metrics}), r.WriteJSON(&js)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "latency") || !strings.Contains(text.String(), "0 succeeded, 1 failed") || !strings.Contains(js.String(), `"ttft_ms": null`) {
		t.Errorf("%s%s", text.String(), js.String())
	}
}

func TestThisMachine(t *testing.T) {
	if m := ThisMachine(); m.Cores < 1 || m.OS == "" || m.Go == "" {
		t.Errorf("%+v", m)
	}
	if procField("/no/such/file", "x") != "" {
		t.Error("a file that is not there has a field")
	}
}
