//go:build unix

package local

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTuningThatIsAPipe: reading it would wait for somebody who writes.
func TestTuningThatIsAPipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe.json")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := readTuning(file); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v", err)
	}
}
