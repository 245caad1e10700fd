package hub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

// TestListOfAnotherLibraryIsRead: with the list of huggingface_hub a snapshot that lacks weights is known to be unfinished.
func TestListOfAnotherLibraryIsRead(t *testing.T) {
	t.Parallel()
	h := &Hub{Cache: t.TempDir()}
	dir := h.snapshot(hubtest.Repo, hubtest.Commit)
	for _, name := range []string{"config.json", "tokenizer.json", "a.gguf"} {
		writeFile(t, filepath.Join(dir, name), []byte("{}"))
	}
	writeFile(t, h.ref(hubtest.Repo, "main"), []byte(hubtest.Commit))
	if m, err := h.Find(mustName(t, "hf:org/name")); err != nil || m.Format != FormatGGUF {
		t.Errorf("without a list: %+v, %v", m, err)
	}
	list := `{"format_version":1,"files":{"config.json":{"size":2,"blob_id":"` + strings.Repeat("a", 40) + `"},
		"tokenizer.json":{"size":2,"blob_id":"x"},"a.gguf":{"size":2,"blob_id":"x"},
		"model.safetensors":{"size":2,"blob_id":"x","lfs_sha256":"y","lfs_size":2,"xet_hash":"z"}}}`
	tree := h.treePath(hubtest.Repo, hubtest.Commit, false)
	writeFile(t, tree, []byte(list))
	var missing *NotCachedError
	if _, err := h.Find(mustName(t, "hf:org/name")); !errors.As(err, &missing) || missing.Why != "model.safetensors is missing" {
		t.Errorf("with a list: %v", err)
	}
	writeFile(t, filepath.Join(dir, "model.safetensors"), []byte("{}"))
	if m, err := h.Find(mustName(t, "hf:org/name")); err != nil || m.Format != FormatSafetensors {
		t.Errorf("complete: %+v, %v", m, err)
	}
	// A file of another size is not the one that was uploaded.
	writeFile(t, filepath.Join(dir, "model.safetensors"), []byte("{} "))
	if _, err := h.Find(mustName(t, "hf:org/name")); !errors.As(err, &missing) {
		t.Errorf("of another size: %v", err)
	}
	for _, damaged := range []string{"", "{", `{"format_version":2,"files":{"x":{"size":1}}}`, `{"format_version":1,"files":{"../x":{"size":1}}}`} {
		writeFile(t, tree, []byte(damaged))
		if files := h.readTree(hubtest.Repo, hubtest.Commit); files != nil {
			t.Errorf("%q was read as %v", damaged, files)
		}
	}
}

// TestOwnListIsNotTheOtherLibrarys, which would refuse a snapshot for each file that was not asked for.
func TestOwnListIsNotTheOtherLibrarys(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	mustPull(t, h, "hf:org/name")
	if _, err := os.Stat(h.treePath(hubtest.Repo, hubtest.Commit, false)); err == nil {
		t.Error("trees/ was written")
	}
	if files := h.readTree(hubtest.Repo, hubtest.Commit); len(files) != len(f.Files) {
		t.Errorf("%d files in the list, want %d", len(files), len(f.Files))
	}
}
