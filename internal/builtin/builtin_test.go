package builtin

import (
	"bytes"
	"io/fs"
	"os"
	"testing"

	"github.com/pagelight/pagelight/internal/weights"
)

// maxBytes is what the built-in model may add to the executable and to a page's download.
const maxBytes = 12_000_000

func TestOpenReadsEverything(t *testing.T) {
	t.Parallel()
	src, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := src.Config()
	if c.Name != "ernie-tiny" || c.VocabSize != 8192 || len(c.EOS) != 2 || c.EOS[0] != 4 || c.EOS[1] != 2 {
		t.Errorf("config %+v", c)
	}
	count := 0
	for _, s := range weights.Tensors(c) {
		info, err := src.Info(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := "q4g32"
		switch {
		case s.Vector:
			want = "f32"
		case s.Name == "model.embed_tokens.weight":
			want = "q8g32"
		}
		if info.Format.String() != want {
			t.Errorf("%s is %v, want %s", s.Name, info.Format, want)
		}
		for lo, hi := range weights.Pieces(src, s.Name, info, 1<<20) {
			if _, err := src.Rows(t.Context(), s.Name, lo, hi); err != nil { // checks the shard's hash
				t.Fatal(err)
			}
		}
		count += s.Rows * s.K
	}
	if count != 15735168 { // as the model card says
		t.Errorf("%d weights, want 15735168", count)
	}
	for _, name := range []string{"tokenizer.model", "tokenizer_config.json", "generation_config.json", "MODEL_CARD.md", "SOURCES.md"} {
		got, err := src.File(t.Context(), name)
		if err != nil || len(got) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if name == "MODEL_CARD.md" || name == "SOURCES.md" {
			beside, err := os.ReadFile(name)
			if err != nil || !bytes.Equal(beside, got) {
				t.Errorf("%s in the bundle and beside it differ (%v)", name, err)
			}
		}
	}
}

func TestFSIsSmall(t *testing.T) {
	t.Parallel()
	entries, err := fs.ReadDir(FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var all int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all += info.Size()
	}
	if all > maxBytes {
		t.Errorf("the bundle has %d bytes, want at most %d", all, maxBytes)
	}
}
