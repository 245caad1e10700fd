//go:build !js

package conformance_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/conformance"
	"github.com/pagelight/pagelight/internal/gpu"
)

// compilePage compiles what /variants lists, one pipeline each, and posts what the browser said of each to /verdict.
const compilePage = `<!doctype html><script type="module">
const report = async (body) => fetch("/verdict", {method: "POST", body: JSON.stringify(body)});
try {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error("no adapter");
  const device = await adapter.requestDevice(); // with the default limits
  const kinds = ["uniform", "read-only-storage", "storage"];
  const faults = [];
  const variants = await (await fetch("/variants")).json();
  for (const v of variants) {
    const module = device.createShaderModule({code: v.Source, label: v.Label});
    const info = await module.getCompilationInfo();
    for (const m of info.messages) faults.push(v.Label + ": " + m.type + " in line " + m.lineNum + ": " + m.message);
    if (info.messages.some((m) => m.type === "error")) continue;
    try {
      const entries = v.Layout.map((kind, binding) =>
        ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type: kinds[kind]}}));
      const layout = device.createPipelineLayout({bindGroupLayouts: [device.createBindGroupLayout({entries})]});
      await device.createComputePipelineAsync({layout, compute: {module, entryPoint: v.Kernel}});
    } catch (e) {
      faults.push(v.Label + ": " + e.message);
    }
  }
  await report({adapter: adapter.info.vendor + " " + adapter.info.architecture, count: variants.length, faults});
} catch (e) {
  await report({error: String(e)});
}
</script>`

// TestBrowserAcceptsVariants has Chromium's compiler, Tint, try every kernel in every specialisation: it refuses what naga
// lets pass, such as barriers in control flow that may differ between invocations.
func TestBrowserAcceptsVariants(t *testing.T) {
	variants, err := conformance.Variants()
	if err != nil {
		t.Fatal(err)
	}
	// Layouts are bytes, and those are base64 in JSON.
	type variant struct {
		Label, Kernel, Source string
		Layout                []int
	}
	list := make([]variant, len(variants))
	for i, v := range variants {
		list[i] = variant{v.Label, v.Kernel, v.Source, kinds(v.Layout)}
	}

	var verdict struct {
		Adapter, Error string
		Count          int
		Faults         []string
	}
	done := make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(compilePage))
	})
	mux.HandleFunc("GET /variants", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(list)
	})
	mux.HandleFunc("POST /verdict", func(_ http.ResponseWriter, r *http.Request) {
		done <- json.NewDecoder(r.Body).Decode(&verdict)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	openChromium(t, server.URL)

	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the browser did not answer")
	}
	if verdict.Error != "" {
		t.Fatalf("the browser failed: %s", verdict.Error)
	}
	for _, f := range verdict.Faults {
		t.Error(f)
	}
	if verdict.Count != len(list) {
		t.Errorf("%d variants tried, want %d", verdict.Count, len(list))
	}
	t.Logf("%d variants on %s", verdict.Count, verdict.Adapter)
}

func kinds(layout []gpu.BindingKind) []int {
	list := make([]int, len(layout))
	for i, k := range layout {
		list[i] = int(k)
	}
	return list
}

// openChromium opens url in a headless Chromium with its software adapter until the end of t. $CHROME names the
// browser. Without one the test is skipped, or fails where GPU tests are required: REQUIRE_GPU=1 or CI=true.
func openChromium(t *testing.T, url string) {
	t.Helper()
	path := os.Getenv("CHROME")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		if os.Getenv("REQUIRE_GPU") == "1" || os.Getenv("CI") == "true" {
			t.Fatal("no Chromium: set $CHROME")
		}
		t.Skip("no Chromium: set $CHROME")
	}
	profile, err := os.MkdirTemp("", "pagelight-chromium")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--enable-unsafe-webgpu",
		"--use-webgpu-adapter=swiftshader", "--no-first-run", "--user-data-dir="+profile, url)
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("chromium: %s", stderr.String())
		}
		_ = os.RemoveAll(profile) // its children may still be writing for a moment
	})
}
