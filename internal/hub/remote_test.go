package hub

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

func TestRemoteReadsByRanges(t *testing.T) {
	t.Parallel()
	s := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, s)
	r, err := h.Remote(t.Context(), mustName(t, "hf:org/name"))
	if err != nil || r.Format != FormatSafetensors || len(r.Parts) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, name := range []string{"config.json", "model.safetensors"} {
		f, err := r.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		want := s.Files[name]
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(want))
		}
		for _, off := range []int{0, 1, len(want) / 3, len(want) - 3} {
			p := make([]byte, min(2<<20, len(want)-off))
			if n, err := f.(io.ReaderAt).ReadAt(p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, want[off:off+n]) {
				t.Errorf("%s at %d: %d bytes, %v", name, off, n, err)
			}
		}
		if n, err := f.(io.ReaderAt).ReadAt(make([]byte, 8), int64(len(want)-3)); n != 3 || !errors.Is(err, io.EOF) {
			t.Errorf("%s past its end: %d bytes, %v", name, n, err)
		}
	}
	s.Forget()
	f, err := r.Open("model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.(io.ReaderAt).ReadAt(make([]byte, 8), 0); err != nil {
		t.Fatal(err)
	}
	if got := s.BytesOf("model.safetensors"); got != remoteBlock {
		t.Errorf("%d bytes were sent for a few, want %d", got, remoteBlock)
	}
	if _, err := r.Open("nope"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := os.Stat(h.Cache); err == nil {
		t.Error("something was written to the cache")
	}
	s.NoRange = true
	f, err = r.Open("model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.(io.ReaderAt).ReadAt(make([]byte, 8), 0); err == nil || !strings.Contains(err.Error(), "gives no parts of files") {
		t.Errorf("a server without ranges: %v", err)
	}
}
