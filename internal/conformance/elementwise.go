package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/ref"
)

// siluMulCase includes gates at which exp overflows or vanishes.
func siluMulCase(b *bench) error {
	for _, s := range []struct{ rows, bucket, dim int }{{1, 1, 1}, {1, 1, 63}, {2, 2, 64}, {3, 5, 65}, {7, 8, 1000}} {
		gateUp := b.rowsOf(s.rows, s.bucket, 2*s.dim)
		for i := range s.rows * 2 * s.dim {
			gateUp[i] *= 8
		}
		for i, v := range []float32{0, -100, 100, -87, 88, -1e30, 1e30} {
			if i < s.dim-1 {
				gateUp[i] = v
			}
		}
		want := poisonedFloats(s.bucket * s.dim)
		ref.SiLUMul(&ref.SiLUMulArgs{Dim: s.dim, GateUp: gateUp, Out: want}, 0, s.rows)
		op, err := b.set.SiLUMul(kernels.SiLUMulArgs{
			Rows: s.bucket, Dim: s.dim, GateUp: b.inputFloats(gateUp),
			Out: b.outputFloats("silu_mul out", functional, poisonedFloats(s.bucket*s.dim), want), Step: b.step(s.rows),
		})
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// gatherRowsCase picks rows, some of them twice.
func gatherRowsCase(b *bench) error {
	for _, s := range []struct{ rows, bucket, dim, stride, from int }{{1, 1, 1, 1, 1}, {2, 4, 64, 70, 5}, {9, 9, 65, 65, 4}} {
		x := b.uniform(s.from * s.stride)
		index := make([]uint32, s.bucket)
		for i := range index {
			index[i] = uint32(b.IntN(s.from))
		}
		index[0] = uint32(s.from - 1)
		want := poisonedFloats(s.bucket * s.dim)
		ref.GatherRows(&ref.GatherRowsArgs{Dim: s.dim, XStride: s.stride, Rows: index, X: x, Out: want}, 0, s.rows)
		op, err := b.set.GatherRows(kernels.GatherRowsArgs{
			Rows: s.bucket, Dim: s.dim, XStride: s.stride, Index: b.input(index), X: b.inputFloats(x),
			Out: b.outputFloats("gather_rows out", exact, poisonedFloats(s.bucket*s.dim), want), Step: b.step(s.rows),
		})
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// gatherColumnsCase puts rows in another order, from rows that are longer and from rows that are not.
func gatherColumnsCase(b *bench) error {
	for _, s := range []struct{ rows, bucket, k, stride int }{{1, 1, 1, 1}, {2, 4, 64, 70}, {9, 9, 65, 65}, {3, 3, 512, 512}} {
		x := b.rowsOf(s.rows, s.bucket, s.stride)
		order := make([]uint32, s.k)
		for j, from := range b.Perm(s.k) {
			order[j] = uint32(from + s.stride - s.k)
		}
		want := poisonedFloats(s.bucket * s.k)
		ref.GatherColumns(&ref.GatherColumnsArgs{K: s.k, XStride: s.stride, Order: order, X: x, Out: want}, 0, s.rows)
		op, err := b.set.GatherColumns(kernels.GatherColumnsArgs{
			Rows: s.bucket, K: s.k, XStride: s.stride, Order: b.input(order), X: b.inputFloats(x),
			Out: b.outputFloats("gather_columns out", exact, poisonedFloats(s.bucket*s.k), want), Step: b.step(s.rows),
		})
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// argmaxCase has ties, infinities, rows of one value, NaN in the first, a middle and the last place, and NaN and large
// values from limit on, which must not count.
func argmaxCase(b *bench) error {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, s := range []struct{ vocab, limit int }{{1, 1}, {64, 63}, {1024, 1024}, {1025, 1025}, {2500, 2400}, {6145, 6144}} {
		set := []func(row []float32){
			func([]float32) {},
			func(row []float32) { row[s.limit-1], row[s.limit/2] = 5, 5 },
			func(row []float32) { fill(row, -3) },
			func(row []float32) { fill(row, -inf) },
			func(row []float32) { row[s.limit/3] = inf },
			func(row []float32) { row[0] = nan },
			func(row []float32) { row[s.limit/2] = float32(math.Copysign(math.NaN(), -1)) },
			func(row []float32) { row[s.limit-1] = nan },
			func(row []float32) { fill(row, float32(math.Copysign(0, -1))); row[s.limit-1] = 0 },
		}
		rows := len(set)
		bucket := rows + 2
		logits := b.rowsOf(rows, bucket, s.vocab)
		for m, change := range set {
			row := logits[m*s.vocab:][:s.vocab]
			change(row)
			for i := s.limit; i < s.vocab; i++ {
				row[i] = []float32{nan, 100}[i%2]
			}
		}
		want := poisoned(bucket)
		ref.Argmax(logits, s.vocab, s.limit, want[:rows])
		op, err := b.set.Argmax(kernels.ArgmaxArgs{
			Rows: bucket, Vocab: s.vocab, Limit: s.limit, Logits: b.inputFloats(logits),
			IDs: b.output("argmax ids", words, exact, poisoned(bucket), want), Step: b.step(rows),
		})
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}

func fill(row []float32, v float32) {
	for i := range row {
		row[i] = v
	}
}
