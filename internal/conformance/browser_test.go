//go:build !js

package conformance_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/browsertest"
	"github.com/pagelight/pagelight/internal/conformance"
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
)

// compilePage compiles what /variants lists, makes pipelines of those that say so, and posts what the browser said of each to
// /verdict.
const compilePage = `<!doctype html><script type="module">
const report = async (body) => fetch("/verdict", {method: "POST", body: JSON.stringify(body)});
try {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error("no adapter");
  const device = await adapter.requestDevice({requiredFeatures: ["subgroups"]}); // with the default limits
  const kinds = ["uniform", "read-only-storage", "storage"];
  const faults = [];
  const compile = async (v) => {
    const module = device.createShaderModule({code: v.Source, label: v.Label});
    const info = await module.getCompilationInfo();
    for (const m of info.messages) faults.push(v.Label + ": " + m.type + " in line " + m.lineNum + ": " + m.message);
    if (!v.Pipeline || info.messages.some((m) => m.type === "error")) return;
    try {
      const entries = v.Layout.map((kind, binding) =>
        ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type: kinds[kind]}}));
      const layout = device.createPipelineLayout({bindGroupLayouts: [device.createBindGroupLayout({entries})]});
      await device.createComputePipelineAsync({layout, compute: {module, entryPoint: v.Kernel}});
    } catch (e) {
      faults.push(v.Label + ": " + e.message);
    }
  };
  const variants = await (await fetch("/variants")).json();
  await Promise.all(variants.map(compile));
  await report({adapter: adapter.info.vendor + " " + adapter.info.architecture, count: variants.length, faults});
} catch (e) {
  await report({error: String(e)});
}
</script>`

// TestBrowserAcceptsVariants has Chromium's compiler, Tint, try every kernel in every specialisation: it refuses what naga
// lets pass, such as barriers in control flow that may differ between invocations. Pipelines, whose making takes the software
// adapter a good part of a second, are made of each kernel, of the kinds of weight that are most used, and of the largest heads.
func TestBrowserAcceptsVariants(t *testing.T) {
	variants, err := conformance.Variants()
	if err != nil {
		t.Fatal(err)
	}
	// Layouts are bytes, and those are base64 in JSON.
	type variant struct {
		Label, Kernel, Source string
		Layout                []int
		Pipeline              bool
	}
	list, pipelines := make([]variant, len(variants)), 0
	for i, v := range variants {
		group, packed := v.Consts["GROUP"]
		d, heads := v.Consts["HEAD_DIM"]
		used := !packed || group == 32 && v.Consts["WEIGHT"] <= uint32(quant.Q4)
		list[i] = variant{v.Label, v.Kernel, v.Source, kinds(v.Layout), used && (!heads || d >= 128)}
		if list[i].Pipeline {
			pipelines++
		}
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
	browsertest.Start(t, browsertest.SwiftShader).Open(t, server.URL)

	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Minute):
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
	t.Logf("%d variants, %d pipelines on %s", verdict.Count, pipelines, verdict.Adapter)
}

func kinds(layout []gpu.BindingKind) []int {
	list := make([]int, len(layout))
	for i, k := range layout {
		list[i] = int(k)
	}
	return list
}
