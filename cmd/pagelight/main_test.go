package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// result is what a run of the program left.
type result struct {
	code           int
	stdout, stderr string
}

// pagelight runs the program.
func pagelight(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// succeeds runs the program and returns its output.
func succeeds(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	r := pagelight(t, stdin, args...)
	if r.code != exitOK {
		t.Fatalf("pagelight %q: exit code %d, %s", args, r.code, r.stderr)
	}
	return r.stdout
}

// fails runs the program and asks for an exit code, words on standard error and nothing on standard output.
func fails(t testing.TB, code int, stdin string, words []string, args ...string) {
	t.Helper()
	r := pagelight(t, stdin, args...)
	if r.code != code || r.stdout != "" {
		t.Errorf("pagelight %q: exit code %d, want %d; standard output %q", args, r.code, code, r.stdout)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("pagelight %q: %q does not say %q", args, r.stderr, w)
		}
	}
}

func write(t testing.TB, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// keys are the keys of a JSON object in the order in which they were written.
func keys(t testing.TB, object string) (names []string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(object))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		t.Fatalf("%q is no JSON object", object)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name.(string))
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

var commands = []string{"serve", "chat", "generate", "tokenize", "logits", "perplexity", "pull", "list", "show", "rm", "plan", "export", "doctor"}

func TestHelp(t *testing.T) {
	t.Parallel()
	all := succeeds(t, "", "--help")
	for _, c := range commands {
		if !strings.Contains(all, "\n  "+c+" ") {
			t.Errorf("--help does not name %s", c)
		}
		help := succeeds(t, "", c, "--help")
		if !strings.HasPrefix(help, "Usage: pagelight "+c) {
			t.Errorf("%s --help begins with %.40q", c, help)
		}
		for _, wrong := range []string{"PAGELIGHT_VERSION", "PAGELIGHT_JSON", "PAGELIGHT_PROMPT", "=STRING"} {
			if strings.Contains(help, wrong) {
				t.Errorf("%s --help has %q", c, wrong)
			}
		}
	}
	if v := succeeds(t, "", "--version"); v != "pagelight "+version+"\n" {
		t.Errorf("--version prints %q", v)
	}
}

// TestEnvironment: variables set up an installation; what belongs to one call cannot be set by them.
func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PAGELIGHT_VERSION": "1", "PAGELIGHT_JSON": "1", "PAGELIGHT_PROMPT": "x", "PAGELIGHT_CHAT": "x", "PAGELIGHT_OUT": "x",
		"PAGELIGHT_DEVICE": "cpu",
	} {
		t.Setenv(name, value)
	}
	if got := succeeds(t, "", "generate", "--token-ids", "5", "--max-tokens", "1"); strings.HasPrefix(got, "{") || strings.HasPrefix(got, "pagelight") {
		t.Errorf("generate printed %q", got)
	}
	t.Setenv("PAGELIGHT_DEVICE", "tpu")
	fails(t, exitUsage, "", []string{"--device", "tpu"}, "generate", "--prompt", "x")
	t.Setenv("PAGELIGHT_DEVICE", "cpu")
	t.Setenv("PAGELIGHT_MODEL", "/no/such/model")
	fails(t, exitModel, "", []string{"/no/such/model"}, "generate", "--prompt", "x")
	fails(t, exitModel, "", []string{"/no/such/model"}, "chat")
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says string
		args []string
	}{
		{"expected one of", nil},
		{"unexpected argument nonsense", []string{"nonsense"}},
		{"unknown flag --nope", []string{"generate", "--nope"}},
		{"give one of --prompt, --chat and --token-ids", []string{"generate"}},
		{"can't be used together", []string{"generate", "--prompt", "x", "--token-ids", "1"}},
		{"--max-tokens must be at least 1", []string{"generate", "--prompt", "x", "--max-tokens", "0"}},
		{"--max-tokens must be at least 1", []string{"generate", "--prompt", "x", "--max-tokens", "-3"}},
		{"--max-tokens must be at least 1", []string{"chat", "--max-tokens", "0"}},
		{"temperature: must be", []string{"generate", "--device", "cpu", "--prompt", "x", "--temperature", "-1"}},
		{"temperature: must be", []string{"generate", "--device", "cpu", "--prompt", "x", "--temperature", "nan"}},
		{"top_p: must be", []string{"generate", "--device", "cpu", "--prompt", "x", "--top-p", "1.5"}},
		{"stop: must not", []string{"generate", "--device", "cpu", "--prompt", "x", "--stop", ""}},
		{"no tokens", []string{"generate", "--device", "cpu", "--prompt", ""}},
		{`argument 3 is not valid UTF-8: "a\xff"`, []string{"generate", "--prompt", "a\xff"}},
		{"no ids", []string{"generate", "--token-ids", ""}},
		{`"x" is no token id`, []string{"generate", "--token-ids", "1,x"}},
		{"token id 8192 at position 1", []string{"generate", "--device", "cpu", "--token-ids", "1,8192"}},
		{"maximum context length is 2048 tokens, but 3001 were requested (1 in the prompt, 3000", []string{"generate", "--device", "cpu", "--token-ids", "1", "--max-tokens", "3000"}},
		{"must be at most 2048", []string{"generate", "--device", "cpu", "--prompt", "x", "--max-model-len", "4096"}},
		{"neither a number of tokens nor auto", []string{"generate", "--device", "cpu", "--prompt", "x", "--max-model-len=-1"}},
		{"no size in bytes", []string{"generate", "--prompt", "x", "--gpu-memory", "lots"}},
		{"--device must be one of", []string{"generate", "--prompt", "x", "--device", "tpu"}},
		{"--quant must be one of", []string{"generate", "--prompt", "x", "--quant", "q3"}},
		{"no such file", []string{"generate", "--chat", "/no/such/file.json"}},
		{"--file", []string{"perplexity"}},
		{"--window must be at least 2", []string{"perplexity", "--file", "x", "--window", "1"}},
		{"--limit must not be negative", []string{"perplexity", "--file", "x", "--limit=-1"}},
		{"--cases", []string{"logits", "--model", "builtin"}},
		{"give --out, --json or both", []string{"logits", "--model", "builtin", "--cases", "x"}},
		{"--port must be 0 to 65535", []string{"serve", "--port", "70000"}},
		{"--drain-timeout must not be negative", []string{"serve", "--drain-timeout=-1s"}},
		{"--max-num-overtakes must be at least 1", []string{"serve", "--max-num-overtakes", "0"}},
		{"not an origin", []string{"serve", "--port", "0", "--allowed-origins", "http://x/y"}},
		{"--out", []string{"export"}},
	} {
		fails(t, exitUsage, "", []string{c.says}, c.args...)
	}
}

func TestModelsThatDoNotOpen(t *testing.T) {
	t.Parallel()
	empty, other := t.TempDir(), write(t, "x")
	for _, c := range []struct {
		model string
		says  []string
	}{
		{"/no/such/folder", []string{"/no/such/folder", "no such folder or file", "builtin"}},
		{"synthetic:other", []string{"synthetic:other", "synthetic:ernie-4.5-0.3b"}},
		{empty, []string{empty, "config.json is missing"}},
		{other, []string{other, "neither a folder, nor"}},
	} {
		fails(t, exitModel, "", c.says, "generate", "--model", c.model, "--prompt", "x", "--device", "cpu")
		fails(t, exitModel, "", c.says, "tokenize", "--model", c.model)
	}
	fails(t, exitModel, "", []string{"needs ", " MiB)", "1048576 (1 MiB) are available", "--gpu-memory"},
		"generate", "--prompt", "x", "--device", "cpu", "--gpu-memory", "1M")
}

// TestModelsByOddNames: a file of a cache that names files by their hashes, no tokenizer, no name.
func TestModelsByOddNames(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../internal/weights/testdata/gguf/ernie-s-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	blob := write(t, string(raw))
	if out := succeeds(t, "", "show", blob); !strings.Contains(out, "path           "+blob+"\n") || !strings.Contains(out, "files          "+filepath.Base(blob)+" (311.2 KiB)\n") {
		t.Errorf("path and file of %s are not said in\n%s", blob, out)
	}
	if out := succeeds(t, "", "show", ""); !strings.Contains(out, "ernie-tiny") {
		t.Errorf("no name is not the built-in model:\n%s", out)
	}
	fails(t, exitModel, "", []string{"no tokenizer", "--json prints token ids"},
		"generate", "--model", tinyModel, "--token-ids", "1", "--max-tokens", "1", "--device", "cpu")
}

func TestGenerateJSON(t *testing.T) {
	t.Parallel()
	args := []string{"generate", "--device", "cpu", "--prompt", "Once upon a time", "--max-tokens", "5", "--json"}
	got := succeeds(t, "", append(args, "--temperature", "0")...)
	if k := keys(t, got); strings.Join(k, " ") != "token_ids text finish_reason usage" {
		t.Errorf("keys %q", k)
	}
	var out generated
	if err := json.Unmarshal([]byte(got), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.TokenIDs) != 5 || out.FinishReason != "length" || out.Text == "" {
		t.Errorf("%+v", out)
	}
	if u := out.Usage; u.PromptTokens == 0 || u.CompletionTokens != 5 || u.TotalTokens != u.PromptTokens+5 {
		t.Errorf("usage %+v", u)
	}
	if again := succeeds(t, "", append(args, "--temperature", "0")...); again != got {
		t.Errorf("temperature 0 gave %s, then %s", got, again)
	}
	seeded := func() string { return succeeds(t, "", append(args, "--temperature", "1", "--seed", "-7")...) }
	if one, two := seeded(), seeded(); one != two {
		t.Errorf("one seed gave %s, then %s", one, two)
	}
	plain := succeeds(t, "", "generate", "--device", "cpu", "--prompt", "Once upon a time", "--max-tokens", "5", "--temperature", "0")
	if plain != out.Text+"\n" {
		t.Errorf("as text %q, as JSON %q", plain, out.Text)
	}
}

// TestValuesMayBeginWithAHyphen as a list in Markdown does.
func TestValuesMayBeginWithAHyphen(t *testing.T) {
	t.Parallel()
	dashed := succeeds(t, "", "generate", "--device", "cpu", "--prompt", "- milk", "--max-tokens", "1", "--temperature", "0", "--json")
	if got := succeeds(t, "", "generate", "--device", "cpu", "--prompt=- milk", "--max-tokens", "1", "--temperature", "0", "--json"); got != dashed {
		t.Errorf("%s, %s", dashed, got)
	}
}

func TestGenerateChatFiles(t *testing.T) {
	t.Parallel()
	const turn = `{"role":"user","content":"Hello!"}`
	answer := func(stdin, file string, more ...string) generated {
		t.Helper()
		var out generated
		args := append([]string{"generate", "--device", "cpu", "--json", "--chat", file}, more...)
		if err := json.Unmarshal([]byte(succeeds(t, stdin, args...)), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := answer("", write(t, "["+turn+"]"), "--temperature", "0", "--max-tokens", "3")
	for name, got := range map[string]generated{
		"object":         answer("", write(t, `{"messages":[`+turn+`]}`), "--temperature", "0", "--max-tokens", "3"),
		"standard input": answer(" \n["+turn+"]\n", "-", "--temperature", "0", "--max-tokens", "3"),
		"request":        answer("", write(t, `{"messages":[`+turn+`],"temperature":0,"max_tokens":3}`)),
		"flag first":     answer("", write(t, `{"messages":[`+turn+`],"temperature":0,"max_tokens":9}`), "--max-tokens", "3"),
		"parts":          answer("", write(t, `[{"role":"user","content":[{"type":"text","text":"Hello!"}]}]`), "--temperature", "0", "--max-tokens", "3"),
	} {
		if got.Text != want.Text || got.Usage != want.Usage {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for says, file := range map[string]string{
		"not valid JSON":        `[{"role":`,
		"'messages' is missing": `{"prompt":"x"}`,
		"must not be empty":     `[]`,
		"messages[0].role":      `[{"role":"robot","content":"x"}]`,
		"messages[0].content":   `[{"role":"user"}]`,
		"not valid UTF-8":       "[{\"role\":\"user\",\"content\":\"\xff\"}]",
		"'tools'":               `{"messages":[` + turn + `],"tools":[{}]}`,
		"'n' must be 1":         `{"messages":[` + turn + `],"n":2}`,
	} {
		f := write(t, file)
		fails(t, exitUsage, "", []string{f, says}, "generate", "--device", "cpu", "--chat", f)
	}
	r := pagelight(t, `{"messages":[`+turn+`],"metadata":{},"n":1,"logprobs":true}`, "generate", "--device", "cpu", "--max-tokens", "1", "--chat", "-")
	if r.code != exitOK || !strings.Contains(r.stderr, "ignored: logprobs, metadata\n") {
		t.Errorf("a field that nobody understands: exit code %d, %q", r.code, r.stderr)
	}
}

func TestTokenize(t *testing.T) {
	t.Parallel()
	const texts = "\"\"\n\n\"Hello, 世界!\"\n\"a\\nb\"\n\"\\u00e9\\ud83d\\ude00\""
	ids := succeeds(t, texts, "tokenize")
	if lines := strings.Split(strings.TrimSpace(ids), "\n"); len(lines) != 4 || lines[0] != "[]" {
		t.Errorf("%q", ids)
	}
	if back := succeeds(t, ids, "tokenize", "--decode"); back != "\"\"\n\"Hello, 世界!\"\n\"a\\nb\"\n\"é😀\"\n" {
		t.Errorf("back again: %q", back)
	}
	// Every command takes the same flags.
	if got := succeeds(t, texts, "tokenize", "--device", "cpu", "--quant", "q4", "--kv", "f32", "--json"); got != ids {
		t.Errorf("with flags of the other commands %q, without %q", got, ids)
	}
	spelled := `"<s>"` + "\n"
	if got := succeeds(t, spelled, "tokenize", "--special"); got != "[1]\n" {
		t.Errorf("--special: %s", got)
	}
	if got := succeeds(t, spelled, "tokenize"); got == "[1]\n" {
		t.Errorf("a special token was made of plain text: %s", got)
	}
	if got := succeeds(t, `" 5 a 7"`, "tokenize", "--model", "synthetic:ernie-4.5-0.3b"); got != "[5,45,110,7]\n" {
		t.Errorf("synthetic: %s", got)
	}
	for stdin, says := range map[string]string{
		"5":            "line 1: no JSON string",
		"\n\"a":        "line 2: no JSON string",
		"\"a\" \"b\"":  "line 1: no JSON string",
		"null":         "line 1: null",
		"\"\xff\xfe\"": "line 1: not valid UTF-8",
	} {
		fails(t, exitUsage, stdin, []string{says}, "tokenize")
	}
	for stdin, says := range map[string]string{
		`"a"`:      "line 1: no JSON array",
		"[1.5]":    "line 1: no JSON array",
		"null":     "line 1: null",
		"[1,8192]": "id 8192 at position 1",
		"[-1]":     "id -1 at position 0",
	} {
		fails(t, exitUsage, stdin, []string{says}, "tokenize", "--decode")
	}
}

func TestPerplexity(t *testing.T) {
	t.Parallel()
	file := write(t, strings.Repeat("Once upon a time there was a cat. ", 4))
	got := succeeds(t, "", "perplexity", "--device", "cpu", "--file", file, "--window", "8", "--limit", "2", "--json")
	var out perplexityResult
	if err := json.Unmarshal([]byte(got), &out); err != nil {
		t.Fatal(err)
	}
	if out.Perplexity <= 1 || out.Windows != 2 || out.Scored != 14 || out.Window != 8 || len(out.WindowNLL) != 2 {
		t.Errorf("%s", got)
	}
	if text := succeeds(t, "", "perplexity", "--device", "cpu", "--file", file, "--limit", "1"); !strings.Contains(text, "perplexity ") {
		t.Errorf("%q", text)
	}
	bad := write(t, "a\xff")
	fails(t, exitUsage, "", []string{bad, "not valid UTF-8"}, "perplexity", "--device", "cpu", "--file", bad)
	fails(t, exitUsage, "a", []string{"at least 2 are needed"}, "perplexity", "--device", "cpu", "--file", "-")
}

// failingWriter is a full disk.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestStandardOutputThatFails(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"generate", "--device", "cpu", "--prompt", "x", "--max-tokens", "2"},
		{"generate", "--device", "cpu", "--prompt", "x", "--max-tokens", "2", "--json"},
		{"tokenize"},
		{"chat", "--device", "cpu", "--max-tokens", "2"},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), args, strings.NewReader(`"x"`), failingWriter{}, &stderr)
		if code != exitFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"tokenize"}, iotest.ErrReader(errors.New("broken wire")), io.Discard, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "broken wire") {
		t.Errorf("standard input that fails: exit code %d, %q", code, stderr.String())
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"loading":    {"generate", "--device", "cpu", "--model", "synthetic:ernie-4.5-0.3b", "--token-ids", "5"},
		"generating": {"generate", "--device", "cpu", "--prompt", "Once", "--ignore-eos", "--max-tokens", "2000"},
		"chatting":   {"chat", "--device", "cpu"},
		"tokenizing": {"tokenize"},
		"reading":    {"generate", "--chat", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
			in, held := io.Pipe()
			defer held.Close()
			var stderr bytes.Buffer
			start := time.Now()
			code := run(ctx, args, in, io.Discard, &stderr)
			if code != exitInterrupted || !strings.Contains(stderr.String(), "pagelight: interrupted") {
				t.Errorf("exit code %d, %q", code, stderr.String())
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %s to stop", took)
			}
		})
	}
}

// TestDoctor on the processor alone: adapters are those of the machine.
func TestDoctor(t *testing.T) {
	t.Parallel()
	got := succeeds(t, "", "doctor", "--device", "cpu", "--json")
	var d diagnosis
	if err := json.Unmarshal([]byte(got), &d); err != nil {
		t.Fatal(err)
	}
	if !d.OK || len(d.Devices) != 1 || d.Devices[0].Passed == 0 || d.Devices[0].Limits == nil || d.Auto == "" || len(d.WouldRun) != 2 {
		t.Errorf("%s", got)
	}
	for _, p := range d.WouldRun {
		if p.Kind != "cpu" || p.WeightBytes == 0 || p.Budget == 0 {
			t.Errorf("%+v", p)
		}
	}
	if text := succeeds(t, "", "doctor", "--device", "cpu"); !strings.Contains(text, "builtin would run on ") || !strings.Contains(text, "0 failed") {
		t.Errorf("%q", text)
	}
}
