package local

import (
	"errors"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/hub"
	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

// TestModelOfTheHub: opening asks no network; Pull does, and tells how far it is.
func TestModelOfTheHub(t *testing.T) {
	s := hubtest.New(t, hubtest.FilesOf(t, builtin.FS()))
	for name, value := range map[string]string{"HF_ENDPOINT": s.URL, "HF_HOME": t.TempDir(), "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "", "HF_TOKEN": ""} {
		t.Setenv(name, value)
	}
	const model = "hf:org/name"
	var missing *hub.NotCachedError
	if _, err := OpenModel(model, "none", nil); !errors.As(err, &missing) || s.Count("") != 0 {
		t.Errorf("before: %v, %d requests", err, s.Count(""))
	}
	var last engine.Progress
	if err := Pull(t.Context(), model, func(p engine.Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	if last.Phase != engine.PhaseDownload || last.Done != last.Total || last.Total < 11_000_000 {
		t.Errorf("the last progress is %+v", last)
	}
	asked := s.Count("")
	src, err := OpenModel(model, "none", nil)
	if err != nil {
		t.Fatal(err)
	}
	if name := src.Config().Name; name != "ernie-tiny" {
		t.Errorf("its name is %q", name)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	if s.Count("") != asked {
		t.Error("opening asked the network")
	}
	if err := Pull(t.Context(), model+":manifest.json", nil); err != nil {
		t.Error(err)
	}
	if _, err := OpenModel(model+":manifest.json", "none", nil); err == nil || !strings.Contains(err.Error(), "manifest.json is no model") {
		t.Errorf("a file that is no model: %v", err)
	}
	for _, wrong := range []string{"hf:", "hf:a/b/c", "hf:org/name@"} {
		if _, err := OpenModel(wrong, "none", nil); err == nil {
			t.Errorf("%q was opened", wrong)
		}
		if err := Pull(t.Context(), wrong, nil); err == nil {
			t.Errorf("%q was pulled", wrong)
		}
	}
}
