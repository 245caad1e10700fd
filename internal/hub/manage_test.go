package hub

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

func TestPullOfABundleTakesWhatTheManifestNames(t *testing.T) {
	t.Parallel()
	files := hubtest.FilesOf(t, builtin.FS())
	named := len(files)
	files["0000.bin"], files["README.md"] = hubtest.Noise(10, 1), []byte("# A bundle")
	f := hubtest.New(t, files)
	h := hubOf(t, f)
	p := mustPull(t, h, "hf:org/name")
	if p.Format != FormatBundle || len(p.Fetched) != named+1 {
		t.Errorf("%s, %d files, want %d", p.Format, len(p.Fetched), named+1)
	}
	if m, err := h.Find(mustName(t, "hf:org/name")); err != nil || m.Path != p.Path {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := os.Stat(filepath.Join(p.Path, "0000.bin")); err == nil {
		t.Error("a file that the manifest does not name was downloaded")
	}
}

func ggufRepo() map[string][]byte {
	return map[string][]byte{
		"name-Q4_0.gguf": hubtest.Noise(1000, 1), "name-Q8_0.gguf": hubtest.Noise(2000, 2), "sub/name-F16.gguf": hubtest.Noise(4000, 3), "mmproj-F16.gguf": hubtest.Noise(10, 4),
		"README.md": []byte("# GGUF"), "config.json": []byte("{}"), "tokenizer.json": []byte("{}"),
	}
}

func TestPullOfOneGGUF(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, ggufRepo())
	h := hubOf(t, f)
	for model, file := range map[string]string{
		"hf:org/name:name-Q4_0.gguf": "name-Q4_0.gguf", "hf:org/name:q8_0": "name-Q8_0.gguf", "hf:org/name:F16": "sub/name-F16.gguf",
	} {
		p := mustPull(t, h, model)
		if want := h.pointer(hubtest.Repo, hubtest.Commit, file); p.Path != want || p.Format != FormatGGUF {
			t.Errorf("%s: %+v", model, p.Model)
		}
		if m, err := h.Find(mustName(t, model)); err != nil || m != p.Model {
			t.Errorf("%s: found %+v, %v", model, m, err)
		}
	}
	checkSnapshot(t, h.snapshot(hubtest.Repo, hubtest.Commit), only(f.Files, "README.md", "name-Q4_0.gguf", "name-Q8_0.gguf", "sub/name-F16.gguf"))
	var several *AmbiguousError
	if _, err := h.Find(mustName(t, "hf:org/name")); !errors.As(err, &several) || len(several.Files) != 3 {
		t.Errorf("without a file: %v", err)
	}
	if _, err := h.Pull(t.Context(), mustName(t, "hf:org/name:Q5_0"), PullOptions{}); err == nil || !strings.Contains(err.Error(), "name-Q4_0.gguf (1000 B)") {
		t.Errorf("a quantization that is not there: %v", err)
	}
	// A file that is no model can be fetched by its name.
	if p := mustPull(t, h, "hf:org/name:tokenizer.json"); p.Format != FormatFile || len(p.Files) != 1 {
		t.Errorf("%+v", p)
	}
	// Nor is a name completed across a word.
	if _, err := h.Find(mustName(t, "hf:org/name:4_0")); err == nil {
		t.Error("4_0 was taken for Q4_0")
	}
}

func TestPullOfAllPartsOfAGGUF(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"q/a-Q8_0-00001-of-00002.gguf": hubtest.Noise(1000, 1), "q/a-Q8_0-00002-of-00002.gguf": hubtest.Noise(2000, 2), "a-Q4_0.gguf": hubtest.Noise(3000, 3)}
	f := hubtest.New(t, files)
	h := hubOf(t, f)
	for _, model := range []string{"hf:org/name:Q8_0", "hf:org/name:q/a-Q8_0-00002-of-00002.gguf"} {
		p := mustPull(t, h, model)
		if want := h.pointer(hubtest.Repo, hubtest.Commit, "q/a-Q8_0-00001-of-00002.gguf"); p.Path != want || len(p.Files) != 2 {
			t.Errorf("%s: %s, %d files", model, p.Path, len(p.Files))
		}
	}
	checkSnapshot(t, h.snapshot(hubtest.Repo, hubtest.Commit), only(files, "q/a-Q8_0-00001-of-00002.gguf", "q/a-Q8_0-00002-of-00002.gguf"))
	list, err := h.Cached()
	if err != nil || len(list) != 1 || list[0].Bytes != 3000 || list[0].Model != "hf:org/name:q/a-Q8_0-00001-of-00002.gguf" {
		t.Errorf("%+v, %v", list, err)
	}
	r, err := h.PlanRemoval(mustName(t, "hf:org/name:Q8_0"), false)
	if err != nil || r.Bytes != 3000 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPreviewDownloadsNothing(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	p, err := h.Preview(t.Context(), mustName(t, "hf:org/name"), PullOptions{})
	if err != nil || len(p.Files) != len(wanted) || len(p.Fetched) != len(wanted) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := os.Stat(h.Cache); err == nil || f.Count("/resolve/") > 0 {
		t.Error("something was written or fetched")
	}
}

func TestCachedListsModels(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, ggufRepo())
	h := hubOf(t, f)
	if list, err := h.Cached(); err != nil || len(list) != 0 {
		t.Errorf("an empty cache: %v, %v", list, err)
	}
	mustPull(t, h, "hf:org/name:Q4_0")
	mustPull(t, h, "hf:org/name:Q8_0")
	g := hubtest.New(t, hubtest.Checkpoint())
	g.At = strings.Repeat("ab", 20)
	other := &Hub{Cache: filepath.Join(t.TempDir(), "hub"), Endpoint: g.URL}
	if err := os.MkdirAll(other.Cache, 0o777); err != nil {
		t.Fatal(err)
	}
	mustPull(t, other, "hf:org/name@refs/pr/1")
	if err := os.Rename(filepath.Join(other.Cache, "models--org--name"), filepath.Join(h.Cache, "models--org--weights")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(h.Cache, "models--org--half", "blobs", "x"+incomplete), hubtest.Noise(77, 1))
	writeFile(t, filepath.Join(h.Cache, "datasets--org--data", "blobs", "x"), hubtest.Noise(77, 1))
	list, err := h.Cached()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Model+" "+string(e.Format)+" "+strings.Join(e.Refs, ","))
		if e.Format == "" && (e.Problem == "" || e.Bytes != 77) {
			t.Errorf("%+v", e)
		}
	}
	want := []string{
		"hf:org/half  ", "hf:org/name:name-Q4_0.gguf gguf main", "hf:org/name:name-Q8_0.gguf gguf main", "hf:org/weights@refs/pr/1 safetensors refs/pr/1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if e := list[3]; e.Bytes < 3<<20 || e.Bytes > 3<<20+10_000 {
		t.Errorf("%d bytes", e.Bytes)
	}
}

func TestRemoveFreesWhatNobodyElseUses(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	old := mustPull(t, h, "hf:org/name")
	f.At = strings.Repeat("ab", 20)
	f.Files["config.json"] = []byte(`{"model_type":"llama"}`)
	mustPull(t, h, "hf:org/name")

	r, err := h.PlanRemoval(mustName(t, "hf:org/name@"+hubtest.Commit), false)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(len(`{"model_type":"ernie4_5"}`)); r.Bytes != want {
		t.Errorf("frees %d bytes, want %d: the others are shared", r.Bytes, want)
	}
	if err := h.Remove(r); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old.Path); err == nil {
		t.Error("the snapshot is still there")
	}
	m, err := h.Find(mustName(t, "hf:org/name"))
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, m.Path, only(f.Files, wanted...))

	r, err = h.PlanRemoval(mustName(t, "hf:org/name"), true)
	if err != nil || r.Bytes < 3<<20 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := h.Remove(r); err != nil {
		t.Fatal(err)
	}
	if list, err := h.Cached(); err != nil || len(list) != 0 {
		t.Errorf("remains %v, %v", list, err)
	}
	var missing *NotCachedError
	if _, err := h.PlanRemoval(mustName(t, "hf:org/name"), true); !errors.As(err, &missing) {
		t.Errorf("twice: %v", err)
	}
}

func TestRemoveOneFile(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, ggufRepo())
	h := hubOf(t, f)
	mustPull(t, h, "hf:org/name:Q4_0")
	kept := mustPull(t, h, "hf:org/name:Q8_0")
	r, err := h.PlanRemoval(mustName(t, "hf:org/name:Q4_0"), false)
	if err != nil || r.Bytes != 1000 || len(r.Files) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := h.Remove(r); err != nil {
		t.Fatal(err)
	}
	if m, err := h.Find(mustName(t, "hf:org/name:Q8_0")); err != nil || m.Path != kept.Path {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := h.Find(mustName(t, "hf:org/name:Q4_0")); err == nil {
		t.Error("is still there")
	}
}

// TestRemoveIsRefusedDuringAPull: it does not wait.
func TestRemoveIsRefusedDuringAPull(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	mustPull(t, h, "hf:org/name")
	unlock, err := h.shareRepo(t.Context(), hubtest.Repo)
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.PlanRemoval(mustName(t, "hf:org/name"), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(r); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
	unlock()
	if err := h.Remove(r); err != nil {
		t.Error(err)
	}
}

// TestLinksThatLeadOutOfTheCache: removing a revision takes the link away and leaves what it leads to.
func TestLinksThatLeadOutOfTheCache(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	p := mustPull(t, h, "hf:org/name")
	precious := filepath.Join(t.TempDir(), "precious")
	writeFile(t, precious, []byte("x"))
	if err := os.Symlink(precious, filepath.Join(p.Path, "link")); err != nil {
		t.Fatal(err)
	}
	for _, all := range []bool{false, true} {
		r, err := h.PlanRemoval(mustName(t, "hf:org/name@"+hubtest.Commit), all)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Remove(r); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(precious); err != nil {
			t.Fatal(err)
		}
		mustPull(t, h, "hf:org/name")
	}
}

// TestCacheOfOtherLibraries: huggingface_hub before version 2 keeps no list of files, and downloads what it needs itself.
func TestCacheOfOtherLibraries(t *testing.T) {
	t.Parallel()
	h := &Hub{Cache: t.TempDir()}
	dir := h.snapshot(hubtest.Repo, hubtest.Commit)
	writeFile(t, filepath.Join(dir, "config.json"), []byte("{}"))
	writeFile(t, h.ref(hubtest.Repo, "main"), []byte(hubtest.Commit))
	var missing *NotCachedError
	if _, err := h.Find(mustName(t, "hf:org/name")); !errors.As(err, &missing) {
		t.Errorf("the configuration alone: %v", err)
	}
	writeFile(t, filepath.Join(dir, "model.safetensors"), []byte("{}"))
	if m, err := h.Find(mustName(t, "hf:org/name")); err != nil || m.Path != dir {
		t.Errorf("%+v, %v", m, err)
	}
	writeFile(t, h.ref(hubtest.Repo, "main"), []byte("../../x"))
	if _, err := h.Find(mustName(t, "hf:org/name")); err == nil || errors.As(err, &missing) {
		t.Errorf("a ref that is no commit: %v", err)
	}
}
