package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/loadtest"
)

// speaker is a server that speaks as much of OpenAI's API as the load tool needs. Every failEach-th request is a 500.
func speaker(t *testing.T, failEach int64, hang bool) (address string) {
	t.Helper()
	var n atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"org/tiny","max_model_len":2048}]}`)
	})
	mux.HandleFunc("GET /api/info", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"info":{"weights":"q4"}}`) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Prompt    string
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if failEach > 0 && n.Add(1)%failEach == 0 {
			http.Error(w, `{"error":{"message":"out of luck"}}`, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range body.MaxTokens {
			_, _ = io.WriteString(w, `data: {"choices":[{"text":"x"}]}`+"\n\n")
			w.(http.Flusher).Flush()
		}
		if hang && body.MaxTokens > 1 {
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, `data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\ndata: [DONE]\n\n", len(strings.Fields(body.Prompt)), body.MaxTokens)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestBenchServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := succeeds(t, "", "bench", "serve", "--base-url", speaker(t, 0, false), "--requests", "6", "--concurrency", "2", "--random-input-len", "12",
		"--random-output-len", "4", "--api-key", "s3cret", "--header", "X-Key=s3cret", "--warmup", "1", "--goodput", "ttft:60000",
		"--markdown", filepath.Join(dir, "out.md"), "--save-result", "--save-detailed", "--result-dir", dir, "--metadata", "commit=abc")
	for _, want := range []string{"model org/tiny", "closed loop, 2 at a time, 6 requests", "6 succeeded, 0 failed", "72 input (12.0 a request)", "24 output", "6 of 6 keep", "TTFT, time to first token"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 2 {
		t.Fatalf("files %v, %v", names, err)
	}
	record, err := os.ReadFile(names[slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, ".json") })])
	if err != nil {
		t.Fatal(err)
	}
	var rec loadtest.Record
	if err := json.Unmarshal(record, &rec); err != nil {
		t.Fatal(err)
	}
	if rec.Summary.Succeeded != 6 || len(rec.Requests) != 6 || rec.Metadata["commit"] != "abc" || rec.Server.Info == nil || rec.Server.Entry == nil {
		t.Errorf("%s", record)
	}
	markdown, err := os.ReadFile(filepath.Join(dir, "out.md"))
	if err != nil || !strings.Contains(string(markdown), "| requests | 6 succeeded") || !strings.Contains(string(markdown), "`pagelight bench serve --base-url") {
		t.Errorf("%s, %v", markdown, err)
	}
	if strings.Contains(got+string(record)+string(markdown), "s3cret") {
		t.Error("a secret is in the results")
	}
	if base := filepath.Base(names[1]) + filepath.Base(names[0]); !strings.Contains(base, "openai-concurrency2-org_tiny-") {
		t.Errorf("files %v", names)
	}
}

func TestBenchServeStandardOutput(t *testing.T) {
	t.Parallel()
	url := speaker(t, 0, false)
	r := pagelight(t, "", "bench", "serve", "--base-url", url, "--num-prompts", "2", "--request-rate", "1000", "--json", "-")
	var rec loadtest.Record
	if err := json.Unmarshal([]byte(r.stdout), &rec); err != nil || r.code != exitOK || !strings.Contains(r.stderr, "2 succeeded") {
		t.Errorf("exit code %d, %v, %s%s", r.code, err, r.stdout, r.stderr)
	}
	if rec.Load.Loop != "open" || rec.Load.Rate != 1000 || rec.Summary.SendDelay == nil || rec.Prompts.From != "random" {
		t.Errorf("%+v", rec)
	}
	r = pagelight(t, `{"prompt":"a b c","output_tokens":2}`, "bench", "serve", "--base-url", url, "--num-prompts", "3", "--dataset-path", "-", "--markdown", "-")
	if r.code != exitOK || !strings.HasPrefix(r.stdout, "| | |\n") || !strings.Contains(r.stderr, "9 input (3.0 a request), 6 output (2.0 a request)") {
		t.Errorf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestBenchServeErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Two of the requests are of the calibration.
	args := []string{"bench", "serve", "--base-url", speaker(t, 3, false), "--requests", "6", "--output-len", "2", "--json", filepath.Join(dir, "out.json")}
	r := pagelight(t, "", args...)
	if r.code != exitFailed || !strings.Contains(r.stdout, "4 succeeded, 2 failed") || !strings.Contains(r.stdout, "http_500") || !strings.Contains(r.stdout, "out of luck") || !strings.Contains(r.stderr, "2 of 6 requests failed") {
		t.Errorf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 1 { // the record is written all the same
		t.Errorf("files %v", names)
	}
	args[3] = speaker(t, 3, false)
	if r = pagelight(t, "", append(args, "--allow-errors")...); r.code != exitOK || !strings.Contains(r.stdout, "http_500") {
		t.Errorf("--allow-errors: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestBenchServeInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"bench", "serve", "--base-url", speaker(t, 0, true), "--requests", "5"}, strings.NewReader(""), &stdout, &stderr)
	if code != exitInterrupted || !strings.Contains(stdout.String(), "0 succeeded, 1 failed") || !strings.Contains(stdout.String(), "cancelled") {
		t.Errorf("exit code %d, %s%s", code, stdout.String(), stderr.String())
	}
}

func TestBenchServeWrongCalls(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"no address":                         {"--base-url", "localhost:8080"},
		"--num-prompts is out of range":      {"--num-prompts", "0"},
		"--max-concurrency is out of range":  {"--max-concurrency", "0"},
		"--request-rate is out of range":     {"--request-rate", "-1"},
		"--burstiness is out of range":       {"--burstiness", "0"},
		"--prefix-share is out of range":     {"--prefix-share", "1.5"},
		"--request-rate inf needs":           {"--request-rate", "inf", "--duration", "1s"},
		"--input-len":                        {"--input-len", "long"},
		"--goodput":                          {"--goodput", "speed:5"},
		"--metric-percentiles":               {"--metric-percentiles", "101"},
		"--percentile-metrics":               {"--percentile-metrics", "latency"},
		"--extra-body is no JSON object":     {"--extra-body", "[]"},
		"--random-range-ratio":               {"--random-range-ratio", "0.5", "--input-len", "1-5"},
		"--header: \"X\" is not NAME=VALUE":  {"--header", "X"},
		"only one of --json and --markdown":  {"--json", "-", "--markdown", "-"},
		"no such file or directory":          {"--json", "/no/such/folder/file.json"},
		"is a folder":                        {"--json", "/"},
		"/no/such/file":                      {"--dataset-path", "/no/such/file", "--base-url", speaker(t, 0, false)},
		"line 1: neither \"prompt\" nor \"m": {"--dataset-path", "-", "--base-url", speaker(t, 0, false)},
	} {
		fails(t, exitUsage, "{}", []string{says}, append([]string{"bench", "serve", "--base-url", "http://127.0.0.1:1"}, args...)...)
	}
	fails(t, exitFailed, "", []string{"asking http://127.0.0.1:1 for its models", "refused"}, "bench", "serve", "--base-url", "http://127.0.0.1:1")
	if help := succeeds(t, "", "bench", "serve", "--help"); !strings.Contains(help, "$PAGELIGHT_API_KEY") || strings.Contains(help, "=STRING") {
		t.Errorf("%s", help)
	}
}

func TestBenchLine(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]loadtest.Snapshot{
		"warming up": {WarmingUp: true, Planned: 5},
		"[#####---------------] 25/100, 4 running, 12s, 50.0 tokens/s":      {Planned: 100, Finished: 25, InFlight: 4, Elapsed: 12 * time.Second, OutputTokens: 600},
		"[####################] 3/3, 0 running, 1 failed, 2s, 0.0 tokens/s": {Planned: 3, Finished: 3, Failed: 1, Elapsed: 2 * time.Second},
		"7 done, 2 running, 1m0s, 1.0 tokens/s":                             {Finished: 7, InFlight: 2, Elapsed: time.Minute, OutputTokens: 60},
		"[--------------------] 0/1000000, 1000 running, 2s, 0.0 tokens/s":  {Planned: 1_000_000, InFlight: 1000, Elapsed: 1600 * time.Millisecond},
	} {
		if got := benchLine(s); got != want || len(got) > 79 {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var b bytes.Buffer
	p := &benchProgress{w: &b}
	p.show(loadtest.Snapshot{Finished: 100})
	p.show(loadtest.Snapshot{WarmingUp: true})
	p.clear()
	if want := "\r100 done, 0 running, 0s\rwarming up" + strings.Repeat(" ", 13) + "\r" + strings.Repeat(" ", 10) + "\r"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
