// Package browsertest drives headless Chromium from Go tests: it starts the browser with WebGPU on a software adapter, serves
// folders to it, opens tabs, and runs test binaries that were built for js/wasm inside a web worker.
//
// A missing browser skips a test on a laptop and fails it where CI=true or REQUIRE_GPU=1. $CHROME names the browser to use.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Adapter says which WebGPU adapter the browser shall offer.
type Adapter string

// The adapters.
const (
	SwiftShader Adapter = "swiftshader" // on the processor, the same everywhere
	Hardware    Adapter = "hardware"    // what the machine has
	None        Adapter = "none"        // navigator.gpu exists and gives no adapter
)

// InsecureHost is a name for 127.0.0.1 that the browser does not take for a secure origin.
const InsecureHost = "insecure.test"

// Required says whether a missing browser is a failure.
func Required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("REQUIRE_GPU") == "1"
}

// Find gives the path of the browser, or "".
func Find() string {
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chromium-headless-shell"}
	if name := os.Getenv("CHROME"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Browser is a running Chromium. Its methods may be used by several tests at a time.
type Browser struct {
	ctx context.Context
}

// Start starts a browser that ends with the test.
func Start(t testing.TB, adapter Adapter) *Browser {
	t.Helper()
	path := Find()
	if path == "" {
		if Required() {
			t.Fatal("no Chromium found, and this run requires one; set $CHROME")
		}
		t.Skip("no Chromium found; set $CHROME")
	}
	dir, err := os.MkdirTemp("", "pagelight-browser-") //nolint:usetesting // the browser's helpers write for a moment after it ended, over which t.TempDir fails the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 50 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("cannot remove %s", dir)
	})
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.NoFirstRun,
		chromedp.Flag("headless", "new"),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-background-timer-throttling", true), chromedp.Flag("disable-renderer-backgrounding", true),
		chromedp.Flag("disable-hang-monitor", true), chromedp.Flag("disable-default-apps", true),
		chromedp.Flag("host-resolver-rules", "MAP "+InsecureHost+" 127.0.0.1"),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.WindowSize(1280, 800),
	}
	switch adapter {
	case SwiftShader:
		opts = append(opts, chromedp.Flag("enable-unsafe-webgpu", true), chromedp.Flag("use-webgpu-adapter", "swiftshader"))
	case Hardware:
		opts = append(opts, chromedp.Flag("enable-unsafe-webgpu", true), chromedp.Flag("ignore-gpu-blocklist", true),
			chromedp.Flag("enable-features", "Vulkan"), chromedp.Flag("use-angle", "vulkan"), chromedp.Flag("disable-vulkan-surface", true))
	case None:
	default:
		t.Fatalf("BUG: adapter %q", adapter)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("cannot start %s: %v", path, err)
	}
	return &Browser{ctx: ctx}
}

// Tab is one page of a browser. Ctx is its chromedp context, for what this type does not offer.
type Tab struct {
	Ctx context.Context

	mu      sync.Mutex
	console []string
}

// Open opens a page in a new tab. It is closed with the test; what its console said is logged when the test failed.
func (b *Browser) Open(t testing.TB, url string) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	tab := &Tab{Ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	messages := chromedp.Console(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			tab.mu.Lock()
			tab.console = append(tab.console, fmt.Sprintf("%s: %s", m.Type, m.Text))
			tab.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if t.Failed() {
			for _, line := range tab.Console() {
				t.Log("console ", line)
			}
		}
	})
	tab.Navigate(t, url)
	return tab
}

// Navigate loads another page in the tab.
func (tab *Tab) Navigate(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab.Ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
		t.Fatalf("open %s: %v", url, err)
	}
}

// Console gives what the page's console said so far, with the kind of message in front.
func (tab *Tab) Console() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return append([]string(nil), tab.console...)
}

// Eval runs JavaScript in a tab and gives its value; a promise is awaited.
func Eval[T any](t testing.TB, tab *Tab, timeout time.Duration, script string) T {
	t.Helper()
	v, err := TryEval[T](tab, timeout, script)
	if err != nil {
		t.Fatalf("%v\nin script:\n%s", err, script)
	}
	return v
}

// TryEval is Eval for scripts that may fail.
func TryEval[T any](tab *Tab, timeout time.Duration, script string) (T, error) {
	ctx, cancel := context.WithTimeout(tab.Ctx, timeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// Mount is a folder and the path below which it is served.
type Mount struct {
	Path string // "/" or "/dir/"
	FS   fs.FS
}

// contentSecurityPolicy is as strict as the page's own and, unlike the host's header, asks workers for trusted types too.
const contentSecurityPolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; worker-src 'self'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types pagelight"

// Serve serves folders under headers like those of Pagelight itself, and gives the address without a final slash.
func Serve(t testing.TB, mounts ...Mount) string {
	t.Helper()
	return ServeThrough(t, func(next http.Handler) http.Handler { return next }, mounts...)
}

// ServeThrough is Serve with a handler around what is served.
func ServeThrough(t testing.TB, wrap func(next http.Handler) http.Handler, mounts ...Mount) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, m := range mounts {
		mux.Handle(m.Path, http.StripPrefix(strings.TrimSuffix(m.Path, "/"), files(m.FS)))
	}
	server := httptest.NewServer(wrap(mux))
	t.Cleanup(func() {
		server.CloseClientConnections() // a request may wait for ever
		server.Close()
	})
	return server.URL
}

func files(fsys fs.FS) http.Handler {
	handler := http.FileServerFS(fsys)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurityPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if r.URL.Path == "/favicon.ico" { // asked for by itself; a 404 would be an error in the console
			w.WriteHeader(http.StatusNoContent)
			return
		}
		switch filepath.Ext(r.URL.Path) { // not left to the machine's MIME table
		case ".js":
			h.Set("Content-Type", "text/javascript; charset=utf-8")
		case ".wasm":
			h.Set("Content-Type", "application/wasm")
		case ".json":
			h.Set("Content-Type", "application/json")
		}
		handler.ServeHTTP(w, r)
	})
}

// Root gives the folder of the module.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}

// goWASM runs the go command for js/wasm in the module's folder.
func goWASM(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = Root(t)
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// wasmExec gives the text of the support file that belongs to the Go version in use.
func wasmExec(t testing.TB) []byte {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// waitFor polls until done says so.
func waitFor(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return errors.Join(errors.New("timed out"), ctx.Err())
		}
	}
}
