//go:build cgo && !js

package wgpunative_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/gpu/wgpunative"
)

func TestKernelRuns(t *testing.T) {
	for name, open := range map[string]func(testing.TB) gpu.Device{
		"adapter limits": gputest.Open, "default limits": gputest.OpenDefaultLimits,
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			out := gputest.Run(t, d, gputest.Kernel{
				Source: addOne, Entry: "add_one",
				Bindings: []gputest.Data{{Kind: gpu.BindReadWrite, Bytes: gputest.Words[uint32](1, 2, 3)}},
			})
			if got, want := gputest.As[uint32](out[0]), []uint32{2, 3, 4}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestDefaultLimitsAreExact(t *testing.T) {
	d := gputest.OpenDefaultLimits(t)
	if got := d.Limits(); got != gpu.DefaultLimits {
		t.Errorf("got %+v, want %+v", got, gpu.DefaultLimits)
	}
	// The library holds the device to them, not only this package.
	// (It does not check workgroup memory.)
	source := `@compute @workgroup_size(257) fn main() {}`
	_, err := d.NewPipelines(context.Background(), []gpu.PipelineDesc{{Kernel: "main", Source: source, Layout: readWrite}}, nil)
	if !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("257 invocations: got %v, want an error", err)
	}
}

func TestInfoIsForPeople(t *testing.T) {
	d := gputest.Open(t)
	info := d.Info()
	if info.Name == "" || strings.HasPrefix(info.Name, "0x") || strings.HasPrefix(info.Vendor, "0x") || !strings.HasPrefix(info.Driver, "wgpunative") {
		t.Errorf("got %+v", info)
	}
	if strings.Contains(info.Name, "llvmpipe") && (info.Kind != gpu.KindSoftware || !info.BarrierFree || info.Vendor != "mesa") {
		t.Errorf("llvmpipe: got %+v", info)
	}
	l := d.Limits()
	if l.MaxBufferSize < gpu.DefaultLimits.MaxBufferSize || l.MaxStorageBinding < gpu.DefaultLimits.MaxStorageBinding ||
		l.MaxStorageBuffers < gpu.DefaultLimits.MaxStorageBuffers || l.OffsetAlignment < 1 || l.OffsetAlignment > 256 {
		t.Errorf("limits below WebGPU's: %+v", l)
	}
	if info.Vendor == "nvidia" && (l.MaxBufferSize < 2<<30 || l.MaxStorageBinding < 2<<30-4) {
		t.Errorf("limits below those of the adapter: %+v", l)
	}
	t.Logf("%+v %+v", info, l)
}

func TestAdaptersListsWhatOpenOpens(t *testing.T) {
	d := gputest.Open(t)
	infos := must[[]gpu.Info](t)(wgpunative.Adapters())
	if !slices.ContainsFunc(infos, func(i gpu.Info) bool { return i.Name == d.Info().Name }) {
		t.Errorf("got %+v without %q", infos, d.Info().Name)
	}
	_, err := wgpunative.Open(context.Background(), wgpunative.Options{Adapter: "no such adapter"})
	if !errors.Is(err, gpu.ErrNoAdapter) || !strings.Contains(err.Error(), d.Info().Name) {
		t.Errorf("got %v, want ErrNoAdapter and what there is", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := wgpunative.Open(ctx, wgpunative.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestCommandsSeeTheOnesBefore(t *testing.T) {
	d := gputest.Open(t)
	r := newRig(t, d, 1000)
	other := must[gpu.Buffer](t)(d.NewBuffer("other", 4000, gpu.UsageStorage|gpu.UsageCopySrc|gpu.UsageCopyDst))
	mixed := must[gpu.Program](t)(d.NewProgram("mixed", []gpu.Command{
		r.dispatch(), r.dispatch(),
		{CopySrc: r.data, CopyDst: other, CopySize: 2000},
		r.dispatch(),
		{CopySrc: other, CopyDst: r.data, CopySize: 2000},
		r.dispatch(),
	}))
	check(t, d.WriteBuffer(r.data, 0, gputest.Words[uint32](10)))
	check(t, d.Submit(r.step, mixed, mixed, r.fetch))
	got := make([]byte, 4000)
	check(t, d.Read(context.Background(), r.out, 0, got))
	words := gputest.As[uint32](got)
	// mixed adds 3 in the half that is copied back and forth, 4 in the other.
	if words[0] != 17 || words[1] != 7 || words[499] != 7 || words[500] != 9 || words[999] != 9 {
		t.Errorf("got %v ... %v", words[:3], words[997:])
	}
	part := make([]byte, 5)
	check(t, d.Read(context.Background(), r.out, 1998, part))
	if !slices.Equal(part, got[1998:2003]) {
		t.Errorf("a part at an odd offset: got %v, want %v", part, got[1998:2003])
	}
}

func TestCompileErrorNamesTheKernel(t *testing.T) {
	d := gputest.Open(t)
	good := gpu.PipelineDesc{Label: "add_one", Kernel: "add_one", Source: addOne, Layout: readWrite}
	for name, c := range map[string]struct {
		desc gpu.PipelineDesc
		want string
	}{
		"syntax": {gpu.PipelineDesc{Label: "bad K=7", Kernel: "bad", Source: "fn bad( {", Layout: readWrite}, "expected"},
		"types": {gpu.PipelineDesc{
			Label: "bad K=7", Kernel: "bad", Source: "@compute @workgroup_size(1) fn bad() { let x: u32 = 1.5; }", Layout: readWrite,
		}, "x"},
		"entry":  {gpu.PipelineDesc{Label: "bad K=7", Kernel: "bad", Source: addOne, Layout: readWrite}, "entry point"},
		"layout": {gpu.PipelineDesc{Label: "bad K=7", Kernel: "add_one", Source: addOne, Layout: []gpu.BindingKind{gpu.BindUniform}}, "binding"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.NewPipelines(context.Background(), []gpu.PipelineDesc{good, c.desc, good}, nil)
			if !errors.Is(err, gpu.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			for _, want := range []string{c.desc.Kernel, "K=7", c.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
	compile(t, d, "add_one", addOne, readWrite)
}

func TestManyPipelinesAtOnce(t *testing.T) {
	d := gputest.Open(t)
	const n = 48
	descs := make([]gpu.PipelineDesc, n)
	for i := range descs {
		source := strings.ReplaceAll(addOne, "+ 1u", fmt.Sprintf("+ %du", i))
		descs[i] = gpu.PipelineDesc{Label: fmt.Sprint("add ", i), Kernel: "add_one", Source: source, Layout: readWrite}
	}
	var labels []string
	pipelines := must[[]gpu.Pipeline](t)(d.NewPipelines(context.Background(), descs, func(l string) { labels = append(labels, l) }))
	r := newRig(t, d, 1)
	commands := make([]gpu.Command, n)
	for i, p := range pipelines {
		commands[i] = gpu.Command{Pipeline: p, BindGroup: r.group, Grid: [3]uint32{1, 1, 1}}
	}
	gputest.Submit(t, d, commands...)
	if got := gputest.As[uint32](gputest.Read(t, d, r.data))[0]; got != n*(n-1)/2 {
		t.Errorf("got %d, want %d: a pipeline is missing or there twice", got, n*(n-1)/2)
	}
	slices.Sort(labels)
	if len(slices.Compact(labels)) != n {
		t.Errorf("done was called for %d of %d", len(labels), n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.NewPipelines(ctx, descs, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func BenchmarkNewPipelines(b *testing.B) {
	d := gputest.Open(b)
	n := 0
	for b.Loop() {
		descs := make([]gpu.PipelineDesc, 16)
		for i := range descs {
			n++ // drivers keep what they compiled before
			source := strings.ReplaceAll(spins, "60000u", fmt.Sprint(n, "u"))
			descs[i] = gpu.PipelineDesc{Label: fmt.Sprint(n), Kernel: "spin", Source: source, Layout: readWrite}
		}
		for _, p := range must[[]gpu.Pipeline](b)(d.NewPipelines(context.Background(), descs, nil)) {
			p.Release()
		}
	}
}
