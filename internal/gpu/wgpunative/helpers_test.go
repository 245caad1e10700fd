//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
)

// addOne adds 1 to each of 64 words a workgroup.
const addOne = `
@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@compute @workgroup_size(64) fn add_one(@builtin(global_invocation_id) g: vec3<u32>) {
    if (g.x < arrayLength(&a)) { a[g.x] = a[g.x] + 1u; }
}`

var readWrite = []gpu.BindingKind{gpu.BindReadWrite}

// A rig is a counter on the device: step adds 1 to every word, and out is where fetch copies them.
type rig struct {
	t           testing.TB
	d           gpu.Device
	data, out   gpu.Buffer
	pipeline    gpu.Pipeline
	group       gpu.BindGroup
	step, fetch gpu.Program
}

func newRig(t testing.TB, d gpu.Device, words int) *rig {
	t.Helper()
	r := &rig{t: t, d: d}
	size := int64(words) * 4
	r.data = must[gpu.Buffer](t)(d.NewBuffer("data", size, gpu.UsageStorage|gpu.UsageCopySrc|gpu.UsageCopyDst))
	r.out = must[gpu.Buffer](t)(d.NewBuffer("out", size, gpu.UsageMapRead|gpu.UsageCopyDst))
	r.pipeline = compile(t, d, "add_one", addOne, readWrite)
	r.group = must[gpu.BindGroup](t)(d.NewBindGroup("data", readWrite, []gpu.Binding{{Buffer: r.data}}))
	r.step = must[gpu.Program](t)(d.NewProgram("step", []gpu.Command{r.dispatch()}))
	r.fetch = must[gpu.Program](t)(d.NewProgram("fetch", []gpu.Command{{CopySrc: r.data, CopyDst: r.out, CopySize: size}}))
	return r
}

func (r *rig) dispatch() gpu.Command {
	return gpu.Command{Pipeline: r.pipeline, BindGroup: r.group, Grid: gpu.Grid(int(r.data.Size()+255)/256, 1, 65535)}
}

func compile(t testing.TB, d gpu.Device, kernel, source string, layout []gpu.BindingKind) gpu.Pipeline {
	t.Helper()
	descs := []gpu.PipelineDesc{{Label: kernel, Kernel: kernel, Source: source, Layout: layout}}
	return must[[]gpu.Pipeline](t)(d.NewPipelines(context.Background(), descs, nil))[0]
}

func must[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(x T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// residentKB is the memory that the process has in use, or 0 where that is not known.
func residentKB(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	check(t, err)
	return kb
}
