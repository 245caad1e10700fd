package cpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
)

const (
	storage = gpu.UsageStorage | gpu.UsageCopyDst | gpu.UsageCopySrc
	uniform = gpu.UsageUniform | gpu.UsageCopyDst
)

// lab is a device with helpers that fail the test.
type lab struct {
	*Device
	t testing.TB
}

func open(t testing.TB, o Options) *lab {
	t.Helper()
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return &lab{d, t}
}

// must passes a result on.
func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// words is a buffer with this content.
func (l *lab) words(usage gpu.Usage, words ...uint32) gpu.Buffer {
	l.t.Helper()
	b, err := l.NewBuffer("words", int64(4*len(words)), usage)
	must(l.t, b, err)
	if err := l.WriteBuffer(b, 0, gpu.Bytes(words)); err != nil {
		l.t.Fatal(err)
	}
	return b
}

func (l *lab) floats(floats ...float32) gpu.Buffer {
	l.t.Helper()
	words := make([]uint32, len(floats))
	for i, f := range floats {
		words[i] = math.Float32bits(f)
	}
	return l.words(storage, words...)
}

// step is the Step uniform for m rows.
func (l *lab) step(m int) gpu.Buffer {
	l.t.Helper()
	return l.words(uniform, uint32(m), 0, 0, 0)
}

// dispatch is a command that runs a kernel on whole buffers.
func (l *lab) dispatch(name string, c map[string]uint32, buffers ...gpu.Buffer) gpu.Command {
	l.t.Helper()
	kind := kernels[name].layout
	ps, err := l.NewPipelines(context.Background(), []gpu.PipelineDesc{{Label: name, Kernel: name, Consts: c, Layout: kind}}, nil)
	must(l.t, ps, err)
	bindings := make([]gpu.Binding, len(buffers))
	for i, b := range buffers {
		bindings[i].Buffer = b
	}
	g, err := l.NewBindGroup(name, kind, bindings)
	return gpu.Command{Pipeline: ps[0], BindGroup: must(l.t, g, err), Grid: [3]uint32{1, 1, 1}}
}

// read copies a buffer out.
func (l *lab) read(b gpu.Buffer) []uint32 {
	l.t.Helper()
	back, err := l.NewBuffer("back", b.Size(), gpu.UsageMapRead|gpu.UsageCopyDst)
	must(l.t, back, err)
	p, err := l.NewProgram("read", []gpu.Command{{CopySrc: b, CopyDst: back, CopySize: b.Size()}})
	must(l.t, p, err)
	if err := l.Submit(p); err != nil {
		l.t.Fatal(err)
	}
	words := make([]uint32, b.Size()/4)
	if err := l.Read(context.Background(), back, 0, gpu.Bytes(words)); err != nil {
		l.t.Fatal(err)
	}
	return words
}

func (l *lab) readFloats(b gpu.Buffer) []float32 {
	l.t.Helper()
	return view[float32](l.read(b), 1)
}

// run executes commands and waits.
func (l *lab) run(commands ...gpu.Command) error {
	l.t.Helper()
	p, err := l.NewProgram("test", commands)
	must(l.t, p, err)
	if err := l.Submit(p); err != nil {
		return err
	}
	return l.Wait(context.Background())
}

func bits(f float32) uint32 { return math.Float32bits(f) }

var f32Weights = map[string]uint32{"WEIGHT": uint32(quant.F32)}

func TestInfo(t *testing.T) {
	l := open(t, Options{Workers: 3})
	info := l.Info()
	if info.Kind != gpu.KindCPU || info.Backend != "Go" || info.Driver != "cpu" || !info.BarrierFree || !strings.HasSuffix(info.Name, ", 3 threads") {
		t.Errorf("got %+v", info)
	}
	if l.Limits().MaxStorageBinding < gpu.DefaultLimits.MaxStorageBinding {
		t.Errorf("limits below WebGPU's: %+v", l.Limits())
	}
}

// A token passes through embed, norm, linear layer with bias, gate, argmax: every number can be followed by hand.
func TestChainOfKernels(t *testing.T) {
	l := open(t, Options{})
	step := l.step(2)
	tokens := l.words(storage, 1, 0, 0, 0, 0, 1, 1, 0) // ids 1 and 0
	table := l.floats(
		1, 1, 1, 1, 1, 1, 1, 1,
		3, 3, 3, 3, -3, -3, -3, -3)
	none := l.words(storage, 0, 0, 0, 0)
	x := l.floats(make([]float32, 3*8)...)
	y := l.floats(make([]float32, 3*8)...)
	gates := l.floats(make([]float32, 3*4)...)
	out := l.floats(make([]float32, 3*2)...)
	partial := l.words(storage, make([]uint32, 3*2*2)...)
	ids := l.words(storage, 9, 9, 9)
	w := l.floats(
		1, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 1, 0, 0, 0,
		1, 1, 1, 1, 0, 0, 0, 0,
		0, 0, 0, 0, 1, 1, 1, 1)
	bias := l.floats(0, 1, 0, 2)
	err := l.run(
		l.dispatch("embed", f32Weights, l.words(uniform, 8, 0, 2, 0), step, tokens, table, none, x),
		l.dispatch("rms_norm", nil, l.words(uniform, 8, bits(0), 0, 0), step, x, l.floats(1, 1, 1, 1, 1, 1, 1, 2), y),
		l.dispatch("matvec", f32Weights, l.words(uniform, 8, 4, 8, 4, 0, flagBias, 0, 0), step, y, w, none, bias, gates),
		l.dispatch("matmul_serial", f32Weights, l.words(uniform, 8, 4, 8, 4, 0, flagAdd, 0, 0), step, y, w, none, none, gates),
		l.dispatch("silu_mul", nil, l.words(uniform, 2, 0, 0, 0), step, gates, out),
		l.dispatch("argmax_partial", nil, l.words(uniform, 4, 4, 2, 0), step, gates, partial),
		l.dispatch("argmax_reduce", nil, l.words(uniform, 2, 0, 0, 0), step, partial, ids))
	if err != nil {
		t.Fatal(err)
	}
	// Row 0: x = ±3, its norm ±1 (the last -2). Twice the products plus the bias once.
	wantGates := []float32{2, -1, 8, -8, 2, 3, 8, 12, 0, 0, 0, 0}
	if got := l.readFloats(gates); !slices.Equal(got, wantGates) {
		t.Errorf("gates: got %v, want %v", got, wantGates)
	}
	silu := func(x float64) float32 { return float32(x / (1 + math.Exp(-x))) }
	wantOut := []float32{8 * silu(2), -8 * silu(-1), 8 * silu(2), 12 * silu(3), 0, 0}
	for i, got := range l.readFloats(out) {
		if math.Abs(float64(got-wantOut[i])) > 1e-6 {
			t.Errorf("out[%d]: got %v, want %v", i, got, wantOut[i])
		}
	}
	if got, want := l.read(ids), []uint32{2, 3, 9}; !slices.Equal(got, want) {
		t.Errorf("ids: got %v, want %v: row 2 is beyond the step", got, want)
	}
}

// Rotation, storing and all three kernels of attention on a context of two tokens.
func TestAttention(t *testing.T) {
	for _, f16 := range []uint32{0, 1} {
		l := open(t, Options{})
		const d = 16
		c := map[string]uint32{"HEAD_DIM": d, "KV_TYPE": f16, "PART": 1, "SPLIT": 0}
		step := l.step(2)
		// Two tokens of sequence 1, whose only block is block 2 of the cache.
		tokens := l.words(storage, 0, 0, 32, 1, 0, 1, 33, 1)
		blocks := l.words(storage, 9, 2)
		// Two query heads, one key and one value head. Query 0 is zero: it weighs both tokens alike. Query 1 sees a score of
		// 4 * 8 * 0.25 more for the second token.
		row := func(value float32, key float32) []float32 {
			x := make([]float32, 4*d)
			x[d] = 4
			x[2*d] = key
			x[3*d], x[4*d-1] = value, -value
			return x
		}
		qkv := l.floats(append(row(1, 0), row(3, 8)...)...)
		// No rotation for either position.
		table := l.floats(slices.Repeat([]float32{1, 0}, d)...)
		words := 3 * 16 * d / (1 + int(f16))
		k, v := l.words(storage, make([]uint32, words)...), l.words(storage, make([]uint32, words)...)
		out, combined := l.floats(make([]float32, 2*2*d)...), l.floats(make([]float32, 2*2*d)...)
		partial := l.floats(make([]float32, 2*2*3*(d+4))...)
		scale := bits(0.25)
		err := l.run(
			l.dispatch("rope", c, l.words(uniform, 3, 4*d, 0, 0), step, tokens, table, qkv),
			l.dispatch("kv_store", c, l.words(uniform, 1, 4*d, 2*d, 3*d), step, tokens, qkv, k, v),
			l.dispatch("paged_attn_serial", c, l.words(uniform, 2, 1, 4*d, 1, scale, 0, 0, 0), step, tokens, blocks, qkv, k, v, out),
			l.dispatch("paged_attn_decode", c, l.words(uniform, 2, 1, 4*d, 1, scale, 3, 0, 64), step, tokens, blocks, qkv, k, v, partial),
			l.dispatch("paged_attn_reduce", c, l.words(uniform, 2, 3, 0, 64), step, partial, combined))
		if err != nil {
			t.Fatal(err)
		}
		p := 1 / (1 + math.Exp(-8))
		want := []float64{1, 1, 2, 3*p + 1*(1-p)}
		for name, b := range map[string]gpu.Buffer{"serial": out, "decode+reduce": combined} {
			got := l.readFloats(b)
			for i, w := range want {
				if first, last := float64(got[i*d]), float64(got[i*d+d-1]); math.Abs(first-w) > 1e-6 || first != -last || got[i*d+1] != 0 {
					t.Errorf("f16 %d, %s, row %d head %d: got %v, want %v", f16, name, i/2, i%2, got[i*d:(i+1)*d], w)
				}
			}
		}
	}
}

func TestGatherRows(t *testing.T) {
	l := open(t, Options{})
	out := l.floats(7, 7, 7, 7)
	err := l.run(l.dispatch("gather_rows", nil, l.words(uniform, 2, 3, 0, 0), l.step(2), l.words(storage, 2, 0), l.floats(1, 2, 3, 4, 5, 6, 7, 8, 9), out))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.readFloats(out), []float32{7, 8, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A recorded program sees what was written between its submissions, and each submission what the last one left.
func TestProgramIsReplayed(t *testing.T) {
	l := open(t, Options{})
	x, y := l.floats(1, 0, 0, 0, 0, 0, 0, 0), l.floats(0)
	none := l.words(storage, 0, 0, 0, 0)
	w := l.floats(1, 0, 0, 0, 0, 0, 0, 0)
	p, err := l.NewProgram("add", []gpu.Command{l.dispatch("matvec", f32Weights, l.words(uniform, 8, 1, 8, 1, 0, flagAdd, 0, 0), l.step(1), x, w, none, none, y)})
	must(t, p, err)
	for i := range 4 {
		if err := l.WriteBuffer(x, 0, gpu.Bytes([]float32{float32(i + 1)})); err != nil {
			t.Fatal(err)
		}
		if err := l.Submit(p, p); err != nil {
			t.Fatal(err)
		}
	}
	if got := l.readFloats(y); got[0] != 20 {
		t.Errorf("got %v, want 2*(1+2+3+4)", got[0])
	}
}

func TestPipelineErrors(t *testing.T) {
	l := open(t, Options{})
	for _, c := range []struct {
		desc gpu.PipelineDesc
		want string
	}{
		{gpu.PipelineDesc{Kernel: "flash"}, `"flash"`},
		{gpu.PipelineDesc{Kernel: "silu_mul", Layout: layout(2, 1)}, "layout"},
		{gpu.PipelineDesc{Kernel: "embed", Layout: layout(3, 1)}, "WEIGHT is missing"},
		{gpu.PipelineDesc{Kernel: "embed", Layout: layout(3, 1), Consts: map[string]uint32{"WEIGHT": 77}}, "WEIGHT is 77"},
		{gpu.PipelineDesc{Kernel: "matmul", Layout: layout(4, 1), Consts: map[string]uint32{"WEIGHT": uint32(quant.Q4)}}, "GROUP is missing"},
		{gpu.PipelineDesc{Kernel: "matmul", Layout: layout(4, 1), Consts: map[string]uint32{"WEIGHT": uint32(quant.Q8), "GROUP": 12}}, "q8g12"},
		{gpu.PipelineDesc{Kernel: "rope", Layout: layout(2, 1), Consts: map[string]uint32{"HEAD_DIM": 24}}, "HEAD_DIM is 24"},
		{gpu.PipelineDesc{Kernel: "kv_store", Layout: layout(2, 2), Consts: map[string]uint32{"HEAD_DIM": 64}}, "KV_TYPE is missing"},
		{gpu.PipelineDesc{Kernel: "paged_attn_decode", Layout: layout(5, 1), Consts: map[string]uint32{"HEAD_DIM": 64, "KV_TYPE": 1}}, "PART is missing"},
	} {
		_, err := l.NewPipelines(context.Background(), []gpu.PipelineDesc{c.desc}, nil)
		if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.desc.Kernel) {
			t.Errorf("%+v: got %v, want an error about %s", c.desc, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.NewPipelines(ctx, make([]gpu.PipelineDesc, 1), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: got %v", err)
	}
	var seen []string
	descs := []gpu.PipelineDesc{{Label: "a", Kernel: "silu_mul", Layout: layout(1, 1)}, {Label: "b", Kernel: "rms_norm", Layout: layout(2, 1)}}
	if _, err := l.NewPipelines(context.Background(), descs, func(s string) { seen = append(seen, s) }); err != nil || !slices.Equal(seen, []string{"a", "b"}) {
		t.Errorf("progress: got %v, %v", seen, err)
	}
}

// Each call is wrong in one way, and says in which.
func TestValidation(t *testing.T) {
	l, other := open(t, Options{Memory: 1 << 20}), open(t, Options{})
	a, b := l.words(storage, 1, 2, 3, 4), l.words(storage, 1, 2, 3, 4)
	u := l.words(uniform, 4, 0, 0, 0)
	mapped, err := l.NewBuffer("mapped", 16, gpu.UsageMapRead|gpu.UsageCopyDst)
	must(t, mapped, err)
	big, err := l.NewBuffer("big", 1024, storage)
	must(t, big, err)
	gone := l.words(storage, 1)
	gone.Release()
	foreign := other.words(storage, 1, 2, 3, 4)
	readOnly, err := l.NewBuffer("sealed", 16, gpu.UsageStorage)
	must(t, readOnly, err)

	bind := func(layout []gpu.BindingKind, bindings ...gpu.Binding) error {
		_, err := l.NewBindGroup("g", layout, bindings)
		return err
	}
	record := func(c gpu.Command) error {
		_, err := l.NewProgram("p", []gpu.Command{c})
		return err
	}
	buffer := func(size int64, usage gpu.Usage) error {
		_, err := l.NewBuffer("b", size, usage)
		return err
	}
	silu := l.dispatch("silu_mul", nil, u, u, a, b)
	norm := l.dispatch("rms_norm", nil, u, u, a, a, b)
	ctx := context.Background()
	read, write := gpu.BindRead, gpu.BindReadWrite
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"empty buffer":       {buffer(0, storage), "size 0"},
		"huge buffer":        {buffer(l.Limits().MaxBufferSize+1, storage), "limit"},
		"no usage":           {buffer(4, 0), "usage"},
		"mapped storage":     {buffer(4, gpu.UsageMapRead|gpu.UsageStorage), "mapped"},
		"write misaligned":   {l.WriteBuffer(a, 2, make([]byte, 4)), "multiples of 4"},
		"write odd size":     {l.WriteBuffer(a, 0, make([]byte, 3)), "multiples of 4"},
		"write beyond":       {l.WriteBuffer(a, 8, make([]byte, 12)), "12 bytes at 8"},
		"write negative":     {l.WriteBuffer(a, -4, make([]byte, 4)), "offset -4"},
		"write sealed":       {l.WriteBuffer(readOnly, 0, make([]byte, 4)), "copy destination"},
		"write released":     {l.WriteBuffer(gone, 0, make([]byte, 4)), "released"},
		"write foreign":      {l.WriteBuffer(foreign, 0, make([]byte, 4)), "another device"},
		"write nil":          {l.WriteBuffer(nil, 0, make([]byte, 4)), "not a buffer"},
		"read unmapped":      {l.Read(ctx, a, 0, make([]byte, 4)), "map read"},
		"read beyond":        {l.Read(ctx, mapped, 12, make([]byte, 8)), "8 bytes at 12"},
		"too few bindings":   {bind(layout(1, 1), gpu.Binding{Buffer: u}), "1 bindings for a layout of 4"},
		"not uniform":        {bind([]gpu.BindingKind{gpu.BindUniform}, gpu.Binding{Buffer: a}), "uniform"},
		"not storage":        {bind([]gpu.BindingKind{read}, gpu.Binding{Buffer: u}), "storage"},
		"offset alignment":   {bind([]gpu.BindingKind{read}, gpu.Binding{Buffer: big, Offset: 64}), "multiple of 256"},
		"beyond the end":     {bind([]gpu.BindingKind{read}, gpu.Binding{Buffer: big, Offset: 256, Size: 1024}), "1024 bytes at 256"},
		"nothing left":       {bind([]gpu.BindingKind{read}, gpu.Binding{Buffer: big, Offset: 1024}), "nothing is left"},
		"released":           {bind([]gpu.BindingKind{read}, gpu.Binding{Buffer: gone}), "released"},
		"unknown kind":       {bind([]gpu.BindingKind{9}, gpu.Binding{Buffer: a}), "unknown kind"},
		"read and written":   {bind([]gpu.BindingKind{read, write}, gpu.Binding{Buffer: big, Size: 256}, gpu.Binding{Buffer: big, Offset: 256}), "both read and written"},
		"written twice":      {bind([]gpu.BindingKind{write, write}, gpu.Binding{Buffer: big, Size: 512}, gpu.Binding{Buffer: big, Offset: 256}), "same bytes"},
		"too many":           {bind(slices.Repeat([]gpu.BindingKind{read}, 9), slices.Repeat([]gpu.Binding{{Buffer: a}}, 9)...), "9 storage buffers"},
		"no pipeline":        {record(gpu.Command{Pipeline: fake{}, BindGroup: silu.BindGroup, Grid: silu.Grid}), "not a pipeline"},
		"no bind group":      {record(gpu.Command{Pipeline: silu.Pipeline, Grid: silu.Grid}), "not a bind group"},
		"other layout":       {record(gpu.Command{Pipeline: silu.Pipeline, BindGroup: norm.BindGroup, Grid: silu.Grid}), "layout"},
		"empty grid":         {record(gpu.Command{Pipeline: silu.Pipeline, BindGroup: silu.BindGroup, Grid: [3]uint32{1, 0, 1}}), "grid"},
		"huge grid":          {record(gpu.Command{Pipeline: silu.Pipeline, BindGroup: silu.BindGroup, Grid: [3]uint32{65536, 1, 1}}), "grid"},
		"copy onto itself":   {record(gpu.Command{CopySrc: a, CopyDst: a, CopySize: 4}), "itself"},
		"copy beyond source": {record(gpu.Command{CopySrc: a, CopyDst: big, CopySize: 20}), "copy from"},
		"copy beyond target": {record(gpu.Command{CopySrc: big, CopyDst: a, CopyDstOffset: 4, CopySize: 16}), "copy to"},
		"copy from mapped":   {record(gpu.Command{CopySrc: mapped, CopyDst: a, CopySize: 4}), "copy source"},
		"copy misaligned":    {record(gpu.Command{CopySrc: a, CopyDst: b, CopySrcOffset: 2, CopySize: 4}), "multiples of 4"},
		"foreign program":    {l.Submit(fake{}), "another device"},
	} {
		if !errors.Is(c.err, gpu.ErrInvalid) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error about %q", name, c.err, c.want)
		}
	}
	if err := bind([]gpu.BindingKind{write, write}, gpu.Binding{Buffer: big, Size: 256}, gpu.Binding{Buffer: big, Offset: 256}); err != nil {
		t.Errorf("distinct ranges of one buffer may be written: %v", err)
	}
	if err := l.Wait(ctx); err != nil {
		t.Errorf("after refused calls: %v", err)
	}
}

type fake struct{}

func (fake) Release() {}

// Numbers in buffers that do not fit are faults of the submission, reported once by the next Wait; the device lives on.
func TestFaults(t *testing.T) {
	l := open(t, Options{})
	none := l.words(storage, 0, 0, 0, 0)
	x, y := l.floats(make([]float32, 64)...), l.floats(make([]float32, 64)...)
	c := map[string]uint32{"HEAD_DIM": 16, "KV_TYPE": 0, "SPLIT": 0}
	token := func(words ...uint32) gpu.Buffer { return l.words(storage, words...) }
	huge := l.words(uniform, 1<<30, 1<<30, 1<<30, 1<<30, 1<<30, 0, 0, 0)
	for name, k := range map[string]struct {
		command gpu.Command
		want    string
	}{
		"short x":        {l.dispatch("silu_mul", nil, l.words(uniform, 33, 0, 0, 0), l.step(1), x, y), "gate_up: 64 elements, 66 needed"},
		"short step":     {l.dispatch("silu_mul", nil, l.words(uniform, 8, 0, 0, 0), l.words(uniform, 1), x, y), "step: 4 bytes"},
		"many rows":      {l.dispatch("silu_mul", nil, l.words(uniform, 8, 0, 0, 0), l.step(1<<30), x, y), "rows"},
		"huge sizes":     {l.dispatch("matmul", f32Weights, huge, l.step(1), x, x, none, none, y), "the most is"},
		"short params":   {l.dispatch("matmul", f32Weights, l.words(uniform, 8, 1, 8, 1), l.step(1), x, x, none, none, y), "params"},
		"short weights":  {l.dispatch("matmul", f32Weights, l.words(uniform, 8, 9, 8, 9, 0, 0, 0, 0), l.step(1), x, x, none, none, y), "weights: 64 words, 72 needed"},
		"columns of y":   {l.dispatch("matmul", f32Weights, l.words(uniform, 8, 4, 8, 6, 3, 0, 0, 0), l.step(1), x, x, none, none, y), "y_stride 6"},
		"k":              {l.dispatch("matmul", f32Weights, l.words(uniform, 12, 4, 12, 4, 0, 0, 0, 0), l.step(1), x, x, none, none, y), "k 12"},
		"position":       {l.dispatch("rope", c, l.words(uniform, 1, 16, 0, 0), l.step(1), token(0, 1000, 0, 0), x, y), "out of range"},
		"slot":           {l.dispatch("kv_store", c, l.words(uniform, 1, 16, 0, 0), l.step(1), token(0, 0, 1000, 0), x, y, l.floats(1, 2)), "out of range"},
		"block":          {l.dispatch("paged_attn_serial", c, l.words(uniform, 1, 1, 16, 1, 0, 0, 0, 0), l.step(1), token(0, 0, 0, 0), token(7), x, x, x, y), "out of range"},
		"context":        {l.dispatch("paged_attn_serial", c, l.words(uniform, 1, 1, 16, 1, 0, 0, 0, 0), l.step(1), token(0, 0xFFFFFFFF, 0, 0), token(0), x, x, x, y), "out of range"},
		"kv heads":       {l.dispatch("paged_attn_serial", c, l.words(uniform, 3, 2, 48, 1, 0, 0, 0, 0), l.step(1), token(0, 0, 0, 0), token(0), x, x, x, y), "no multiple"},
		"row to gather":  {l.dispatch("gather_rows", nil, l.words(uniform, 8, 8, 0, 0), l.step(1), token(9), x, y), "out of range"},
		"vocabulary":     {l.dispatch("argmax_partial", nil, l.words(uniform, 8, 9, 1, 0), l.step(1), x, y), "limit 9"},
		"no parts":       {l.dispatch("argmax_reduce", nil, l.words(uniform, 0, 0, 0, 0), l.step(1), x, y), "no parts"},
		"short q scales": {l.dispatch("embed", map[string]uint32{"WEIGHT": uint32(quant.Q8), "GROUP": 8}, l.words(uniform, 8, 0, 8, 0), l.step(1), token(0, 0, 0, 0), x, none, y), "scales: 4 words, 8 needed"},
	} {
		err := l.run(k.command)
		if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: got %v, want an error about %q", name, err, k.want)
		}
		if err := l.Wait(context.Background()); err != nil {
			t.Errorf("%s: reported twice: %v", name, err)
		}
	}
	if err := l.run(l.dispatch("silu_mul", nil, l.words(uniform, 8, 0, 0, 0), l.step(1), x, y)); err != nil {
		t.Errorf("after the faults: %v", err)
	}
}

func TestMemory(t *testing.T) {
	l := open(t, Options{Memory: 4096})
	a, err := l.NewBuffer("a", 4093, storage)
	must(t, a, err)
	if a.Size() != 4096 {
		t.Errorf("size: got %d, want 4096", a.Size())
	}
	if _, err := l.NewBuffer("b", 4, storage); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("got %v, want out of memory", err)
	}
	a.Release()
	a.Release()
	b, err := l.NewBuffer("b", 4096, storage)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if _, err := l.NewBuffer("c", 4, storage); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a second release must not count twice: got %v", err)
	}
	b.Release()
}

// Released memory goes back to Go although bind groups and programs that used it are still held.
func TestGarbageCollection(t *testing.T) {
	l := open(t, Options{})
	var held []gpu.Program
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 8 {
		const size = 16 << 20
		b, err := l.NewBuffer("big", size, storage)
		must(t, b, err)
		y := l.floats(make([]float32, 8)...)
		c := l.dispatch("silu_mul", nil, l.words(uniform, 8, 0, 0, 0), l.step(1), b, y)
		p, err := l.NewProgram("p", []gpu.Command{c})
		held = append(held, must(t, p, err))
		if err := l.Submit(p); err != nil {
			t.Fatal(err)
		}
		b.Release()
		if err := l.Submit(p); !errors.Is(err, gpu.ErrInvalid) {
			t.Fatalf("a released buffer: got %v", err)
		}
		runtime.GC()
	}
	if err := l.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if after := heap(); after > before+(32<<20) {
		t.Errorf("heap grew from %d to %d MiB", before>>20, after>>20)
	}
	runtime.KeepAlive(held)
}

// slow is a command that takes some tenths of a second: a product of large matrices of zeros.
func slow(l *lab) gpu.Command {
	const m, k, n = 128, 2048, 2048
	buffer := func(words int64) gpu.Buffer {
		b, err := l.NewBuffer("slow", 4*words, storage)
		return must(l.t, b, err)
	}
	none := l.words(storage, 0, 0, 0, 0)
	return l.dispatch("matmul", f32Weights, l.words(uniform, k, n, k, n, 0, 0, 0, 0), l.step(m), buffer(m*k), buffer(n*k), none, none, buffer(m*n))
}

// A Read whose context ends returns at once and changes nothing; the work goes on and later Reads see its result.
func TestReadCancelled(t *testing.T) {
	l := open(t, Options{})
	back, err := l.NewBuffer("back", 4, gpu.UsageMapRead|gpu.UsageCopyDst)
	must(t, back, err)
	p, err := l.NewProgram("slow", []gpu.Command{slow(l), {CopySrc: l.words(storage, 42), CopyDst: back, CopySize: 4}})
	must(t, p, err)
	if err := l.Submit(p); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	got := []uint32{7}
	if err := l.Read(ctx, back, 0, gpu.Bytes(got)); !errors.Is(err, context.DeadlineExceeded) || got[0] != 7 {
		t.Errorf("got %v and %d, want the context's error and 7", err, got[0])
	}
	if err := l.Read(context.Background(), back, 0, gpu.Bytes(got)); err != nil || got[0] != 42 {
		t.Errorf("got %v and %d, want 42", err, got[0])
	}
}

// Close ends work that is under way, and everything afterwards says that the device is lost.
func TestClose(t *testing.T) {
	l := open(t, Options{})
	p, err := l.NewProgram("slow", slices.Repeat([]gpu.Command{slow(l)}, 50))
	must(t, p, err)
	b := l.words(storage, 1)
	if err := l.Submit(p); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Lost():
		t.Fatal("lost before Close")
	default:
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	start := time.Now()
	l.Close()
	l.Close()
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
	<-l.Lost()
	_, errBuffer := l.NewBuffer("b", 4, storage)
	_, errPipelines := l.NewPipelines(context.Background(), make([]gpu.PipelineDesc, 1), nil)
	_, errGroup := l.NewBindGroup("g", nil, nil)
	_, errProgram := l.NewProgram("p", nil)
	for i, err := range []error{l.Err(), errBuffer, errPipelines, errGroup, errProgram, l.Submit(p), l.Wait(context.Background()), l.WriteBuffer(b, 0, nil)} {
		if !errors.Is(err, gpu.ErrDeviceLost) {
			t.Errorf("call %d: got %v", i, err)
		}
	}
	b.Release()
}

func TestWriteBlob(t *testing.T) {
	l := open(t, Options{})
	b := l.words(storage, 0, 0, 0)
	blob := bytes.NewReader(binary.LittleEndian.AppendUint64([]byte{1, 2, 3, 4}, 0x0807060504030201))
	if ok, err := l.WriteBlob(b, 4, blobReader{blob}, 4, 8); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got, want := l.read(b), []uint32{0, 0x04030201, 0x08070605}; !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if _, err := l.WriteBlob(b, 0, blobReader{blob}, 8, 8); err == nil {
		t.Error("a blob that is too short was accepted")
	}
}

type blobReader struct{ *bytes.Reader }

func (b blobReader) Size() int64 { return b.Reader.Size() }

// The result of a product does not depend on the number of workers or on the rows beside it.
func TestWorkersAgree(t *testing.T) {
	const m, k, n = 5, 264, 67
	f := quant.Format{Kind: quant.Q4, Group: 8}
	noise := func(seed uint32, n int) []uint32 {
		words := make([]uint32, n)
		for i := range words {
			seed = seed*1664525 + 1013904223
			words[i] = seed
		}
		return words
	}
	x := make([]float32, m*k)
	for i, v := range noise(1, m*k) {
		x[i] = float32(int32(v)) / (1 << 31)
	}
	scales := noise(2, n*f.ScaleWords(k))
	for i, v := range scales {
		scales[i] = quant.PackScale(0x2000+uint16(v>>20), 0x4800) // zero point 8
	}
	result := func(workers, rows int) []float32 {
		l := open(t, Options{Workers: workers})
		y := l.floats(make([]float32, m*n)...)
		c := map[string]uint32{"WEIGHT": uint32(f.Kind), "GROUP": uint32(f.Group)}
		err := l.run(l.dispatch("matmul", c, l.words(uniform, k, n, k, n, 0, 0, 0, 0), l.step(rows), l.floats(x...),
			l.words(storage, noise(3, n*f.RowWords(k))...), l.words(storage, scales...), l.words(storage, 0, 0, 0, 0), y))
		if err != nil {
			t.Fatal(err)
		}
		return l.readFloats(y)
	}
	want := result(1, m)
	if got := result(4, m); !slices.Equal(got, want) {
		t.Error("4 workers give another result than 1")
	}
	if got := result(2, 1); !slices.Equal(got[:n], want[:n]) {
		t.Error("one row alone gives another result than among five")
	}
}

// A step allocates nothing once its scratch memory has grown.
func TestStepDoesNotAllocate(t *testing.T) {
	l := open(t, Options{Yield: func() {}}) // the event loop of JavaScript does allocate
	d := newDecoder(l, tinyShape, quant.Format{Kind: quant.Q4, Group: 32}, 1, 64)
	ctx, dst := context.Background(), make([]byte, 4)
	programs := []gpu.Program{d.program}
	step := func() {
		if err := errors.Join(l.WriteBuffer(d.tokens, 0, gpu.Bytes(d.row)), l.Submit(programs...), l.Read(ctx, d.back, 0, dst)); err != nil {
			t.Fatal(err)
		}
	}
	step()
	least := math.Inf(1)
	for range 5 { // what is counted is the whole process
		least = min(least, testing.AllocsPerRun(3, step))
	}
	if least > 1 { // errors.Join's own
		t.Errorf("%v allocations in a step", least)
	}
}

// Yield is called again and again while a long command runs, on one worker as in a browser.
func TestYield(t *testing.T) {
	calls := 0
	l := open(t, Options{Workers: 1, Yield: func() { calls++ }})
	start := time.Now()
	if err := l.run(slow(l)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); calls == 0 || calls > int(d/yieldEvery) {
		t.Errorf("%d calls in %v", calls, d)
	}
}

// In JavaScript a file operation ends only when the event loop runs, so these show that it does while a command computes.
func TestEventLoopRuns(t *testing.T) {
	if runtime.GOOS != "js" {
		t.Skip("there is an event loop in JavaScript only")
	}
	l := open(t, Options{})
	p, err := l.NewProgram("slow", []gpu.Command{slow(l)})
	must(t, p, err)
	if err := l.Submit(p); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Wait(context.Background()) }()
	for turns := 0; ; turns++ {
		select {
		case err := <-done:
			if err != nil || turns < 10 {
				t.Errorf("%d turns of the event loop, %v", turns, err)
			}
			return
		default:
			_, _ = os.Stat(".")
		}
	}
}

// Hammer: devices side by side, each used by its own goroutine, while others ask them what may be asked at any time.
func TestHammer(t *testing.T) {
	var users, watchers sync.WaitGroup
	for i := range 4 {
		l := open(t, Options{Workers: 1 + i})
		stop := make(chan struct{})
		watchers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-l.Lost():
					return
				default:
					if err := l.Err(); err != nil && !errors.Is(err, gpu.ErrDeviceLost) || l.Info().Driver != "cpu" || l.Limits().OffsetAlignment != 256 {
						t.Error(err)
						return
					}
					runtime.Gosched()
				}
			}
		})
		users.Go(func() {
			defer close(stop)
			const m, k, n = 16, 256, 512
			x, y := l.floats(slices.Repeat([]float32{1}, m*k)...), l.floats(make([]float32, m*n)...)
			w, none := l.floats(slices.Repeat([]float32{0.5}, n*k)...), l.words(storage, 0, 0, 0, 0)
			c := l.dispatch("matmul", f32Weights, l.words(uniform, k, n, k, n, 0, flagAdd, 0, 0), l.step(m), x, w, none, none, y)
			p, err := l.NewProgram("hammer", []gpu.Command{c, c})
			if err != nil {
				t.Error(err)
				return
			}
			for round := range 20 {
				scrap, err := l.NewBuffer("scrap", 4096, storage)
				if err := errors.Join(err, l.Submit(p), l.WriteBuffer(scrap, 0, make([]byte, 4096)), l.Submit(p, p)); err != nil {
					t.Error(err)
					return
				}
				scrap.Release()
				got := l.readFloats(y)
				if want := float32((round + 1) * 6 * k / 2); slices.Min(got) != want || slices.Max(got) != want {
					t.Errorf("device %d, round %d: got %v to %v, want %v", i, round, slices.Min(got), slices.Max(got), want)
					return
				}
			}
		})
	}
	users.Wait()
	watchers.Wait()
}
