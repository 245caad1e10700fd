package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
)

// bench collects ops with their inputs and the outputs that ref computed, and then runs all of them as one program:
// compiling and waiting happen once for a case, not once for a shape.
type bench struct {
	*rand.Rand
	ctx     context.Context
	dev     gpu.Device
	set     *kernels.Set
	buffers []gpu.Buffer
	runs    []run
	outputs []output
	twins   []twin
	err     error // the first one of making buffers
}

// run is one op for a bucket of rows.
type run struct {
	op   kernels.Op
	rows int
	long bool // contexts may be long
}

// output is one buffer that a kernel writes.
type output struct {
	name string
	buf  gpu.Buffer
	want []uint32 // what ref left there, then the guard
	kind kind
	tol  tolerance
	free func(word int) bool // if not nil, words that may hold anything
}

// twin is two stretches of outputs that must hold the same bits.
type twin struct {
	what   string
	a, b   int // of bench.outputs
	atA    int // words
	atB, n int // words
}

// guardWords follow each output.
const guardWords = 16

func newBench(ctx context.Context, dev gpu.Device, tuning kernels.Tuning, seed uint64) *bench {
	return &bench{
		Rand: rand.New(rand.NewPCG(seed, 0x70616765)), ctx: ctx, dev: dev, set: kernels.NewTuned(dev, tuning),
	}
}

func (b *bench) release() {
	b.set.Release()
	for _, buf := range b.buffers {
		buf.Release()
	}
}

// buffer makes a buffer with content, padded to 16 bytes.
func (b *bench) buffer(label string, content []uint32, usage gpu.Usage) gpu.Buffer {
	buf, err := b.dev.NewBuffer(label, int64(len(content)+3)/4*16, usage|gpu.UsageCopyDst)
	if err == nil {
		b.buffers = append(b.buffers, buf)
		err = b.dev.WriteBuffer(buf, 0, bytesOf(content))
	}
	if err != nil && b.err == nil {
		b.err = err
	}
	return buf
}

// input makes a buffer that kernels read.
func (b *bench) input(content []uint32) gpu.Buffer {
	return b.buffer("input", content, gpu.UsageStorage)
}

func (b *bench) inputFloats(content []float32) gpu.Buffer { return b.input(bitsOf(content)) }

// step is a Step that has rows rows.
func (b *bench) step(rows int) gpu.Binding {
	return gpu.Binding{Buffer: b.buffer("step", []uint32{uint32(rows), 0, 0, 0}, gpu.UsageUniform)}
}

// output makes a buffer that holds before and the guard, and is expected to hold want and the guard after the run.
func (b *bench) output(name string, k kind, tol tolerance, before, want []uint32) gpu.Buffer {
	guard := poisoned(guardWords)
	buf := b.buffer(name, append(before[:len(before):len(before)], guard...), gpu.UsageStorage|gpu.UsageCopySrc)
	b.outputs = append(b.outputs, output{name, buf, append(want[:len(want):len(want)], guard...), k, tol, nil})
	return buf
}

// outputFloats is output for f32.
func (b *bench) outputFloats(name string, tol tolerance, before, want []float32) gpu.Buffer {
	return b.output(name, floats, tol, bitsOf(before), bitsOf(want))
}

// run adds op for a bucket of rows.
func (b *bench) run(op kernels.Op, err error, rows int) error { return b.add(op, err, rows, false) }

func (b *bench) add(op kernels.Op, err error, rows int, long bool) error {
	if b.err != nil {
		return b.err
	}
	if err == nil {
		b.runs = append(b.runs, run{op, rows, long})
	}
	return err
}

// finish compiles and runs everything, and compares.
func (b *bench) finish(result *Result) error {
	if b.err != nil {
		return b.err
	}
	if err := b.set.Compile(b.ctx, nil); err != nil {
		return err
	}
	var commands []gpu.Command
	for _, r := range b.runs {
		if r.long {
			commands = append(commands, r.op.RecordLong(r.rows)...)
		} else {
			commands = append(commands, r.op.Record(r.rows)...)
		}
	}
	size := int64(0)
	for _, o := range b.outputs {
		commands = append(commands, gpu.Command{CopySrc: o.buf, CopyDstOffset: size, CopySize: 4 * int64(len(o.want))})
		size += 4 * int64(len(o.want))
	}
	back, err := b.dev.NewBuffer("read back", size, gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		return err
	}
	defer back.Release()
	for i := range commands {
		if commands[i].CopySrc != nil {
			commands[i].CopyDst = back
		}
	}
	program, err := b.dev.NewProgram("conformance", commands)
	if err != nil {
		return err
	}
	defer program.Release()
	if err := b.dev.Submit(program); err != nil {
		return err
	}
	data := make([]byte, size)
	if err := b.dev.Read(b.ctx, back, 0, data); err != nil {
		return err
	}
	result.Shapes = len(b.runs)
	written := make([][]byte, len(b.outputs))
	for i, o := range b.outputs {
		n := 4 * len(o.want)
		if err := o.compare(data[:n], result); err != nil {
			return err
		}
		written[i], data = data[:n], data[n:]
	}
	for _, t := range b.twins {
		x, y := written[t.a][4*t.atA:][:4*t.n], written[t.b][4*t.atB:][:4*t.n]
		if !bytes.Equal(x, y) {
			return fmt.Errorf("%s: the bits differ", t.what)
		}
	}
	return nil
}

// compare holds what the device wrote against what ref did.
func (o *output) compare(data []byte, result *Result) error {
	bad, first := 0, ""
	maxAbs, maxRel := 0.0, 0.0
	for i, want := range o.want {
		if o.free != nil && o.free(i) {
			continue
		}
		got := binary.LittleEndian.Uint32(data[4*i:])
		abs, rel, ok := diff(o.kind, got, want, o.tol)
		maxAbs, maxRel = max(maxAbs, abs), max(maxRel, rel)
		if !ok {
			if bad == 0 {
				first = fmt.Sprintf("at %d got %s, want %s", i, o.kind.format(got), o.kind.format(want))
			}
			bad++
		}
	}
	result.Values += len(o.want) - guardWords
	result.MaxAbs, result.MaxRel = max(result.MaxAbs, maxAbs), max(result.MaxRel, maxRel)
	if bad > 0 {
		return fmt.Errorf("%s: %d of %d values are off, %s; max abs %.3g, max rel %.3g (allowed: %.3g + %.3g*|want|)",
			o.name, bad, len(o.want), first, maxAbs, maxRel, o.tol.abs, o.tol.rel)
	}
	return nil
}

// format shows a word for people.
func (k kind) format(word uint32) string {
	switch {
	case word == poison:
		return "poison (not written, or computed from what must not be read)"
	case k == floats:
		return fmt.Sprintf("%g (%#08x)", math.Float32frombits(word), word)
	}
	return fmt.Sprintf("%#08x", word)
}

func bytesOf(words []uint32) []byte {
	out := make([]byte, 0, 4*len(words))
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

func bitsOf(values []float32) []uint32 {
	out := make([]uint32, len(values))
	for i, v := range values {
		out[i] = math.Float32bits(v)
	}
	return out
}

// poisoned is n words that must all be overwritten, or none may.
func poisoned(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = poison
	}
	return out
}

// poisonedFloats is poisoned as f32.
func poisonedFloats(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(poison)
	}
	return out
}

// uniform is n values in [-1, 1).
func (b *bench) uniform(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = 2*b.Float32() - 1
	}
	return out
}

// rowsOf is rows of n values in [-1, 1), and NaN in the surplus rows up to bucket, which kernels must leave alone.
func (b *bench) rowsOf(rows, bucket, n int) []float32 {
	return append(b.uniform(rows*n), poisonedFloats((bucket-rows)*n)...)
}
