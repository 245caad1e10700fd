package bench

import (
	"runtime/debug"
	"testing"
)

func TestCommit(t *testing.T) {
	if c := Commit("cafe"); c != "cafe" {
		t.Errorf("the linker's is %q", c)
	}
	for _, c := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, ""},
		{[]debug.BuildSetting{{Key: "vcs.revision", Value: "beef"}, {Key: "vcs.modified", Value: "false"}}, "beef"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "beef"}}, "beef-dirty"},
	} {
		if got := noted(c.settings); got != c.want {
			t.Errorf("%+v: %q, want %q", c.settings, got, c.want)
		}
	}
}
