package conformance

import (
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// sameRows are steps that are computed apart, as rows of one of 64 rows: alone and in batches of 2, 5, 16 and 64, in other
// places and another order. Whatever a row is computed with, its bits must be the same.
var sameRows = [][]int{
	seq(0, 64), {0}, {37}, {63}, {37, 3}, {10, 11, 12, 13, 37}, {63, 37, 0, 1, 2}, seq(30, 46), {5, 4, 3, 2, 1, 0, 37}, seq(1, 38), {9, 8, 37},
}

// seq is from, from+1, .. to-1.
func seq(from, to int) []int {
	list := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

// pick is the listed rows of n elements each.
func pick[T any](x []T, rows []int, n int) []T {
	out := make([]T, 0, len(rows)*n)
	for _, r := range rows {
		out = append(out, x[r*n:(r+1)*n]...)
	}
	return out
}

// compareSteps runs one op for each of sameRows. build makes it for the listed rows, with its output of n words a row as the
// last output of the bench.
func (b *bench) compareSteps(what string, n int, build func(rows []int) (kernels.Op, error)) error {
	first := len(b.outputs)
	for i, rows := range sameRows {
		op, err := build(rows)
		if err := b.run(op, err, len(rows)); err != nil {
			return err
		}
		for at, row := range rows {
			b.twins = append(b.twins, twin{
				what: fmt.Sprintf("%s: row %d, place %d of %d", what, row, at, len(rows)), a: first, atA: row * n, b: first + i, atB: at * n, n: n,
			})
		}
	}
	return nil
}

// sameLinear is a layer with everything in it, for one weight format.
func sameLinear(b *bench, f quant.Format) error {
	const n, all = 70, 64
	for _, k := range []int{256, 3 * f.Multiple()} {
		x, before, bias := b.uniform(all*k), b.uniform(all*n), b.uniform(n)
		w := b.matrix(f, n, k)
		parts := cut(w, 2)
		weight, biasBuf := b.upload(parts...), b.inputFloats(bias)
		err := b.compareSteps("linear", n, func(rows []int) (kernels.Op, error) {
			m := len(rows)
			y := pick(before, rows, n)
			want := append([]float32(nil), y...)
			xs := pick(x, rows, k)
			ref.Matmul(&ref.MatmulArgs{M: m, X: xs, XStride: k, W: w, Bias: bias, Y: want, YStride: n, Add: true}, 0, n)
			return b.set.Linear(kernels.LinearArgs{
				Rows: m, X: b.linearInput(xs, m, k), UniformX: true, W: weight, Bias: biasBuf, Add: true, Y: b.outputFloats("linear y", summed, y, want), Step: b.step(m),
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sameNorm is a row's norm.
func sameNorm(b *bench) error {
	const dim, all = 400, 64
	x, weight := b.uniform(all*dim), b.uniform(dim)
	weightBuf := b.inputFloats(weight)
	return b.compareSteps("rms_norm", dim, func(rows []int) (kernels.Op, error) {
		xs, want := pick(x, rows, dim), poisonedFloats(len(rows)*dim)
		ref.RMSNorm(&ref.RMSNormArgs{Dim: dim, Eps: 1e-5, X: xs, Weight: weight, Y: want}, 0, len(rows))
		return b.set.RMSNorm(kernels.RMSNormArgs{
			Rows: len(rows), Dim: dim, Eps: 1e-5, X: b.inputFloats(xs), Weight: weightBuf,
			Y: b.outputFloats("rms_norm y", functional, poisonedFloats(len(rows)*dim), want), Step: b.step(len(rows)),
		})
	})
}

// sameAttention is the tokens of four sequences: the end of a long context, a later chunk, the beginning of a prompt, and single
// tokens, each in batches of any of them. The tables of a step may also be longer than those of another.
func sameAttention(b *bench, kv quant.KVType, d int) error {
	const kvHeads, heads = 2, 6
	runs := attnStep{{300, 320}, {40, 72}, {0, 11}, {129, 130}}
	row := (heads + 2*kvHeads) * d
	maxBlocks := 20
	var tokens []ref.Token
	tables := poisoned(len(runs) * maxBlocks)
	free := b.Perm(len(runs) * maxBlocks)
	k, v := b.emptyCache(len(free), kvHeads, d, kv), b.emptyCache(len(free), kvHeads, d, kv)
	for s, r := range runs {
		var context []ref.Token
		for t := range r.to {
			if t%kernels.BlockSize == 0 {
				tables[s*maxBlocks+t/kernels.BlockSize], free = uint32(free[0]), free[1:]
			}
			slot := tables[s*maxBlocks+t/kernels.BlockSize]*kernels.BlockSize + uint32(t%kernels.BlockSize)
			context = append(context, ref.Token{Position: uint32(t), Slot: slot, Seq: uint32(s)})
		}
		ref.KVStore(&ref.KVStoreArgs{
			Tokens: context, RowStride: 2 * kvHeads * d, VOffset: kvHeads * d, QKV: b.uniform(r.to * 2 * kvHeads * d), K: k, V: v,
		}, 0, r.to)
		tokens = append(tokens, context[r.from:]...)
	}
	qkv := b.uniform(len(tokens) * row)
	scale := float32(1 / math.Sqrt(float64(d)))
	kBuf, vBuf := b.buffer("k", k.Words, gpu.UsageStorage), b.buffer("v", v.Words, gpu.UsageStorage)
	steps := 0
	return b.compareSteps("attention", heads*d, func(rows []int) (kernels.Op, error) {
		steps++
		wider := maxBlocks + 40*(steps%2) // as a longer limit on sequences makes them
		table := poisoned(len(runs) * wider)
		for s := range runs {
			copy(table[s*wider:], tables[s*maxBlocks:][:maxBlocks])
		}
		some, q, want := pick(tokens, rows, 1), pick(qkv, rows, row), poisonedFloats(len(rows)*heads*d)
		ref.PagedAttn(&ref.PagedAttnArgs{
			Tokens: some, BlockTables: table, MaxBlocks: wider, Heads: heads, RowStride: row, Scale: scale, QKV: q, K: k, V: v, Out: want,
		}, 0, len(rows))
		return b.set.Attention(kernels.AttentionArgs{
			Rows: len(rows), Heads: heads, KVHeads: kvHeads, HeadDim: d, RowStride: row, MaxBlocks: wider, KV: kv,
			Tokens: b.tokens(some, len(rows)), BlockTables: b.input(table), QKV: b.inputFloats(q), KCache: kBuf, VCache: vBuf,
			Out: b.outputFloats("attention out", attended, poisonedFloats(len(rows)*heads*d), want), Step: b.step(len(rows)),
		})
	})
}
