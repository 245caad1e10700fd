package browsertest

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The browser driver's own tests, on the software adapter that every Chromium has.
func TestDriver(t *testing.T) {
	b := Start(t, SwiftShader)
	args := []string{"-test.v"}
	if run := os.Getenv("DRIVER_RUN"); run != "" {
		args = append(args, "-test.run="+run)
	}
	out := b.GoTest(t, "./internal/gpu/webgpujs", 3*time.Minute, args...)
	if strings.Contains(out, "--- SKIP") {
		t.Error("a test was skipped in the browser")
	}
	t.Log("\n" + out)
}
