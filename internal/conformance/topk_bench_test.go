//go:build !js

package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/sample"
)

// BenchmarkPick measures what follows the logits in a step of a burst, among ERNIE's 101,304 tokens: us/op is the device's time
// for one, among many in one submission.
func BenchmarkPick(b *testing.B) {
	dev := gputest.Open(b)
	for _, rows := range []int{1, 8, 32, 128} {
		p := newPicks(b, dev, rows)
		for _, name := range []string{
			"argmax", "argmax_advance", "topk", "topk_slices", "topk_pick", "topk_race", "topk_race_slices", "topk_race_pick", "sample",
			"sample_race", "sample_mass", "advance", "penalize",
		} {
			b.Run(fmt.Sprintf("%s/M%d", name, rows), func(b *testing.B) {
				fewer, more := p.program(b, p.ops[name], 5), p.program(b, p.ops[name], 25)
				best := time.Hour
				for b.Loop() {
					best = min(best, p.time(b, more)-p.time(b, fewer))
				}
				b.ReportMetric(float64(best.Nanoseconds())/20e3, "us/op")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// picks are the ops for some rows.
type picks struct {
	dev  gpu.Device
	rows int
	ops  map[string]func() []gpu.Command
}

func newPicks(b *testing.B, dev gpu.Device, rows int) *picks {
	const vocab, limit, k, maxBlocks = 103424, 101304, 64, 64
	rng := rand.New(rand.NewPCG(1, 2))
	buffer := func(words []uint32) gpu.Buffer {
		buf, err := dev.NewBuffer("bench", int64(len(words)+3)/4*16, gpu.UsageStorage|gpu.UsageUniform|gpu.UsageCopyDst)
		if err == nil {
			err = dev.WriteBuffer(buf, 0, gpu.Bytes(words))
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(buf.Release)
		return buf
	}
	floats := make([]float32, rows*vocab)
	for i := range floats {
		floats[i] = float32(rng.NormFloat64() * 3)
	}
	logits := make([]uint32, len(floats))
	copy(gpu.Bytes(logits), gpu.Bytes(floats))
	draws := func(race uint32) gpu.Buffer {
		var words []uint32
		for m := range rows {
			words = append(words, 0x3F800000, race, uint32(m), 0)
		}
		return buffer(words)
	}
	samplers := func(topP uint32) gpu.Buffer {
		var words []uint32
		for m := range rows {
			words = append(words, 0x3F800000, 0, topP, 0x7149F2CA, uint32(m), 0, 0, 0) // 1e30: no min_p
		}
		return buffer(words)
	}
	states := make([]uint32, 4*rows)
	for m := range rows {
		states[4*m+1] = 1 << 30
	}
	p := &picks{dev, rows, map[string]func() []gpu.Command{}}
	step := gpu.Binding{Buffer: buffer([]uint32{uint32(rows), 0, 0, 0})}
	ids, all := buffer(make([]uint32, rows)), buffer(logits)
	next := kernels.AdvanceArgs{
		Rows: rows, MaxBlocks: maxBlocks, RingRows: rows, IDs: ids, States: buffer(states), Stops: buffer(make([]uint32, 8*rows)),
		BlockTables: buffer(make([]uint32, rows*maxBlocks)), Tokens: buffer(make([]uint32, 4*rows)), Ring: buffer(make([]uint32, 64*rows)), Step: step,
	}
	set := kernels.New(dev)
	add := func(name string, op kernels.Op, err error) {
		if err != nil {
			b.Fatal(err)
		}
		p.ops[name] = func() []gpu.Command { return op.Record(rows) }
	}
	argmax := kernels.ArgmaxArgs{Rows: rows, Vocab: vocab, Limit: limit, Logits: all, IDs: ids, Step: step}
	op, err := set.Argmax(argmax)
	add("argmax", op, err)
	argmax.Advance = &next
	op, err = set.Argmax(argmax)
	add("argmax_advance", op, err)
	op, err = set.Advance(next)
	add("advance", op, err)
	for race, name := range []string{"topk", "topk_race"} {
		topP := uint32(0x3F4CCCCD) // 0.8
		if race == 1 {
			topP = 0x3F800000
		}
		a := kernels.TopKArgs{
			Rows: rows, Vocab: vocab, Limit: limit, K: k, Logits: all, Draws: draws(uint32(race)), Top: buffer(make([]uint32, 2*rows*k)),
			Sums: buffer(make([]uint32, 2*rows)), Step: step,
		}
		op, err = set.TopK(a)
		add(name, op, err)
		both := op
		p.ops[name+"_slices"] = func() []gpu.Command { return both.Record(rows)[:1] }
		p.ops[name+"_pick"] = func() []gpu.Command { return both.Record(rows)[1:] }
		op, err = set.Sample(kernels.SampleArgs{
			Rows: rows, K: sample.DeviceTopK, Limit: limit, Top: a.Top, Sums: a.Sums, Samplers: samplers(topP), Draws: a.Draws, IDs: ids, Step: step,
		})
		add([]string{"sample", "sample_race"}[race], op, err)
		if race == 1 {
			op, err = set.Sample(kernels.SampleArgs{
				Rows: rows, K: sample.DeviceTopK, Limit: limit, Top: a.Top, Sums: a.Sums, Samplers: samplers(0x3F4CCCCD), Draws: draws(1), IDs: ids,
				Logits: all, Vocab: vocab, Step: step,
			})
			add("sample_mass", op, err)
		}
	}
	counts, flags := make([]uint32, rows*vocab), make([]uint32, 4*rows)
	for m := range rows {
		flags[4*m+3] = kernels.FlagPenalized
		for range 1000 {
			counts[m*vocab+rng.IntN(limit)] = kernels.CountSeen | 1
		}
	}
	penalties := make([]uint32, 8*rows)
	for m := range rows {
		penalties[8*m], penalties[8*m+1], penalties[8*m+2] = 0x3F800000, 0, 0 // times and divided by 1
	}
	op, err = set.Penalize(kernels.PenalizeArgs{
		Rows: rows, Vocab: vocab, Limit: limit, Entries: 1, Tokens: next.Tokens, States: buffer(flags), Penalties: buffer(penalties),
		Listed: buffer(make([]uint32, 2*rows)), Counts: buffer(counts), Logits: all, Step: step,
	})
	add("penalize", op, err)
	if err := set.Compile(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(set.Release)
	return p
}

// program has an op several times.
func (p *picks) program(b *testing.B, commands func() []gpu.Command, times int) gpu.Program {
	var list []gpu.Command
	for range times {
		list = append(list, commands()...)
	}
	program, err := p.dev.NewProgram("bench", list)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(program.Release)
	return program
}

// time is how long a program takes until its end is seen.
func (p *picks) time(b *testing.B, program gpu.Program) time.Duration {
	start := time.Now()
	if err := p.dev.Submit(program); err != nil {
		b.Fatal(err)
	}
	if err := p.dev.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}
