package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// samplers are ways to draw, each with what it is tried for.
var samplers = []ref.Sampler{
	{},                  // greedy
	{InvTemperature: 1}, // a race over all
	{InvTemperature: 0.5},
	{InvTemperature: 100},
	{InvTemperature: 1.25, TopP: 0.8},
	{InvTemperature: 1, TopP: 1 - 0x1p-24},
	{InvTemperature: 1, TopP: 1e-30},
	{InvTemperature: 1, TopK: 40},
	{InvTemperature: 1, TopK: 1},
	{InvTemperature: 1, MinP: 3},
	{InvTemperature: 1e-6, MinP: 1e-16},
	{InvTemperature: 1.4, TopK: 50, TopP: 0.9, MinP: 4},
	{InvTemperature: 1, TopP: 0.5, MinP: 5},
	{InvTemperature: 1, TopK: 63, TopP: 0.7},
	{InvTemperature: 1e-12, TopP: 0.9},
	{InvTemperature: 0.6, TopP: 0.95},
	{InvTemperature: 0.6, TopP: 0.6, MinP: 3},
}

// sampleCase draws in all ways from logits of all kinds: steep and flat, with ties, infinities and NaN.
func sampleCase(b *bench) error { return sampleRows(b, false) }

// sampleMassCase looks at the logits a second time.
func sampleMassCase(b *bench) error { return sampleRows(b, true) }

func sampleRows(b *bench, withMass bool) error {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	kinds := []func(row []float32){
		func([]float32) {},
		func(row []float32) { scaleBy(row, 0.01) },
		func(row []float32) {
			for i := range row {
				row[i] = float32(math.Round(float64(row[i])))
			}
		},
		func(row []float32) { fill(row, -2) },
		func(row []float32) {
			for i := range row {
				if b.IntN(9) > 0 {
					row[i] = -inf
				}
			}
		},
		func(row []float32) { fill(row, -inf) },
		func(row []float32) { row[len(row)/2] = nan },
		func(row []float32) { row[len(row)/2] = inf },
		func(row []float32) { row[0], row[len(row)-1] = 3e38, -3e38 },
		func(row []float32) { row[0] = -3e38 },
		func(row []float32) { fill(row, -inf); row[len(row)-1] = 1 },
		func(row []float32) { scaleBy(row, 1e-30) },
	}
	for _, s := range []struct{ limit, k int }{{2500, 64}, {64, 64}, {65, 64}, {5, 64}, {1, 2}, {90, 7}} {
		rows := len(samplers) * len(kinds)
		bucket := rows + 1
		a := ref.SampleArgs{
			K: s.k, Limit: s.limit, Top: make([]ref.Best, bucket*s.k), Sums: make([][2]uint32, bucket), Samplers: make([]ref.Sampler, bucket),
			Draws: make([]ref.Draw, bucket), IDs: poisoned(bucket), Margin: 1,
		}
		if withMass {
			a.Parts = (s.limit + 2047) / 2048
			a.Mass = make([]ref.Mass, bucket*a.Parts)
		}
		all, vocab := poisonedFloats(bucket*(s.limit+3)), s.limit+3
		for m := range rows {
			a.Samplers[m] = samplers[m%len(samplers)]
			if a.Samplers[m].TopP == 0 {
				a.Samplers[m].TopP = 1
			}
			if a.Samplers[m].MinP == 0 {
				a.Samplers[m].MinP = ref.NoMinP
			}
			for clear := false; !clear; { // of what the errors of a device may decide
				logits := all[m*vocab:][:s.limit]
				for i, at := range b.Perm(s.limit) {
					logits[at] = float32(-1.5*math.Log(float64(i+1)) + b.NormFloat64()/3 + 5)
				}
				kinds[m/len(samplers)](logits)
				a.Samplers[m].Key = [2]uint32{b.Uint32(), b.Uint32()}
				a.Samplers[m].Step = [2]uint32{math.MaxUint32 - b.Uint32N(2), b.Uint32N(2)}
				a.Draws[m] = a.Samplers[m].Draw(withMass)
				ref.TopK(&ref.TopKArgs{
					Vocab: s.limit, Limit: s.limit, K: s.k, Draws: a.Draws[m:], Logits: logits, Top: a.Top[m*s.k:], Sums: a.Sums[m:],
				}, 0, 1)
				ref.SampleMass(&ref.MassArgs{
					Vocab: vocab, Limit: s.limit, Parts: a.Parts, K: s.k, Top: a.Top[m*s.k:], Sums: a.Sums[m:], Samplers: a.Samplers[m:],
					Draws: a.Draws[m:], Logits: logits, Mass: a.Mass[m*a.Parts:],
				}, 0, 1)
				clear = clearSample(a, m)
			}
		}
		var top, sums []uint32
		for _, t := range a.Top {
			top = append(top, t.Bits, t.ID)
		}
		for _, v := range a.Sums {
			sums = append(sums, v[:]...)
		}
		samplersBefore, drawsBefore := samplerWords(a.Samplers), drawWords(a.Draws)
		ref.Sample(&a, 0, rows)
		args := kernels.SampleArgs{
			Rows: bucket, K: s.k, Limit: s.limit, Top: b.input(top), Sums: b.input(sums),
			Samplers: b.output("sample samplers", words, exact, samplersBefore, samplerWords(a.Samplers)),
			Draws:    b.output("sample draws", words, exact, drawsBefore, drawWords(a.Draws)),
			IDs:      b.output("sample ids", words, exact, poisoned(bucket), a.IDs), Step: b.step(rows),
		}
		if withMass {
			args.Logits, args.Vocab = b.inputFloats(all), vocab
		}
		op, err := b.set.Sample(args)
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}

// clearSample reports whether row m is decided in one way by less and by more than the errors that are allowed for.
func clearSample(a ref.SampleArgs, m int) bool {
	var ids []uint32
	for _, margin := range []float64{0.2, 1, 5} {
		one := ref.SampleArgs{
			K: a.K, Limit: a.Limit, Top: a.Top[m*a.K:], Sums: a.Sums[m:], Samplers: []ref.Sampler{a.Samplers[m]}, Draws: []ref.Draw{a.Draws[m]},
			IDs: make([]uint32, 1), Margin: margin, Parts: a.Parts, Mass: a.Mass[m*a.Parts:],
		}
		ref.Sample(&one, 0, 1)
		ids = append(ids, one.IDs[0])
	}
	return ids[0] == ids[1] && ids[1] == ids[2]
}

func samplerWords(list []ref.Sampler) []uint32 {
	out := make([]uint32, 0, 8*len(list))
	for _, s := range list {
		out = append(out, math.Float32bits(s.InvTemperature), s.TopK, math.Float32bits(s.TopP), math.Float32bits(s.MinP),
			s.Key[0], s.Key[1], s.Step[0], s.Step[1])
	}
	return out
}

func drawWords(list []ref.Draw) []uint32 {
	out := make([]uint32, 0, 4*len(list))
	for _, d := range list {
		out = append(out, math.Float32bits(d.InvTemperature), d.Race, d.Key[0], d.Key[1])
	}
	return out
}
