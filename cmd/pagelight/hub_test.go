package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vbauerster/mpb/v8"

	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/hub"
	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

// hubWithBundle is a hub whose one repository is the built-in model, and an environment in which it is the hub.
func hubWithBundle(t testing.TB) *hubtest.Server {
	t.Helper()
	files := hubtest.FilesOf(t, builtin.FS())
	files["README.md"] = []byte("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n")
	return useHub(t, hubtest.New(t, files))
}

func useHub(t testing.TB, s *hubtest.Server) *hubtest.Server {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{
		"HF_ENDPOINT": s.URL, "HF_HOME": home, "HF_HUB_CACHE": "", "HF_TOKEN": "", "HF_TOKEN_PATH": "", "HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "",
	} {
		t.Setenv(name, value)
	}
	return s
}

func TestModelOfTheHubFromPullToRm(t *testing.T) {
	s := hubWithBundle(t)
	const model = "hf:org/name"
	if r := pagelight(t, "", "list"); r.code != exitOK || r.stdout != "" || !strings.Contains(r.stderr, "no models in ") {
		t.Errorf("list of nothing: %+v", r)
	}
	fails(t, exitModel, "", []string{"hf:org/name is not in the cache", "pagelight pull hf:org/name"}, "show", model)
	fails(t, exitModel, "", []string{"hf:org/name is not in the cache"}, "rm", "--yes", model)
	if s.Count("/resolve/") > 0 {
		t.Error("something was downloaded that nobody asked for")
	}

	if got := succeeds(t, "", "pull", "--dry-run", model); !strings.Contains(got, "manifest.json (") || !strings.HasSuffix(got, " would be downloaded\n") {
		t.Errorf("pull --dry-run: %q", got)
	}
	path := strings.TrimSpace(succeeds(t, "", "pull", model))
	if want := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--org--name", "snapshots", hubtest.Commit); path != want {
		t.Errorf("pull printed %q, want %q", path, want)
	}
	r := pagelight(t, "", "pull", model, "--json")
	var p pulled
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || p.Path != path || p.Format != "bundle" || p.Downloaded != 0 || p.Bytes == 0 {
		t.Errorf("pull --json: %v, %+v", err, r)
	}

	t.Setenv("HF_HUB_OFFLINE", "1")
	asked := s.Count("")
	args := []string{"--device", "cpu", "--prompt", "Once upon a time", "--max-tokens", "5", "--temperature", "0"}
	if got, want := succeeds(t, "", append([]string{"generate", "--model", model}, args...)...), succeeds(t, "", append([]string{"generate"}, args...)...); got != want {
		t.Errorf("generate from the cache: %q, want %q", got, want)
	}
	var shown shown
	if err := json.Unmarshal([]byte(succeeds(t, "", "show", "--json", model)), &shown); err != nil {
		t.Fatal(err)
	}
	if shown.Parameters != 15735168 || shown.Architecture != "ernie4_5" || shown.ChatTemplate != "yes" || shown.Path != path || len(shown.Files) != len(s.Files) {
		t.Errorf("%+v", shown)
	}
	var list []hub.Entry
	if err := json.Unmarshal([]byte(succeeds(t, "", "list", "--json")), &list); err != nil || len(list) != 1 || list[0].Model != model || list[0].Format != hub.FormatBundle {
		t.Errorf("%v, %+v", err, list)
	}
	if text := succeeds(t, "", "list"); !strings.Contains(text, "hf:org/name  0123456789ab  bundle") {
		t.Errorf("list: %q", text)
	}
	fails(t, exitFailed, "", []string{"HF_HUB_OFFLINE"}, "pull", model)
	if s.Count("") != asked {
		t.Error("the network was asked with HF_HUB_OFFLINE=1")
	}

	fails(t, exitUsage, "", []string{"give --yes"}, "rm", model)
	fails(t, exitUsage, "", []string{"only models named hf:ORG/NAME can be removed"}, "rm", "--yes", path)
	if got := succeeds(t, "", "rm", "--yes", model); !strings.HasPrefix(got, "removed hf:org/name, 11.") {
		t.Errorf("rm: %q", got)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("is still there")
	}
	fails(t, exitModel, "", []string{"is not in the cache", "HF_HUB_OFFLINE is set"}, "generate", "--model", model, "--prompt", "x")
	fails(t, exitModel, "", []string{"is not in the cache", "HF_HUB_OFFLINE is set"}, "plan", model)
}

// TestGGUFOfTheHub: one file of several is chosen by its quantization, pulled, shown and run.
func TestGGUFOfTheHub(t *testing.T) {
	files := map[string][]byte{"README.md": []byte("---\nlicense: mit\n---\n")}
	for _, name := range []string{"ernie-s-q4_0.gguf", "ernie-s-q8_0.gguf"} {
		raw, err := os.ReadFile(filepath.Join("../../internal/weights/testdata/gguf", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = raw
	}
	useHub(t, hubtest.New(t, files))
	const model = "hf:org/name:Q8_0"
	path := strings.TrimSpace(succeeds(t, "", "pull", model))
	if filepath.Base(path) != "ernie-s-q8_0.gguf" {
		t.Errorf("pull printed %q", path)
	}
	var shown shown
	if err := json.Unmarshal([]byte(succeeds(t, "", "show", "--json", model)), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Files) != 1 || shown.Files[0].Name != "ernie-s-q8_0.gguf" || shown.Formats["q8g32"] == 0 || shown.Formats["q4g32"] != 0 || shown.Path != path {
		t.Errorf("%+v", shown)
	}
	args := []string{"--device", "cpu", "--token-ids", "5,6,7", "--max-tokens", "3", "--temperature", "0", "--json"}
	if got, want := succeeds(t, "", append([]string{"generate", "--model", model}, args...)...), succeeds(t, "", append([]string{"generate", "--model", path}, args...)...); got != want {
		t.Errorf("by name %q, by path %q", got, want)
	}
	if got := succeeds(t, "", "list"); !strings.Contains(got, "hf:org/name:ernie-s-q8_0.gguf  0123456789ab  gguf") || strings.Contains(got, "q4_0") {
		t.Errorf("list: %q", got)
	}
	succeeds(t, "", "pull", "hf:org/name:Q4_0")
	if got := succeeds(t, "", "rm", "--yes", model); !strings.HasPrefix(got, "removed hf:org/name:Q8_0, 311.2 KiB") {
		t.Errorf("rm: %q", got)
	}
	fails(t, exitModel, "", []string{"is not in the cache"}, "show", model)
	succeeds(t, "", "show", "hf:org/name:Q4_0")
}

// TestPlanBeforeTheDownload: the numbers are those of the model on the disk, and next to nothing is fetched.
func TestPlanBeforeTheDownload(t *testing.T) {
	gguf, err := os.ReadFile("../../internal/weights/testdata/gguf/ernie-s-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		local string
	}{
		"bundle":      {hubtest.FilesOf(t, builtin.FS()), "builtin"},
		"safetensors": {hubtest.FilesOf(t, os.DirFS("../../internal/model/testdata/ernie-gptq")), "../../internal/model/testdata/ernie-gptq"},
		"gguf":        {map[string][]byte{"a.gguf": gguf}, "../../internal/weights/testdata/gguf/ernie-s-q8_0.gguf"},
	} {
		t.Run(name, func(t *testing.T) {
			useHub(t, hubtest.New(t, c.files))
			for _, quant := range []string{"none", "q4"} {
				var got, want planReport
				for model, to := range map[string]*planReport{"hf:org/name": &got, c.local: &want} {
					if err := json.Unmarshal([]byte(succeeds(t, "", "plan", "--json", "--quant", quant, model)), to); err != nil {
						t.Fatal(err)
					}
				}
				if got.Model, want.Model = "", ""; fmt.Sprint(got) != fmt.Sprint(want) || got.Weights == 0 {
					t.Errorf("%s: %+v, want %+v", quant, got, want)
				}
			}
			if _, err := os.Stat(filepath.Join(os.Getenv("HF_HOME"), "hub")); err == nil {
				t.Error("something was downloaded")
			}
		})
	}
	useHub(t, hubtest.New(t, hubtest.Checkpoint()))
	fails(t, exitModel, "", []string{"there is no repository org/other"}, "plan", "hf:org/other")
}

// TestCommandsDownloadWhatTheyOpen tells where there is no terminal what they do, in lines.
func TestCommandsDownloadWhatTheyOpen(t *testing.T) {
	hubWithBundle(t)
	r := pagelight(t, `"Hello"`, "tokenize", "--model", "hf://org/name")
	if r.code != exitOK || r.stdout != succeeds(t, `"Hello"`, "tokenize") {
		t.Errorf("%+v", r)
	}
	for _, line := range []string{"hf:org/name is not in the cache; downloading it to ", "downloading 10 files, 11.", "manifest.json (25."} {
		if !strings.Contains(r.stderr, line) {
			t.Errorf("%q does not say %q", r.stderr, line)
		}
	}
	if strings.Contains(r.stderr, "\r") || strings.Contains(r.stderr, "\x1b") {
		t.Errorf("%q has what only a terminal understands", r.stderr)
	}
}

// TestBarsOfADownload moves bars from many goroutines while they are drawn and lines are written: nobody waits for ever.
func TestBarsOfADownload(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	v := newDownloadView(&out, nil)
	v.bars = newBars(&out, mpb.WithAutoRefresh())
	var files []hub.File
	for i := range 8 {
		files = append(files, hub.File{Path: fmt.Sprintf("file-%d", i), Size: 100})
	}
	v.Plan(files)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var group sync.WaitGroup
		for _, f := range files {
			group.Go(func() {
				v.Begin(f, 0)
				for n := range int64(101) {
					v.Advance(f, n)
					if n%20 == 0 {
						v.Note(f, "dropped")
						time.Sleep(20 * time.Millisecond)
					}
				}
				v.End(f, nil)
			})
		}
		group.Wait()
		v.close(nil)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the bars hang")
	}
	for _, text := range []string{"8 files", "file-3: dropped\n", " of 100 B ["} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q does not show %q", out.String(), text)
		}
	}
}

func TestRmAsks(t *testing.T) {
	hubWithBundle(t)
	succeeds(t, "", "pull", "hf:org/name")
	for _, answer := range []string{"\n", "n\n", "", "y\n"} {
		var out strings.Builder
		a := &app{ctx: t.Context(), stdin: strings.NewReader(answer), stdout: &out, stderr: &out, person: true}
		if err := (&rmCmd{Models: []string{"hf:org/name"}}).Run(a); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), "remove hf:org/name (11.") || strings.Contains(out.String(), "removed") != (answer == "y\n") {
			t.Errorf("%q: %q", answer, out.String())
		}
	}
}

func TestWrongCallsOfHubCommands(t *testing.T) {
	s := useHub(t, hubtest.New(t, map[string][]byte{"a-Q4_0.gguf": make([]byte, 100), "a-Q8_0.gguf": make([]byte, 200)}))
	for _, c := range []struct {
		code int
		says []string
		args []string
	}{
		{exitUsage, []string{"expected"}, []string{"pull"}},
		{exitUsage, []string{"want hf:ORG/NAME"}, []string{"pull", "org/name"}},
		{exitUsage, []string{`"a/b/c" is not the name of a repository`}, []string{"pull", "hf:a/b/c"}},
		{exitUsage, []string{"--jobs must be 1 to 64"}, []string{"pull", "hf:org/name", "-j", "0"}},
		{exitUsage, []string{"several models", "a-Q4_0.gguf (100 B)", "a-Q8_0.gguf (200 B)", "hf:org/name:a-Q4_0.gguf"}, []string{"pull", "hf:org/name"}},
		{exitFailed, []string{"there is no repository org/other"}, []string{"pull", "hf:org/other"}},
		{exitFailed, []string{`no branch, tag or commit "v2"`}, []string{"pull", "hf:org/name@v2"}},
		{exitFailed, []string{`no file "b.gguf"`}, []string{"pull", "hf:org/name:b.gguf"}},
		{exitModel, []string{"there is no repository org/other"}, []string{"generate", "--model", "hf:org/other", "--prompt", "x"}},
		{exitUsage, []string{"is not the name of a repository"}, []string{"generate", "--model", "hf:", "--prompt", "x"}},
		{exitUsage, []string{"expected"}, []string{"rm"}},
		{exitUsage, []string{"expected"}, []string{"show"}},
	} {
		fails(t, c.code, "", c.says, c.args...)
	}
	t.Setenv("HF_ENDPOINT", "mirror.example")
	fails(t, exitUsage, "", []string{"HF_ENDPOINT", "https://huggingface.co"}, "pull", "hf:org/name")
	t.Setenv("HF_ENDPOINT", s.URL)
	s.Token = "hf_other"
	t.Setenv("HF_TOKEN", "hf_secret")
	fails(t, exitFailed, "", []string{"hf:org/name is gated", "accept its licence at " + s.URL + "/org/name"}, "pull", "hf:org/name")
}

func TestShow(t *testing.T) {
	t.Parallel()
	text := succeeds(t, "", "show", "builtin")
	for _, line := range []string{
		"model          ernie-tiny\n", "architecture   ernie4_5\n", "parameters     15735168 (15.7 M)\n", "context        2048 tokens\n",
		"weights        10.9 MiB: q4g32 7.5 MiB, q8g32 3.375 MiB, f32 25.5 KiB\n", "tokenizer      SentencePiece (tokenizer.model)\n",
		"chat template  yes\n", " on a GPU (weights 10.9 MiB, KV cache 512 MiB) of a budget of 8 GiB", "manifest.json (25.54 KiB)\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q does not say %q", text, line)
		}
	}
	if text := succeeds(t, "", "show", "synthetic:ernie-4.5-0.3b"); !strings.Contains(text, "synthetic, for speed tests") {
		t.Errorf("%q", text)
	}
	fails(t, exitModel, "", []string{"/no/such/model"}, "show", "/no/such/model")
}

func TestLicenceOfAModelCard(t *testing.T) {
	t.Parallel()
	for card, want := range map[string]string{
		"---\nlicense: apache-2.0\n---\n":                    "apache-2.0",
		"---\r\ntags:\r\n- x\r\nlicense: \"mit\"\r\n---\r\n": "mit",
		"---\nlicense: other\nlicense_name: llama3\n---\n":   "llama3",
		"# A model\n\nlicense: mit\n":                        "",
		"---\nbase_model: x\n---\nlicense: mit\n":            "",
		"":                                 "",
		"---\nlicense: apache-2.0\nno end": "apache-2.0",
		"---\nwidget:\n  license: nested\nlicense: cc-by-4.0\n---": "cc-by-4.0",
	} {
		if got := cardLicence(card); got != want {
			t.Errorf("%q: %q, want %q", card, got, want)
		}
	}
}
