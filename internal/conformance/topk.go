package conformance

import (
	"cmp"
	"math"
	"slices"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// sampled is how far the sum of a softmax may be from ref: what internal/sample relies on.
var sampled = tolerance{1e-30, 1e-4}

// topKCase runs rows of each kind over vocabularies around the number of slices (1,024), and one of ERNIE's size.
func topKCase(b *bench) error {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, s := range []struct{ vocab, limit, k int }{
		{1, 1, 1}, {64, 63, 64}, {65, 65, 64}, {1024, 1024, 128}, {2500, 2400, 5}, {5000, 5000, 128}, {103424, 101304, 64},
	} {
		set := []func(row []float32){
			func([]float32) {},
			func(row []float32) { scaleBy(row, 12) },
			func(row []float32) { // many equals: the lower ids come first
				for i := range row {
					row[i] = float32(b.IntN(3))
				}
			},
			func(row []float32) { // the best all lie in one slice
				for i := s.limit / 3 % 1024; i < s.limit; i += 1024 {
					row[i] += 4
				}
			},
			func(row []float32) { // more than can be collected lie in as many slices as there are candidates
				for i := range s.limit {
					if i/8%512 < s.k {
						row[i] += 4
					}
				}
			},
			func(row []float32) { fill(row, -3) },
			func(row []float32) { fill(row, -inf); row[s.limit-1] = 2 },
			func(row []float32) { fill(row, -inf) },
			func(row []float32) { row[s.limit/3] = inf },
			func(row []float32) { row[s.limit-1] = nan },
			func(row []float32) { row[0] = float32(math.Copysign(math.NaN(), -1)) },
			func(row []float32) { fill(row, float32(math.Copysign(0, -1))); row[s.limit-1] = 0 },
		}
		if err := topK(b, s.vocab, s.limit, s.k, set, 0); err != nil {
			return err
		}
	}
	return nil
}

// topKRaceCase runs races, in which candidates have random numbers.
func topKRaceCase(b *bench) error {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, s := range []struct{ vocab, limit, k int }{{1, 1, 1}, {70, 64, 64}, {2500, 2400, 8}, {103424, 101304, 16}} {
		set := []func(row []float32){
			func([]float32) {},
			func(row []float32) { scaleBy(row, 12) },
			func(row []float32) { fill(row, 0.5) },
			func(row []float32) { row[s.limit/2] = 40 },
			func(row []float32) { row[s.limit/2] = inf },
			func(row []float32) { row[s.limit/2] = nan },
		}
		if err := topK(b, s.vocab, s.limit, s.k, set, 1); err != nil {
			return err
		}
	}
	return nil
}

// topK adds one step.
func topK(b *bench, vocab, limit, k int, set []func(row []float32), race uint32) error {
	rows := len(set)
	bucket := rows + 2
	logits := b.rowsOf(rows, bucket, vocab)
	draws := make([]ref.Draw, bucket)
	a := ref.TopKArgs{Vocab: vocab, Limit: limit, K: k, Draws: draws, Logits: logits}
	a.Top, a.Sums = make([]ref.Best, bucket*k), make([][2]uint32, bucket)
	for m, change := range set {
		row := logits[m*vocab:][:vocab]
		change(row)
		for i := limit; i < vocab; i++ {
			row[i] = []float32{float32(math.NaN()), 100}[i%2]
		}
		draws[m] = ref.Draw{InvTemperature: []float32{1, 1.7, 0.4}[m%3], Race: race}
		for clear := false; !clear; { // of near-ties, which a device may decide otherwise
			draws[m].Key = [2]uint32{b.Uint32(), b.Uint32()}
			clear = race == 0 || clearRace(&draws[m], row[:limit], k)
		}
	}
	ref.TopK(&a, 0, rows)
	top, sums, words16 := poisoned(2*bucket*k), poisoned(2*bucket), make([]uint32, 0, 4*bucket)
	for i, t := range a.Top[:rows*k] {
		top[2*i], top[2*i+1] = t.Bits, t.ID
	}
	for m, s := range a.Sums[:rows] {
		sums[2*m], sums[2*m+1] = s[0], s[1]
	}
	for _, d := range draws {
		words16 = append(words16, math.Float32bits(d.InvTemperature), d.Race, d.Key[0], d.Key[1])
	}
	op, err := b.set.TopK(kernels.TopKArgs{
		Rows: bucket, Vocab: vocab, Limit: limit, K: k, Logits: b.inputFloats(logits), Draws: b.input(words16),
		Top:  b.output("topk top", words, exact, poisoned(len(top)), top),
		Sums: b.output("topk sums", floats, sampled, poisoned(len(sums)), sums), Step: b.step(rows),
	})
	return b.run(op, err, bucket)
}

// clearRace reports whether the first k arrivals, and the next one, are well apart.
func clearRace(d *ref.Draw, row []float32, k int) bool {
	scores := make([]float64, len(row))
	for id, l := range row {
		scores[id] = float64(d.Score(l, id))
		if math.IsInf(scores[id], 1) || l != l {
			return true
		}
	}
	slices.SortFunc(scores, func(x, y float64) int { return cmp.Compare(y, x) })
	for i := range min(k, len(scores)-1) {
		if scores[i]-scores[i+1] < 2e-4 {
			return false
		}
	}
	return true
}
