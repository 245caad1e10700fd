package runner

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// making is a device that counts what is made on it.
type making struct {
	gpu.Device
	made  int   // buffers, pipelines, bind groups and programs
	bytes int64 // of buffers
}

func (d *making) NewBuffer(label string, size int64, usage gpu.Usage) (gpu.Buffer, error) {
	d.made, d.bytes = d.made+1, d.bytes+size
	return d.Device.NewBuffer(label, size, usage)
}

func (d *making) NewPipelines(ctx context.Context, descs []gpu.PipelineDesc, done func(string)) ([]gpu.Pipeline, error) {
	d.made += len(descs)
	return d.Device.NewPipelines(ctx, descs, done)
}

func (d *making) NewBindGroup(label string, layout []gpu.BindingKind, bindings []gpu.Binding) (gpu.BindGroup, error) {
	d.made++
	return d.Device.NewBindGroup(label, layout, bindings)
}

func (d *making) NewProgram(label string, commands []gpu.Command) (gpu.Program, error) {
	d.made++
	return d.Device.NewProgram(label, commands)
}

// burstCost is a series of bursts that can be begun again and again.
type burstCost struct {
	t    *testing.T
	r    *Runner
	plan *sched.Plan
	rows []BurstRow
}

func newBurstCost(t *testing.T, dev gpu.Device) *burstCost {
	r := openGolden(t, dev, "ernie", 0, Config{KV: quant.KVF32, MaxTokens: 64, MaxLogits: 4, MaxSeqs: 4, NumTokens: 500})
	b := &burstCost{t: t, r: r, plan: decodePlan(startOf(t, r, 3, 80))}
	for range b.plan.Chunks {
		d, _ := sample.New(sample.Default(), 500).Device()
		b.rows = append(b.rows, BurstRow{Left: 80, Stops: []int32{2}, Draw: d})
	}
	return b
}

func (b *burstCost) begin(choice Choice) {
	if err := b.r.Begin(b.plan, b.rows, choice); err != nil {
		b.t.Fatal(err)
	}
}

func (b *burstCost) burst(n int) {
	if err := b.r.Burst(b.plan, n); err != nil {
		b.t.Fatal(err)
	}
}

func (b *burstCost) collect() {
	if _, err := b.r.Collect(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// TestBurstsOfAnyLengthMakeFewPrograms has bursts of all lengths begin and end anywhere in the ring, with any number of them
// under way. What they make is bounded; a step of a burst makes nothing.
func TestBurstsOfAnyLengthMakeFewPrograms(t *testing.T) {
	for name, openDevice := range devices(t) {
		t.Run(name, func(t *testing.T) {
			inner := openDevice()
			defer inner.Close()
			dev := &making{Device: inner}
			b := newBurstCost(t, dev)
			b.begin(ChooseDrawn)
			b.burst(1)
			b.collect()
			before, rng := dev.made, rand.New(rand.NewPCG(3, 4))
			for range 10 {
				b.begin(ChooseDrawn)
				left, under := 64, 0
				for left > 0 || under > 0 {
					if n := min(b.r.Room(), 1+rng.IntN(MaxBurst), left); n > 0 && rng.IntN(2) == 0 {
						b.burst(n)
						left, under = left-n, under+1
					} else if under > 0 {
						b.collect()
						under--
					}
				}
			}
			if n := dev.made - before; n >= MaxFlights*segments {
				t.Errorf("bursts made %d things on the device, want less than %d", n, MaxFlights*segments)
			}
		})
	}
}

// TestBurstsAllocateNothing computes series of bursts natively: neither a step nor a burst nor the beginning of a series allocates
// in Go. (The processor's driver does its arithmetic in Go, and allocates for it.)
func TestBurstsAllocateNothing(t *testing.T) {
	b := newBurstCost(t, gputest.Open(t))
	series := func(choice Choice) func() {
		return func() {
			b.begin(choice)
			b.burst(1)
			for _, steps := range []int{1, 2, 4, 8, MaxBurst} {
				b.burst(steps)
				b.collect()
			}
			b.collect()
		}
	}
	for _, adjusted := range []bool{false, true} {
		if adjusted {
			b.adjust()
		}
		for _, choice := range []Choice{ChooseBest, ChooseDrawn, ChooseNuclei} {
			run := series(choice)
			run() // makes the programs
			if n := testing.AllocsPerRun(10, run); n != 0 {
				t.Errorf("choice %d, logits changed %v: a series of bursts allocates %v times", choice, adjusted, n)
			}
		}
	}
}

// adjust has two of the rows change their logits, one of which counts tokens.
func (b *burstCost) adjust() {
	if err := b.r.OpenAdjust(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	p := sample.Default()
	p.LogitBias = map[int32]float64{7: 1}
	b.rows[1].Adjust = sample.New(p, 500)
	p.RepetitionPenalty = 1.1
	b.rows[2].Adjust = sample.New(p, 500)
}

// TestMemoryToChangeLogitsIsMadeOnce has nothing made for it before it is asked for, and nothing again after.
func TestMemoryToChangeLogitsIsMadeOnce(t *testing.T) {
	dev := &making{Device: gputest.Open(t)}
	b := newBurstCost(t, dev)
	run := func() (made int) {
		before := dev.made
		b.begin(ChooseDrawn)
		b.burst(2)
		b.collect()
		return dev.made - before
	}
	run()
	if n := run(); n != 0 || b.r.adjusts.made != nil {
		t.Errorf("%d things were made; what changes logits was: %v", n, b.r.adjusts.made != nil)
	}
	size := dev.bytes
	b.adjust()
	if got, want := dev.bytes-size, model.AdjustedBytes(b.r.cfg, b.r.shape); got != want {
		t.Errorf("%d bytes were made to change logits, want %d", got, want)
	}
	run() // makes the head
	before := dev.made
	if err := b.r.OpenAdjust(t.Context()); err != nil || dev.made != before {
		t.Errorf("the second call made %d things, error %v", dev.made-before, err)
	}
	if n := run(); n != 0 {
		t.Errorf("%d things were made", n)
	}
}
