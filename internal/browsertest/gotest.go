package browsertest

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

//go:embed testdata
var testdata embed.FS

// GoTest builds the tests of a package for js/wasm and runs them in a web worker of a tab, with static/gpu.js loaded and
// without a file system. It gives what they printed; a failure of theirs fails t.
func (b *Browser) GoTest(t testing.TB, pkg string, timeout time.Duration, args ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "test.wasm")
	goWASM(t, "test", "-c", "-o", binary, pkg)
	code, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	gpujs, err := os.ReadFile(filepath.Join(Root(t), "static", "gpu.js"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := fs.Sub(testdata, "testdata")
	if err != nil {
		t.Fatal(err)
	}
	base := Serve(t, Mount{"/", pages}, Mount{"/dist/", fstest.MapFS{
		"test.wasm":    &fstest.MapFile{Data: code},
		"gpu.js":       &fstest.MapFile{Data: gpujs},
		"wasm_exec.js": &fstest.MapFile{Data: wasmExec(t)},
	}})
	list, err := json.Marshal(append([]string{"test.wasm", "-test.timeout=" + timeout.String()}, args...))
	if err != nil {
		t.Fatal(err)
	}
	tab := b.Open(t, base+"/gotest.html?args="+url.QueryEscape(string(list)))

	type state struct {
		Output string `json:"output"`
		Done   bool   `json:"done"`
		Code   int    `json:"code"`
		Error  string `json:"error"`
	}
	var s state
	ctx, cancel := context.WithTimeout(tab.Ctx, timeout+30*time.Second)
	defer cancel()
	err = waitFor(ctx, 50*time.Millisecond, func() (bool, error) {
		var err error
		s, err = TryEval[state](tab, 20*time.Second, "globalThis.goTest")
		return s.Done, err
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%w; what it said so far follows", err)
	case s.Error != "":
		err = fmt.Errorf("%s", s.Error)
	case s.Code != 0:
		err = fmt.Errorf("exit status %d", s.Code)
	}
	if err != nil {
		t.Fatalf("%s in the browser: %v\n%s", pkg, err, s.Output)
	}
	if !strings.Contains(s.Output, "PASS") {
		t.Fatalf("%s in the browser ran no test:\n%s", pkg, s.Output)
	}
	return s.Output
}
