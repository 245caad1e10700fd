package bench

import "runtime/debug"

// Commit is the commit of the source that a program was built from: what the linker was told, else what the go command noted, and "" where
// neither knows. "-dirty" follows where files had been changed since.
func Commit(linked string) string {
	info, ok := debug.ReadBuildInfo()
	if linked != "" || !ok {
		return linked
	}
	return noted(info.Settings)
}

func noted(settings []debug.BuildSetting) (commit string) {
	dirty := ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}
