//go:build !js

package conformance_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/sample"
)

// TestBurstDrawsWhatTheHostDraws runs many steps in one submission: every row's logits are made anew, changed, and drawn from on
// the device, and the tokens must be those of a Sampler that sees each step.
func TestBurstDrawsWhatTheHostDraws(t *testing.T) {
	t.Run("native", func(t *testing.T) {
		dev := gputest.Open(t)
		for _, serial := range []bool{false, true} {
			t.Run(fmt.Sprintf("serial %v", serial), func(t *testing.T) { burst(t, dev, kernels.Tuning{BarrierFree: serial}) })
		}
	})
	t.Run("cpu", func(t *testing.T) {
		dev, err := cpu.Open(cpu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(dev.Close)
		burst(t, dev, kernels.TuningFor(dev.Info()))
	})
}

// burstRow is a row of the test.
type burstRow struct {
	sampler *sample.Sampler
	logits  []float32
}

func burstRows(vocab, limit int) []burstRow {
	rng := rand.New(rand.NewPCG(11, 12))
	var rows []burstRow
	for n := range 36 {
		p, seed := sample.Default(), int64(n)
		p.Seed = &seed
		switch n % 12 {
		case 0:
			p.Temperature = 0
		case 1:
			p.Temperature, p.RepetitionPenalty = 0, 1.3
		case 2:
			p.TopP = 0.95
		case 3:
			p.Temperature, p.TopP = 0.8, 0.8
		case 4:
			p.TopK = 40
		case 5:
			p.MinP = 0.05
		case 6:
			p.FrequencyPenalty, p.PresencePenalty, p.TopP = 0.7, 0.4, 0.9
		case 7:
			p.MinTokens, p.EndIDs, p.Temperature = 4, []int32{7, 9}, 0
		case 8:
			p.LogitBias = map[int32]float64{3: 9, 4: -100}
		case 9:
			p.TopK, p.TopP, p.MinP, p.RepetitionPenalty = 30, 0.9, 0.02, 1.1
		case 10:
			p.MinP, p.TopP = 0.01, 0.7
		}
		row := burstRow{sample.New(p, limit, 7, 5, 5), make([]float32, vocab)}
		for i, at := range rng.Perm(vocab) {
			row.logits[at] = float32(-(0.7+0.03*float64(n))*math.Log(float64(i+1)) + rng.NormFloat64()*0.2 + 3)
		}
		row.logits[7] = 5 // an end of answer comes often
		rows = append(rows, row)
	}
	return rows
}

func burst(t *testing.T, dev gpu.Device, tuning kernels.Tuning) {
	const vocab, limit, k, steps, maxBlocks = 3003, 3000, sample.DeviceTopK, 12, 4
	rows := burstRows(vocab, limit)
	m := len(rows)
	buffer := func(label string, words []uint32) gpu.Buffer {
		buf, err := dev.NewBuffer(label, int64(len(words)+3)/4*16, gpu.UsageStorage|gpu.UsageUniform|gpu.UsageCopyDst|gpu.UsageCopySrc)
		if err == nil {
			err = dev.WriteBuffer(buf, 0, gpu.Bytes(words))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(buf.Release)
		return buf
	}
	const entries = 4
	var draws, samplers, states, tokens, logits []uint32
	penalties, listed, counts := make([]uint32, 8*m), make([]uint32, 2*m*entries), make([]uint32, m*vocab)
	for i, r := range rows {
		record := m - 1 - i
		d, ok := r.sampler.Device()
		adj, ok2 := r.sampler.Adjust()
		if !ok || !ok2 {
			t.Fatalf("row %d: no device can choose", i)
		}
		draw := d.Draw(true)
		race, flag := uint32(0), uint32(0)
		if draw.Race {
			race = 1
		}
		if d.Adjusts {
			flag = kernels.FlagPenalized | kernels.FlagCounted
		}
		draws = append(draws, math.Float32bits(draw.InvTemperature), race, uint32(draw.Key), uint32(draw.Key>>32))
		samplers = append(samplers, math.Float32bits(d.InvTemperature), d.TopK, math.Float32bits(d.TopP), math.Float32bits(d.MinP),
			uint32(d.Key), uint32(d.Key>>32), uint32(d.Step), uint32(d.Step>>32))
		states = append(states, 60, 1000, 0, uint32(record)<<kernels.FlagRecord|flag)
		const position = 30
		tokens = append(tokens, 1, position, 0, uint32(i))
		copy(penalties[8*record:], []uint32{
			math.Float32bits(adj.Repetition), math.Float32bits(adj.Frequency), math.Float32bits(adj.Presence),
			uint32(len(adj.Biases)), uint32(position + adj.Bans),
		})
		for j, b := range adj.Biases {
			id := uint32(b.ID)
			if b.Biased {
				id |= kernels.EntryBiased
			}
			if b.Banned {
				id |= kernels.EntryBanned
			}
			listed[2*(record*entries+j)], listed[2*(record*entries+j)+1] = id, math.Float32bits(b.Bias)
		}
		r.sampler.Counts(&adj, counts[record*vocab:][:limit])
		for _, l := range r.logits {
			logits = append(logits, math.Float32bits(l))
		}
	}
	set := kernels.NewTuned(dev, tuning)
	defer set.Release()
	step := gpu.Binding{Buffer: buffer("step", []uint32{uint32(m), 0, 0, 0})}
	model, now := buffer("model", logits), buffer("logits", logits)
	ids, ring := buffer("ids", make([]uint32, m)), buffer("ring", make([]uint32, kernels.RingSlots*m))
	a := kernels.AdvanceArgs{
		Rows: m, MaxBlocks: maxBlocks, RingRows: m, IDs: ids, States: buffer("states", states), Stops: buffer("stops", make([]uint32, 8*m)),
		BlockTables: buffer("tables", make([]uint32, m*maxBlocks)), Tokens: buffer("tokens", tokens), Ring: ring,
		Counts: buffer("counts", counts), Vocab: vocab, Step: step,
	}
	top := kernels.TopKArgs{
		Rows: m, Vocab: vocab, Limit: limit, K: k, Logits: now, Draws: buffer("draws", draws), Top: buffer("top", make([]uint32, 2*m*k)),
		Sums: buffer("sums", make([]uint32, 2*m)), Step: step,
	}
	commands := []gpu.Command{{CopySrc: model, CopyDst: now, CopySize: int64(4 * m * vocab)}}
	var ops []kernels.Op
	add := func(op kernels.Op, err error) {
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	add(set.Penalize(kernels.PenalizeArgs{
		Rows: m, Records: m, Vocab: vocab, Limit: limit, Entries: entries, Tokens: a.Tokens, States: a.States, Penalties: buffer("penalties", penalties),
		Listed: buffer("listed", listed), Counts: a.Counts, Logits: now, Step: step,
	}))
	add(set.TopK(top))
	add(set.Sample(kernels.SampleArgs{
		Rows: m, K: k, Limit: limit, Top: top.Top, Sums: top.Sums, Samplers: buffer("samplers", samplers), Draws: top.Draws, IDs: ids,
		Logits: now, Vocab: vocab, Step: step,
	}))
	add(set.Advance(a))
	if err := set.Compile(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		commands = append(commands, op.Record(m)...)
	}
	program, err := dev.NewProgram("step", commands)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Release()
	back, err := dev.NewBuffer("back", int64(4*kernels.RingSlots*m), gpu.UsageMapRead|gpu.UsageCopyDst)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Release()
	end, err := dev.NewProgram("end", []gpu.Command{{CopySrc: ring, CopyDst: back, CopySize: back.Size()}})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Release()
	list := make([]gpu.Program, 0, steps+1)
	for range steps {
		list = append(list, program)
	}
	data := make([]byte, back.Size())
	if err := dev.Submit(append(list, end)...); err != nil {
		t.Fatal(err)
	}
	if err := dev.Read(t.Context(), back, 0, data); err != nil {
		t.Fatal(err)
	}
	waiting := 0
	for i, r := range rows {
		for n := range steps {
			got := binary.LittleEndian.Uint32(data[4*((60+n)%kernels.RingSlots*m+i):])
			if got == kernels.Undecided {
				waiting++
				break
			}
			want, err := r.sampler.Sample(r.logits)
			if err != nil || got != uint32(want) {
				t.Errorf("row %d, step %d: got %#x, want %d, %v", i, n, got, want, err)
				break
			}
			r.sampler.Accept(want)
		}
	}
	if waiting > m/10 {
		t.Errorf("%d of %d rows wait for the host", waiting, m)
	}
}
