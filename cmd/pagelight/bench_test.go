package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/bench"
)

const benchModel = "../../internal/model/testdata/ernie"

func TestBenchModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, md := filepath.Join(dir, "report.json"), filepath.Join(dir, "report.md")
	var out, errs bytes.Buffer
	code := run(context.Background(), []string{
		"bench", benchModel, "--device", "cpu", "-p", "20,30", "-n", "6", "-d", "0", "-b", "0", "-r", "2", "-o", "csv", "--kv", "f16,int8",
		"--gpu-memory", "64M", "--json", file, "--markdown", md,
	}, strings.NewReader(""), &out, &errs)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 7 || !strings.HasPrefix(lines[0], "version,date,adapter") || !strings.Contains(lines[4], ",int8,approximate,pp20,prefill,20,0,0,1,") {
		t.Errorf("CSV\n%s", out.String())
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r bench.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != bench.Schema || r.Tool != "pagelight bench" || r.Machine.Cores < 1 || r.Adapter.Kind != "cpu" || r.Device.DispatchUS <= 0 || r.Command[1] != "bench" {
		t.Errorf("report %+v", r)
	}
	if len(r.Runs) != 2 || r.Runs[0].KV != "f16" || r.Runs[1].Check.Verdict != "approximate" || r.Runs[0].OpenS <= 0 || len(r.Runs[0].Tests) != 3 {
		t.Errorf("runs %+v", r.Runs)
	}
	if tables, err := os.ReadFile(md); err != nil || !strings.Contains(string(tables), "| pp30 |") {
		t.Errorf("%v: %s", err, tables)
	}
}

func TestBenchModelSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--max-model-len 0":           "--max-model-len",
		"--max-model-len 24":          "leave nothing to measure: pp512 left out: it needs a context of 513 tokens, this engine has 24",
		"--n-prompt=-5":               "n_prompt: must be 0 to",
		"-p five":                     "--n-prompt",
		"-b 300":                      "batch: must be 0 to 256, got 300",
		"-r 0":                        "repetitions: must be 1 to 1000, got 0",
		"-p 0 -n 0 -b 0":              "leave nothing to measure",
		"-o xml":                      "--output",
		"--kv f8":                     "--kv",
		"--json -":                    "--output",
		"--json /no/such/folder/x":    "/no/such/folder",
		"--max-num-batched-tokens -1": "--max-num-batched-tokens",
		"-p 5000 -n 0 -b 0":           "pp5000 left out: it needs a context of 5001 tokens, this engine has 4096",
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), append([]string{"bench", benchModel, "--device", "cpu", "--no-profile"}, strings.Fields(args)...), strings.NewReader(""), &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), want) || out.Len() != 0 {
			t.Errorf("bench %s: exit code %d, %q and on standard output %q; want %d and %q", args, code, errs.String(), out.String(), exitUsage, want)
		}
	}
	for _, model := range []string{"synthetic:ernie-4.5-0.3b/q5", "synthetic:ernie-4.5-0.3b/", "synthetic:ernie-4.5-0.3b/q4/q4"} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), []string{"bench", model, "-p", "4", "-n", "0", "-b", "0"}, strings.NewReader(""), &out, &errs); code != exitUsage ||
			!strings.Contains(errs.String(), "must be /none, /q8 or /q4") {
			t.Errorf("bench %s: exit code %d, %q", model, code, errs.String())
		}
	}
	if got := exitCode(context.Background(), bench.ErrWrong); got != exitFailed {
		t.Errorf("wrong answers give exit code %d, want %d", got, exitFailed)
	}
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"bench", "no-such-model", "-p", "4"}, strings.NewReader(""), &out, &errs); code != exitModel || !strings.Contains(errs.String(), "no-such-model") {
		t.Errorf("a model that is not there: exit code %d, %q", code, errs.String())
	}
}

// TestBenchLeavesOutWhatMemoryDoesNotHold: the context of one test is too long for the budget; the others are measured.
func TestBenchLeavesOutWhatMemoryDoesNotHold(t *testing.T) {
	t.Setenv("PAGELIGHT_KV", "f32")
	var out, errs bytes.Buffer
	code := run(context.Background(), []string{
		"bench", benchModel, "--device", "cpu", "-p", "8", "-n", "2", "-d", "0,3000", "-b", "0", "-r", "1", "-o", "json", "--no-profile", "--gpu-memory", "5M",
	}, strings.NewReader(""), &out, &errs)
	var r bench.Report
	if err := json.Unmarshal(out.Bytes(), &r); code != exitOK || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, errs.String())
	}
	if len(r.Runs) != 1 || r.Runs[0].KV != "f32" || len(r.Runs[0].Tests) != 2 || len(r.Runs[0].LeftOut) != 1 || r.Runs[0].LeftOut[0].Name != "tg2 @ d3000" {
		t.Errorf("%+v", r.Runs)
	}
}

func TestDoctorTuneSaysWhatIsWrong(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--tune nosuch": {exitModel, "nosuch"},
		"--tune " + benchModel + " --tune-for=-5s": {exitUsage, "--tune-for must not be negative"},
		"--tune=":                     {exitUsage, "--tune needs a model"},
		"--full --tune " + benchModel: {exitUsage, "give one of them"},
		"--tune " + benchModel:        {exitDevice, "no hardware adapter"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), append([]string{"doctor", "--device", "cpu"}, strings.Fields(args)...), strings.NewReader(""), &out, &errs)
		if code != want.code || !strings.Contains(errs.String(), want.says) {
			t.Errorf("doctor %s: exit code %d, %q; want %d and %q", args, code, errs.String(), want.code, want.says)
		}
	}
}
