//go:build js && wasm

package webgpujs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"syscall/js"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
)

// open opens a device. Under node there is none; internal/browsertest runs these tests in a browser, where there must be.
func open(t testing.TB) *Device {
	t.Helper()
	if js.Global().Get("pagelightGPU").IsUndefined() {
		t.Skip("not in a browser: gpu.js is not loaded")
	}
	d, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

const addSource = `
struct Params { n: u32, add: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read_write> b: array<u32>;
@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < p.n) { b[id.x] = a[id.x] + p.add; }
}`

var addLayout = []gpu.BindingKind{gpu.BindUniform, gpu.BindRead, gpu.BindReadWrite}

// adder is b = a + 5, with what is needed to run it; back reads b after the program of that name.
type adder struct {
	*Device
	a, b, back, params gpu.Buffer
	pipeline           gpu.Pipeline
	group              gpu.BindGroup
	program            gpu.Program
	input              []uint32
}

func newAdder(t testing.TB, d *Device) *adder {
	t.Helper()
	const n = 1000
	x := &adder{Device: d}
	buf := func(label string, size int64, usage gpu.Usage) gpu.Buffer {
		b, err := d.NewBuffer(label, size, usage)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	x.a = buf("a", 4*n, gpu.UsageStorage|gpu.UsageCopyDst|gpu.UsageCopySrc)
	x.b = buf("b", 4*n, gpu.UsageStorage|gpu.UsageCopySrc)
	x.back = buf("back", 4*n, gpu.UsageMapRead|gpu.UsageCopyDst)
	x.params = buf("params", 16, gpu.UsageUniform|gpu.UsageCopyDst)
	for i := range n {
		x.input = append(x.input, uint32(i*i))
	}
	check(t, d.WriteBuffer(x.a, 0, gpu.Bytes(x.input)))
	check(t, d.WriteBuffer(x.params, 0, gpu.Bytes([]uint32{n, 5, 0, 0})))
	var names []string
	pipelines, err := d.NewPipelines(t.Context(), []gpu.PipelineDesc{
		{Label: "add", Kernel: "add", Source: addSource, Layout: addLayout},
	}, func(label string) { names = append(names, label) })
	check(t, err)
	if !slices.Equal(names, []string{"add"}) {
		t.Errorf("done was called for %q", names)
	}
	x.pipeline = pipelines[0]
	x.group, err = d.NewBindGroup("add", addLayout, []gpu.Binding{{Buffer: x.params}, {Buffer: x.a}, {Buffer: x.b}})
	check(t, err)
	x.program, err = d.NewProgram("add", []gpu.Command{
		{Pipeline: x.pipeline, BindGroup: x.group, Grid: gpu.Grid((n+63)/64, 1, 65535)},
		{CopySrc: x.b, CopyDst: x.back, CopySize: 4 * n},
	})
	check(t, err)
	return x
}

// run submits the program and checks what it computes.
func (x *adder) run(t testing.TB) {
	t.Helper()
	check(t, x.Submit(x.program))
	x.verify(t)
}

func (x *adder) verify(t testing.TB) {
	t.Helper()
	got := make([]uint32, len(x.input))
	check(t, x.Read(t.Context(), x.back, 0, gpu.Bytes(got)))
	for i, v := range x.input {
		if got[i] != v+5 {
			t.Fatalf("element %d is %d, want %d", i, got[i], v+5)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, target error, parts ...string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want one that wraps %v", err, target)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}

func TestDispatch(t *testing.T) {
	d := open(t)
	t.Logf("%+v", d.Info())
	t.Logf("%+v", d.Limits())
	newAdder(t, d).run(t)
}

func TestInfo(t *testing.T) {
	d := open(t)
	info := d.Info()
	if info.Name == "" || info.Driver != "webgpujs" || info.Backend != "WebGPU" {
		t.Errorf("info is %+v", info)
	}
	if strings.Contains(strings.ToLower(info.Name), "swiftshader") && (info.Kind != gpu.KindSoftware || !info.BarrierFree) {
		t.Errorf("SwiftShader is reported as %+v", info)
	}
	l := d.Limits()
	if l.MaxStorageBinding < gpu.DefaultLimits.MaxStorageBinding || l.MaxStorageBuffers < 8 || l.MaxInvocations < 256 ||
		l.OffsetAlignment < 1 || l.OffsetAlignment > 256 || l.MaxWorkgroupsPerDim < 65535 {
		t.Errorf("limits are %+v", l)
	}
	probed, limits, err := Probe(t.Context())
	check(t, err)
	if probed.Name != info.Name || probed.Kind != info.Kind || limits != l {
		t.Errorf("Probe says %+v %+v, the device %+v %+v", probed, limits, info, l)
	}
}

// Programs of one submission run in order, and each command sees what the ones before it wrote.
func TestProgramsRunInOrder(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	n := int64(len(x.input))
	feed, err := d.NewProgram("feed", []gpu.Command{
		{Pipeline: x.pipeline, BindGroup: x.group, Grid: [3]uint32{16, 1, 1}},
		{CopySrc: x.b, CopyDst: x.a, CopySize: 4 * n}, // the next round adds to the sums of this one
	})
	check(t, err)
	fetch, err := d.NewProgram("fetch", []gpu.Command{{CopySrc: x.b, CopyDst: x.back, CopySize: 4 * n}})
	check(t, err)
	check(t, d.Submit(feed, feed, feed))
	check(t, d.Submit(feed, fetch))
	got := make([]uint32, n)
	check(t, d.Read(t.Context(), x.back, 0, gpu.Bytes(got)))
	for i, v := range x.input {
		if got[i] != v+20 {
			t.Fatalf("element %d is %d, want %d", i, got[i], v+20)
		}
	}
	// A buffer that no submission wrote is read after the last submission all the same, at any offset and length.
	check(t, d.Submit(feed))
	odd := make([]byte, 7)
	check(t, d.Read(t.Context(), x.back, 13, odd))
	if want := gpu.Bytes(got)[13:20]; !bytes.Equal(odd, want) {
		t.Errorf("7 bytes at 13 are %v, want %v", odd, want)
	}
	check(t, d.Wait(t.Context()))
}

func TestBuffersStartAsZero(t *testing.T) {
	d := open(t)
	b, err := d.NewBuffer("odd", 1001, gpu.UsageMapRead|gpu.UsageCopyDst)
	check(t, err)
	if b.Size() != 1004 || b.Label() != "odd" {
		t.Errorf("buffer is %q of %d bytes", b.Label(), b.Size())
	}
	got := bytes.Repeat([]byte{7}, 1004)
	check(t, d.Read(t.Context(), b, 0, got))
	if !bytes.Equal(got, make([]byte, 1004)) {
		t.Error("content is not zero")
	}
	b.Release()
	b.Release()
	wantError(t, d.Read(t.Context(), b, 0, got), gpu.ErrInvalid, `"odd"`, "released")
}

// Writes larger than the scratch, and more of them than may be under way at a time.
func TestLargeWrites(t *testing.T) {
	d := open(t)
	const size = 20<<20 + 4
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	src, err := d.NewBuffer("src", size, gpu.UsageStorage|gpu.UsageCopyDst|gpu.UsageCopySrc)
	check(t, err)
	back, err := d.NewBuffer("back", size, gpu.UsageMapRead|gpu.UsageCopyDst)
	check(t, err)
	p, err := d.NewProgram("copy", []gpu.Command{{CopySrc: src, CopyDst: back, CopySize: size}})
	check(t, err)
	start := time.Now()
	for range 5 {
		check(t, d.WriteBuffer(src, 0, data))
	}
	check(t, d.Wait(t.Context()))
	t.Logf("5 writes of %d MiB: %v", size>>20, time.Since(start))
	check(t, d.Submit(p))
	got := make([]byte, size)
	start = time.Now()
	check(t, d.Read(t.Context(), back, 0, got))
	t.Logf("1 read of %d MiB: %v", size>>20, time.Since(start))
	if !bytes.Equal(got, data) {
		t.Error("what was read is not what was written")
	}
}

func TestBlob(t *testing.T) {
	d := open(t)
	const size = 18<<20 + 12
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 11 >> 4)
	}
	array := js.Global().Get("Uint8Array").New(size)
	js.CopyBytesToJS(array, data)
	blob, err := NewBlob(array.Get("buffer"), false)
	check(t, err)
	if blob.Size() != size {
		t.Errorf("size is %d", blob.Size())
	}
	p := make([]byte, 5<<20)
	if n, err := blob.ReadAt(p, 3); n != len(p) || err != nil || !bytes.Equal(p, data[3:3+len(p)]) {
		t.Errorf("ReadAt: %d, %v", n, err)
	}
	if n, err := blob.ReadAt(p, size-10); n != 10 || !errors.Is(err, io.EOF) || !bytes.Equal(p[:10], data[size-10:]) {
		t.Errorf("ReadAt over the end: %d, %v", n, err)
	}
	dst, err := d.NewBuffer("dst", size, gpu.UsageStorage|gpu.UsageCopyDst|gpu.UsageCopySrc)
	check(t, err)
	back, err := d.NewBuffer("back", size, gpu.UsageMapRead|gpu.UsageCopyDst)
	check(t, err)
	handled, err := d.WriteBlob(dst, 4, blob, 2, size-8) // an offset in the blob need not be aligned
	if !handled || err != nil {
		t.Fatalf("WriteBlob: %v, %v", handled, err)
	}
	program, err := d.NewProgram("copy", []gpu.Command{{CopySrc: dst, CopyDst: back, CopySize: size}})
	check(t, err)
	check(t, d.Submit(program))
	got := make([]byte, size)
	check(t, d.Read(t.Context(), back, 0, got))
	if !bytes.Equal(got[4:size-4], data[2:size-6]) || got[0] != 0 || got[size-1] != 0 {
		t.Error("what was read is not what the blob holds")
	}
	if _, err := d.WriteBlob(dst, 0, blob, 0, size+4); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a write past the end gives %v", err)
	}
	check(t, blob.Close())
	check(t, blob.Close())
	if _, err := d.WriteBlob(dst, 0, blob, 0, 4); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("a write from a closed blob gives %v", err)
	}
	if handled, err := d.WriteBlob(dst, 0, bytes.NewReader(data), 0, 4); handled || err != nil {
		t.Errorf("another kind of blob: %v, %v", handled, err)
	}
}

func TestCompileErrorsNameTheKernel(t *testing.T) {
	d := open(t)
	good := gpu.PipelineDesc{Label: "good", Kernel: "add", Source: addSource, Layout: addLayout}
	_, err := d.NewPipelines(t.Context(), []gpu.PipelineDesc{
		good,
		{Label: "bad_name WG=64", Kernel: "add", Source: strings.Replace(addSource, "p.add", "p.ad", 1), Layout: addLayout},
		{Label: "bad_entry", Kernel: "sub", Source: addSource, Layout: addLayout},
		{Label: "bad_layout", Kernel: "add", Source: addSource, Layout: addLayout[:2]},
	}, nil)
	wantError(t, err, gpu.ErrInvalid, "bad_name WG=64", "8:41", " ad ", "bad_entry", "bad_layout")
	if strings.Contains(err.Error(), "kernel good") {
		t.Errorf("%v names a kernel that compiles", err)
	}
	newAdder(t, d).run(t) // no fault is left behind
}

func TestCompileCancelled(t *testing.T) {
	d := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.NewPipelines(ctx, []gpu.PipelineDesc{{Label: "add", Kernel: "add", Source: addSource, Layout: addLayout}}, nil)
	wantError(t, err, context.Canceled)
	ctx, cancel = context.WithCancel(t.Context())
	descs := make([]gpu.PipelineDesc, 20)
	for i := range descs {
		source := strings.Replace(addSource, "p.add", "p.add + "+string(rune('0'+i%10))+"u", 1)
		descs[i] = gpu.PipelineDesc{Label: "add", Kernel: "add", Source: source, Layout: addLayout}
	}
	_, err = d.NewPipelines(ctx, descs, func(string) { cancel() })
	wantError(t, err, context.Canceled)
	newAdder(t, d).run(t)
}

// What breaks the contract in a way that Go can see is refused by the call itself.
func TestInvalidCalls(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	other := newAdder(t, open(t))
	wantError(t, d.WriteBuffer(x.a, 2, make([]byte, 4)), gpu.ErrInvalid, `"a"`)
	wantError(t, d.WriteBuffer(x.a, 0, make([]byte, 4004)), gpu.ErrInvalid, `"a"`, "4004")
	wantError(t, d.WriteBuffer(x.b, 0, make([]byte, 4)), gpu.ErrInvalid, `"b"`)
	wantError(t, d.WriteBuffer(other.a, 0, make([]byte, 4)), gpu.ErrInvalid, "another device")
	wantError(t, d.Read(t.Context(), x.back, 4000, make([]byte, 1)), gpu.ErrInvalid, `"back"`)
	wantError(t, d.Submit(other.program), gpu.ErrInvalid)
	groups := [][]gpu.Binding{
		{{Buffer: x.params}, {Buffer: x.a}},
		{{Buffer: x.a}, {Buffer: x.a}, {Buffer: x.b}},
		{{Buffer: x.params}, {Buffer: x.a, Offset: 4}, {Buffer: x.b}},
		{{Buffer: x.params}, {Buffer: x.a, Size: 4004}, {Buffer: x.b}},
	}
	for i, bindings := range groups {
		_, err := d.NewBindGroup("wrong", addLayout, bindings)
		if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "wrong") {
			t.Errorf("bind group %d: %v", i, err)
		}
	}
	commands := []gpu.Command{
		{Pipeline: x.pipeline, BindGroup: x.group, Grid: [3]uint32{1, 0, 1}},
		{Pipeline: x.pipeline, BindGroup: other.group, Grid: [3]uint32{1, 1, 1}},
		{Pipeline: x.pipeline, BindGroup: x.group, Grid: [3]uint32{65536, 1, 1}},
		{CopySrc: x.b, CopyDst: x.b, CopySize: 4},
		{CopySrc: x.b, CopyDst: x.back, CopySize: 4004},
		{CopySrc: x.back, CopyDst: x.a, CopySize: 4},
	}
	for i, cmd := range commands {
		if _, err := d.NewProgram("wrong", []gpu.Command{cmd}); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("command %d: %v", i, err)
		}
	}
	x.run(t)
}

// What only the browser sees comes from the next Read or Wait, once, and never together with stale bytes.
func TestInvalidSubmit(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	x.run(t)
	spare, err := d.NewBuffer("spare", 4000, gpu.UsageCopySrc)
	check(t, err)
	late, err := d.NewProgram("late", []gpu.Command{{CopySrc: spare, CopyDst: x.back, CopySize: 4000}})
	check(t, err)
	spare.Release()
	check(t, d.Submit(late))
	got := make([]byte, 4000)
	wantError(t, d.Read(t.Context(), x.back, 0, got), gpu.ErrInvalid, "spare")
	if !bytes.Equal(got, make([]byte, 4000)) {
		t.Error("bytes were given with the error")
	}
	check(t, d.Submit(late))
	wantError(t, d.Wait(t.Context()), gpu.ErrInvalid, "spare")
	x.run(t)
	// The same buffer read-only and writable in one dispatch.
	if _, err := d.NewBindGroup("alias", addLayout, []gpu.Binding{{Buffer: x.params}, {Buffer: x.a}, {Buffer: x.a}}); err == nil {
		group, err := d.NewBindGroup("alias", addLayout, []gpu.Binding{{Buffer: x.params}, {Buffer: x.a}, {Buffer: x.a}})
		check(t, err)
		alias, err := d.NewProgram("alias", []gpu.Command{{Pipeline: x.pipeline, BindGroup: group, Grid: [3]uint32{1, 1, 1}}})
		check(t, err)
		check(t, d.Submit(alias))
		wantError(t, d.Wait(t.Context()), gpu.ErrInvalid)
	}
	x.run(t)
}

func TestOutOfMemory(t *testing.T) {
	d := open(t)
	_, err := d.NewBuffer("huge", d.Limits().MaxBufferSize+4, gpu.UsageStorage)
	wantError(t, err, gpu.ErrOutOfMemory, "huge")

	// A real shortage cannot be provoked everywhere, so the browser is made to report one.
	proto := js.Global().Get("GPUDevice").Get("prototype")
	original := proto.Get("popErrorScope")
	scopes := 0
	fake := js.FuncOf(func(this js.Value, _ []js.Value) any {
		promise := original.Call("call", this)
		if scopes++; scopes == 1 { // the scope that was opened last is the one for memory
			return js.Global().Get("Promise").Call("resolve", js.Global().Get("GPUOutOfMemoryError").New("no room"))
		}
		return promise
	})
	defer fake.Release()
	proto.Set("popErrorScope", fake)
	_, err = d.NewBuffer("full", 1<<20, gpu.UsageStorage)
	proto.Set("popErrorScope", original)
	wantError(t, err, gpu.ErrOutOfMemory, "full", "no room")
	newAdder(t, d).run(t)
}

// slow is a program that keeps a software adapter busy for a while.
func slow(t *testing.T, x *adder) gpu.Program {
	t.Helper()
	p, err := x.NewProgram("spin", []gpu.Command{slowCommand(t, x)})
	check(t, err)
	return p
}

func slowCommand(t *testing.T, x *adder) gpu.Command {
	t.Helper()
	const source = `
@group(0) @binding(0) var<storage, read_write> b: array<u32>;
@compute @workgroup_size(64)
fn spin(@builtin(global_invocation_id) id: vec3<u32>) {
  var v = id.x;
  for (var i = 0u; i < 60000u; i++) { v = v * 1664525u + 1013904223u; }
  if (v == 12345u) { b[0] = v; }
}`
	layout := []gpu.BindingKind{gpu.BindReadWrite}
	pipelines, err := x.NewPipelines(t.Context(), []gpu.PipelineDesc{{Label: "spin", Kernel: "spin", Source: source, Layout: layout}}, nil)
	check(t, err)
	group, err := x.NewBindGroup("spin", layout, []gpu.Binding{{Buffer: x.b}})
	check(t, err)
	return gpu.Command{Pipeline: pipelines[0], BindGroup: group, Grid: [3]uint32{256, 1, 1}}
}

func TestCancelledReadLeavesDeviceUsable(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	x.run(t)
	busy := slow(t, x)
	got := bytes.Repeat([]byte{0xAA}, 4000)
	for i, patience := range []time.Duration{0, time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		check(t, d.Submit(busy, x.program))
		err := d.Read(ctx, x.back, 0, got)
		cancel()
		if err == nil {
			t.Logf("read %d was faster than %v", i, patience)
			continue
		}
		wantError(t, err, context.DeadlineExceeded)
		if !bytes.Equal(got, bytes.Repeat([]byte{0xAA}, 4000)) {
			t.Fatalf("a cancelled read wrote to its destination")
		}
		// At once, while the first mapping is still under way, and with the buffer as the target of a copy again.
		x.run(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	check(t, d.Submit(busy, x.program))
	cancel()
	wantError(t, d.Wait(ctx), context.Canceled)
	check(t, d.Wait(t.Context()))
	x.verify(t)
}

// Promises that settle while Go collects garbage must find what waits for them.
func TestCollectingGarbageBetweenCalls(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	var keep [][]byte
	for i := range 60 {
		check(t, x.Submit(x.program))
		runtime.GC()
		keep = append(keep, make([]byte, 100<<10))
		if i%5 == 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Microsecond)
			_ = d.Read(ctx, x.back, 0, make([]byte, 4000)) // either outcome is right; what follows must work
			cancel()
			keep = nil
			runtime.GC()
		}
		x.verify(t)
	}
	_ = keep
}

func TestLost(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	x.run(t)
	select {
	case <-d.Lost():
		t.Fatal("lost at once")
	default:
	}
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
	check(t, d.Submit(slow(t, x), x.program))
	reading := make(chan error)
	go func() { reading <- d.Read(t.Context(), x.back, 0, make([]byte, 4000)) }()
	runtime.Gosched()
	d.handle.Get("device").Call("destroy")
	select {
	case <-d.Lost():
	case <-time.After(10 * time.Second):
		t.Fatal("the loss was not reported")
	}
	wantError(t, d.Err(), gpu.ErrDeviceLost)
	if err := <-reading; !errors.Is(err, gpu.ErrDeviceLost) {
		t.Logf("the read under way ended with %v", err) // it may have been just in time, or rejected first
	}
	_, err := d.NewBuffer("late", 4, gpu.UsageStorage)
	wantError(t, err, gpu.ErrDeviceLost)
	wantError(t, d.Submit(x.program), gpu.ErrDeviceLost)
	wantError(t, d.Read(t.Context(), x.back, 0, make([]byte, 4)), gpu.ErrDeviceLost)
	wantError(t, d.WriteBuffer(x.a, 0, make([]byte, 4)), gpu.ErrDeviceLost)
	_, err = d.NewPipelines(t.Context(), []gpu.PipelineDesc{{Label: "add", Kernel: "add", Source: addSource, Layout: addLayout}}, nil)
	wantError(t, err, gpu.ErrDeviceLost)
	newAdder(t, open(t)).run(t) // the next device works
}

func TestClose(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	check(t, d.Submit(x.program))
	d.Close()
	d.Close()
	<-d.Lost()
	wantError(t, d.Err(), gpu.ErrDeviceLost, "closed")
	wantError(t, d.Wait(t.Context()), gpu.ErrDeviceLost)
	x.a.Release()
	x.pipeline.Release()
	x.group.Release()
	x.program.Release()
	time.Sleep(20 * time.Millisecond) // late promises find nobody
}

func TestOpenCancelled(t *testing.T) {
	open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx)
	wantError(t, err, context.Canceled)
	_, _, err = Probe(ctx)
	wantError(t, err, context.Canceled)
	time.Sleep(50 * time.Millisecond)
	newAdder(t, open(t)).run(t)
}

func TestReasonsForNoAdapter(t *testing.T) {
	open(t)
	global, object := js.Global(), js.Global().Get("Object")
	with := func(on js.Value, name string, value any, want Reason) {
		t.Helper()
		property := map[string]any{"value": value, "configurable": true}
		object.Call("defineProperty", on, name, property) // shadows the prototype's
		defer js.Global().Get("Reflect").Call("deleteProperty", on, name)
		_, err := Open(t.Context())
		wantError(t, err, gpu.ErrNoAdapter)
		var e *AdapterError
		if !errors.As(err, &e) || e.Reason != want {
			t.Errorf("open without %s: %v, want reason %s", name, err, want)
		}
		if _, _, err := Probe(t.Context()); !errors.As(err, &e) || e.Reason != want {
			t.Errorf("probe without %s: %v, want reason %s", name, err, want)
		}
	}
	navigator := global.Get("navigator")
	with(navigator, "gpu", js.Undefined(), ReasonNoWebGPU)
	none := js.FuncOf(func(js.Value, []js.Value) any { return global.Get("Promise").Call("resolve", nil) })
	defer none.Release()
	with(navigator.Get("gpu"), "requestAdapter", none, ReasonNoAdapter)
	library := global.Get("pagelightGPU")
	global.Delete("pagelightGPU")
	_, err := Open(t.Context())
	global.Set("pagelightGPU", library)
	wantError(t, err, gpu.ErrNoAdapter, "gpu.js")
	newAdder(t, open(t)).run(t)
}

func TestSoftwareAdaptersAreRecognised(t *testing.T) {
	open(t)
	global := js.Global()
	g := global.Get("navigator").Get("gpu")
	for _, c := range []struct {
		facts map[string]any
		name  string
		kind  gpu.Kind
	}{
		{map[string]any{"vendor": "google", "architecture": "swiftshader"}, "google swiftshader", gpu.KindSoftware},
		{map[string]any{"vendor": "mesa", "description": "llvmpipe (LLVM 15.0.6, 256 bits)"}, "llvmpipe (LLVM 15.0.6, 256 bits)", gpu.KindSoftware},
		{map[string]any{"vendor": "microsoft", "device": "0x8c", "description": "Microsoft Basic Render Driver"}, "Microsoft Basic Render Driver", gpu.KindSoftware},
		{map[string]any{"isFallbackAdapter": true}, "unnamed adapter", gpu.KindSoftware}, // Firefox and Safari may say little
		{map[string]any{"vendor": "nvidia", "architecture": "hopper"}, "nvidia hopper", gpu.KindHardware},
		{map[string]any{}, "unnamed adapter", gpu.KindHardware},
	} {
		adapter := map[string]any{"info": c.facts, "limits": map[string]any{}, "features": global.Get("Set").New()}
		request := js.FuncOf(func(js.Value, []js.Value) any { return global.Get("Promise").Call("resolve", adapter) })
		global.Get("Object").Call("defineProperty", g, "requestAdapter", map[string]any{"value": request, "configurable": true})
		info, limits, err := Probe(t.Context())
		global.Get("Reflect").Call("deleteProperty", g, "requestAdapter")
		request.Release()
		check(t, err)
		if info.Name != c.name || info.Kind != c.kind || info.BarrierFree != (c.kind == gpu.KindSoftware) {
			t.Errorf("%v gives %+v", c.facts, info)
		}
		if limits != gpu.DefaultLimits {
			t.Errorf("an adapter that tells no limits has %+v", limits)
		}
	}
}

// On hardware adapters gpu.js keeps the GPU process looking while Go waits. The software adapter of the tests passes for
// hardware here.
func TestWaitingOnHardware(t *testing.T) {
	open(t)
	proto := js.Global().Get("GPUAdapterInfo").Get("prototype")
	object := js.Global().Get("Object")
	for _, name := range []string{"vendor", "architecture", "device", "description", "isFallbackAdapter"} {
		original := object.Call("getOwnPropertyDescriptor", proto, name)
		nameless := js.FuncOf(func(js.Value, []js.Value) any { return "" })
		defer nameless.Release()
		object.Call("defineProperty", proto, name, map[string]any{"get": nameless, "configurable": true})
		defer object.Call("defineProperty", proto, name, original)
	}
	d := open(t)
	if d.Info().Kind != gpu.KindHardware {
		t.Fatalf("the adapter is %+v", d.Info())
	}
	x := newAdder(t, d)
	busy := slow(t, x)
	for range 20 {
		x.run(t)
	}
	check(t, d.Submit(busy, x.program))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := d.Read(ctx, x.back, 0, make([]byte, 4)); err != nil {
		wantError(t, err, context.DeadlineExceeded)
	}
	x.run(t)
	check(t, d.Submit(busy, x.program))
	d.Close() // while it waits for nobody
	time.Sleep(20 * time.Millisecond)
}

// What one step costs: the figures are logged, the bound is only against a fall by an order of magnitude.
func TestDispatchCost(t *testing.T) {
	d := open(t)
	x := newAdder(t, d)
	const dispatches = 150
	var commands []gpu.Command
	for range dispatches {
		commands = append(commands, gpu.Command{Pipeline: x.pipeline, BindGroup: x.group, Grid: [3]uint32{1, 1, 1}})
	}
	p, err := d.NewProgram("many", commands)
	check(t, err)
	one, err := d.NewProgram("one", commands[:1])
	check(t, err)
	copyBack, err := d.NewProgram("copy", []gpu.Command{{CopySrc: x.b, CopyDst: x.back, CopySize: 4}})
	check(t, err)
	// The browser's clock has steps of 0.1 ms, so each measure repeats what it measures.
	measure := func(name string, repeat int, f func()) time.Duration {
		best := time.Duration(math.MaxInt64)
		for range 12 {
			start := time.Now()
			for range repeat {
				f()
			}
			best = min(best, time.Since(start)/time.Duration(repeat))
			check(t, d.Wait(t.Context()))
		}
		t.Logf("%-46s %8.1f us", name, float64(best.Nanoseconds())/1e3)
		return best
	}
	submit := measure("submit of 150 dispatches (returns)", 20, func() { check(t, d.Submit(p)) })
	measure("submit of 1 dispatch (returns)", 100, func() { check(t, d.Submit(one)) })
	measure("submit of 150 dispatches and wait", 5, func() { check(t, d.Submit(p)); check(t, d.Wait(t.Context())) })
	measure("submit, copy of 4 bytes, read", 10, func() {
		check(t, d.Submit(one, copyBack))
		check(t, d.Read(t.Context(), x.back, 0, make([]byte, 4)))
	})
	measure("read of 4 bytes that are there", 10, func() { check(t, d.Read(t.Context(), x.back, 0, make([]byte, 4))) })
	measure("write of 64 bytes", 100, func() { check(t, d.WriteBuffer(x.a, 0, make([]byte, 64))) })
	measure("new buffer of 64 KiB", 10, func() {
		b, err := d.NewBuffer("b", 64<<10, gpu.UsageStorage)
		check(t, err)
		b.Release()
	})
	measure("new bind group", 50, func() {
		g, err := d.NewBindGroup("g", addLayout, []gpu.Binding{{Buffer: x.params}, {Buffer: x.a}, {Buffer: x.b}})
		check(t, err)
		g.Release()
	})
	if submit > 20*time.Millisecond {
		t.Errorf("a submission of 150 dispatches takes %v", submit)
	}
}
