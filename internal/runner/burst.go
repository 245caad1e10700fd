package runner

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/model"
	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
)

// MaxBurst is the most steps of a Burst, MaxFlights the most bursts between Burst and Collect.
const (
	MaxBurst   = model.MaxBurst
	MaxFlights = model.Flights
)

// What Burst.At gives where there is no token.
const (
	NaN       = -1 // the logits hold a NaN
	Undecided = -2 // the device cannot prove which token it is: see ReadLogits
	NoToken   = -3 // the row had ended
)

// BurstRow says how a row of a burst goes on by itself.
type BurstRow struct {
	Left  int     // most tokens that it may produce
	Stops []int32 // ids after which it ends; those beyond kernels.MaxStops are left to the caller
	Draw  sample.DeviceState
	// Adjust has the row's logits changed as it says before a token is chosen from them; nil: they stay as they are. OpenAdjust comes
	// before, and as long as a sequence is in every series it has the same one.
	Adjust *sample.Sampler
}

// Choice is how the rows of a burst choose their tokens.
type Choice uint8

// The choices; each costs more than the one before.
const (
	ChooseBest   Choice = iota // the largest logit, for all rows
	ChooseDrawn                // as BurstRow.Draw says, where no row has a top_p
	ChooseNuclei               // as BurstRow.Draw says
)

// Burst is what some steps have found for each row.
type Burst struct {
	Steps int
	width int // ids of a step
	ids   []uint32
}

// MakeBurst is a burst of steps of width ids: tokens, or codes as kernels.Advance leaves them.
func MakeBurst(width int, ids []uint32) Burst {
	return Burst{Steps: len(ids) / width, width: width, ids: ids}
}

// At is the token that a row got in a step, or NaN, Undecided or NoToken.
func (b Burst) At(step, row int) int32 {
	switch id := b.ids[step*b.width+row]; id {
	case kernels.NoID:
		return NaN
	case kernels.Undecided:
		return Undecided
	case kernels.NoToken:
		return NoToken
	default:
		return int32(id)
	}
}

// bursts is the state of steps that follow each other on the device.
type bursts struct {
	rows    int // of the plan; 0: none
	head    gpu.Program
	first   int // positions of the longest context of the first step
	next    int // steps submitted since Begin; that many have advanced the ring
	flights []flight
	free    []int // buffers of back that no flight has
	back    []gpu.Buffer
	copies  [MaxFlights][segments]gpu.Program // a segment of the ring to a buffer of back; nil: not needed yet
	submit  []gpu.Program
	states  []uint32
	stops   []uint32
	draws   []uint32
	ids     []uint32 // of the burst that was collected last
}

// flight is a burst under way.
type flight struct {
	fetch gpu.Fetch
	back  int
	slot  int // of its segment that has its first step
	steps int
}

// A burst lies in one segment of the ring, which is copied and read as a whole: so the programs that copy are few, whatever
// the lengths of bursts are.
const (
	segmentSlots = MaxBurst
	segments     = kernels.RingSlots / segmentSlots
)

func (r *Runner) openBursts(seqs int) error {
	b := &r.bursts
	*b = bursts{
		submit: make([]gpu.Program, 0, 2*MaxBurst+1), flights: make([]flight, 0, MaxFlights),
		states: make([]uint32, 0, kernels.StateBytes/4*seqs), stops: make([]uint32, 0, kernels.MaxStops*seqs),
		draws: make([]uint32, 0, (kernels.SamplerBytes+kernels.DrawBytes)/4*seqs), ids: make([]uint32, segmentSlots*seqs),
	}
	for i := range MaxFlights {
		size := int64(4 * segmentSlots * seqs)
		buf, err := r.dev.NewBuffer(fmt.Sprintf("tokens of bursts to read %d", i), size, gpu.UsageMapRead|gpu.UsageCopyDst)
		if err != nil {
			return memoryError("scratch", size, err)
		}
		b.back, b.free = append(b.back, buf), append(b.free, i)
	}
	return nil
}

func (b *bursts) release() {
	for _, list := range b.copies {
		for _, p := range list {
			if p != nil {
				p.Release()
			}
		}
	}
	for _, buf := range b.back {
		buf.Release()
	}
}

// Begin prepares bursts of a plan: each of its sequences has one token to compute and wants its logits, and goes on as the row of
// the same index says. Earlier bursts have been collected.
func (r *Runner) Begin(p *sched.Plan, rows []BurstRow, choice Choice) error {
	b := &r.bursts
	if len(b.flights) > 0 || len(rows) != len(p.Chunks) || p.NumTokens != len(rows) || p.NumLogits != len(rows) {
		panic(fmt.Sprintf("BUG: runner: bursts of %d rows for %d sequences, %d tokens and %d rows of logits; %d under way",
			len(rows), len(p.Chunks), p.NumTokens, p.NumLogits, len(b.flights)))
	}
	b.rows = 0
	start := time.Now()
	defer func() { r.clock.Encode += time.Since(start) }()
	if err := r.in.write(r.dev, r.fwd, p); err != nil {
		return err
	}
	adjusted, err := r.adjusts.begin(r, p, rows)
	if err != nil {
		return err
	}
	if err := b.write(r, rows, choice); err != nil {
		return err
	}
	want := wantNext
	if adjusted {
		want = wantAdjusted
	}
	head, err := r.head(headKey{bucket(len(rows), r.limits.MaxSeqs), want + Want(choice)})
	if err != nil {
		return err
	}
	b.rows, b.next, b.head, b.first = len(rows), 0, head, r.in.longest
	return nil
}

// write tells the device how rows go on.
func (b *bursts) write(r *Runner, rows []BurstRow, choice Choice) error {
	b.states, b.stops = b.states[:0], b.stops[:0]
	for at, row := range rows {
		n := min(len(row.Stops), kernels.MaxStops)
		b.states = append(b.states, 0, uint32(max(row.Left, 0)), uint32(n), r.adjusts.flags[at])
		for i := range kernels.MaxStops {
			id := int32(0)
			if i < n {
				id = row.Stops[i]
			}
			b.stops = append(b.stops, uint32(id))
		}
	}
	if err := r.dev.WriteBuffer(r.fwd.States, 0, gpu.Bytes(b.states)); err != nil {
		return err
	}
	if err := r.dev.WriteBuffer(r.fwd.Stops, 0, gpu.Bytes(b.stops)); err != nil || choice == ChooseBest {
		return err
	}
	b.draws = b.draws[:0]
	for _, row := range rows {
		d := row.Draw
		b.draws = append(b.draws, math.Float32bits(d.InvTemperature), d.TopK, math.Float32bits(d.TopP), math.Float32bits(d.MinP),
			uint32(d.Key), uint32(d.Key>>32), uint32(d.Step), uint32(d.Step>>32))
	}
	if err := r.dev.WriteBuffer(r.fwd.Samplers, 0, gpu.Bytes(b.draws)); err != nil {
		return err
	}
	b.draws = b.draws[:0]
	for i := range rows {
		b.draws = appendDraw(b.draws, rows[i].Draw.Draw(choice == ChooseNuclei))
	}
	return r.dev.WriteBuffer(r.fwd.Draws, 0, gpu.Bytes(b.draws))
}

// Room is the most steps that the next Burst may have.
func (r *Runner) Room() int {
	if len(r.bursts.free) == 0 {
		return 0
	}
	return segmentSlots - r.bursts.next%segmentSlots
}

// Burst submits steps more steps, at most Room. The sequences of p, those of Begin, have blocks for all that was submitted.
func (r *Runner) Burst(p *sched.Plan, steps int) error {
	start := time.Now()
	b := &r.bursts
	if steps < 1 || steps > r.Room() || b.rows == 0 {
		panic(fmt.Sprintf("BUG: runner: a burst of %d steps, room for %d, %d rows", steps, r.Room(), b.rows))
	}
	for s := range p.Chunks {
		if err := r.in.writeTable(r.dev, r.fwd, s, p.Chunks[s].Seq.Table); err != nil {
			return err
		}
	}
	back := b.free[len(b.free)-1]
	tail, err := b.copy(r, back, b.next%kernels.RingSlots/segmentSlots)
	if err != nil {
		return err
	}
	r.in.longest = b.first + b.next + steps - 1 // in the last of them
	trunk, err := r.trunk(bucket(b.rows, r.limits.MaxSeqs))
	if err != nil {
		return err
	}
	b.submit = b.submit[:0]
	for range steps {
		b.submit = append(b.submit, trunk, b.head)
	}
	b.submit = append(b.submit, tail)
	if err := r.submitAll(start, b.submit, steps*b.rows, steps); err != nil {
		return err
	}
	slot := b.next % segmentSlots
	b.next += steps
	fetch, err := r.dev.Fetch(b.back[back], b.back[back].Size())
	if err != nil {
		return err
	}
	b.free = b.free[:len(b.free)-1]
	b.flights = append(b.flights, flight{fetch: fetch, back: back, slot: slot, steps: steps})
	return nil
}

// copy gives the program that copies a segment of the ring to a buffer of back.
func (b *bursts) copy(r *Runner, back, segment int) (gpu.Program, error) {
	if p := b.copies[back][segment]; p != nil {
		return p, nil
	}
	size := b.back[back].Size()
	p, err := r.dev.NewProgram(fmt.Sprintf("tokens of segment %d", segment), []gpu.Command{{
		CopySrc: r.fwd.Ring, CopySrcOffset: size * int64(segment), CopyDst: b.back[back], CopySize: size,
	}})
	if err == nil {
		b.copies[back][segment] = p
	}
	return p, err
}

// Collect waits for the oldest burst under way. What it gives is valid until the next call.
func (r *Runner) Collect(ctx context.Context) (Burst, error) {
	b := &r.bursts
	f := b.flights[0]
	copy(b.flights, b.flights[1:])
	b.flights = b.flights[:len(b.flights)-1]
	b.free = append(b.free, f.back)
	if err := r.wait(func() error { return f.fetch.Wait(ctx, gpu.Bytes(b.ids)) }, 4*len(b.ids)); err != nil {
		r.adjusts.forget()
		return Burst{}, err
	}
	width := r.limits.MaxSeqs
	burst := MakeBurst(width, b.ids[width*f.slot:width*(f.slot+f.steps)])
	r.adjusts.took(burst)
	return burst, nil
}
