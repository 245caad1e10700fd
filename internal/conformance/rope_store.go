package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// ropeTokens is a rotary table and tokens that use it, each with a slot of its own in so many blocks but the second, which is not stored.
func (b *bench) ropeTokens(rows, blocks, d int) (table []float32, tokens []ref.Token) {
	const positions = 33
	for range positions * d / 2 {
		sin, cos := math.Sincos(b.Float64() * 7)
		table = append(table, float32(cos), float32(sin))
	}
	tokens = make([]ref.Token, rows)
	for m, slot := range b.Perm(blocks*kernels.BlockSize - 1)[:rows] {
		tokens[m] = ref.Token{Position: uint32(b.IntN(positions)), Slot: uint32(slot) + 1}
	}
	if rows > 1 {
		tokens[1].Slot = kernels.NoSlot
	}
	return table, tokens
}

// ropeStoreCase rotates and stores for each head dimension; one token stores nothing, and no other slot may change, nor the keys and
// values that the rows hold.
func ropeStoreCase(b *bench, kv quant.KVType, dims []int, halfSplit bool) error {
	for i, d := range dims {
		heads, kvHeads, rows := 3+i%2, []int{1, 2, 3}[i%3], 1+3*i
		bucket, stride := rows+i%2, (heads+2*kvHeads)*d+2*(i%2)
		const blocks = 3
		table, tokens := b.ropeTokens(rows, blocks, d)
		before := b.rowsOf(rows, bucket, stride)
		want := append([]float32(nil), before...)
		k, v := b.emptyCache(blocks, kvHeads, d, kv), b.emptyCache(blocks, kvHeads, d, kv)
		ref.RopeStore(&ref.RopeStoreArgs{
			Tokens: tokens, Heads: heads, RowStride: stride, HalfSplit: halfSplit, Table: table, QKV: want, K: k, V: v,
		}, 0, rows)
		kind, tol := floats, rounded
		if kv == quant.KVF16 {
			kind, tol = halves, half
		}
		empty := poisoned(len(k.Words))
		op, err := b.set.RopeStore(kernels.RopeStoreArgs{
			Rows: bucket, Heads: heads, KVHeads: kvHeads, HeadDim: d, RowStride: stride, HalfSplit: halfSplit, KV: kv,
			Tokens: b.tokens(tokens, bucket), Table: b.inputFloats(table), QKV: b.outputFloats("rope_store qkv", rounded, before, want),
			KCache: b.output("rope_store k", kind, tol, empty, k.Words), VCache: b.output("rope_store v", kind, tol, empty, v.Words),
			Step: b.step(rows),
		})
		if err := b.run(op, err, bucket); err != nil {
			return err
		}
	}
	return nil
}

// ropedShapes are layers of queries, keys and values that are rotated and stored: few rows and many, whole and cut, with and without bias.
var ropedShapes = []struct {
	rows, bucket, heads, kvHeads, d, k, surplus int
	bias, halfSplit                             bool
}{
	{rows: 6, bucket: 7, heads: 3, kvHeads: 1, d: 16, k: 256, bias: true},
	{rows: 37, bucket: 40, heads: 2, kvHeads: 1, d: 32, k: 1024, surplus: 2, halfSplit: true},
	{rows: 35, bucket: 35, heads: 1, kvHeads: 2, d: 16, k: 512, bias: true},
}

// ropedCase runs such layers of one weight format.
func ropedCase(b *bench, f quant.Format) error {
	for _, s := range ropedShapes {
		const blocks = 3
		n, k := (s.heads+2*s.kvHeads)*s.d, rowOf(f, s.k)
		stride := n + s.surplus
		w, x := b.matrix(f, n, k), b.rowsOf(s.rows, s.bucket, k)
		table, tokens := b.ropeTokens(s.rows, blocks, s.d)
		args := kernels.LinearArgs{Rows: s.bucket, X: b.linearInput(x, s.bucket, k), UniformX: true, W: b.upload(w), YStride: stride, Step: b.step(s.rows)}
		var bias []float32
		if s.bias {
			bias = b.uniform(n)
			args.Bias = b.inputFloats(append(append([]float32(nil), bias...), make([]float32, s.surplus)...))
		}
		sums := make([]float32, s.rows*stride)
		ref.Matmul(&ref.MatmulArgs{M: s.rows, X: x, XStride: k, W: w, Bias: bias, Y: sums, YStride: stride}, 0, n)
		keys, values := b.emptyCache(blocks, s.kvHeads, s.d, quant.KVF32), b.emptyCache(blocks, s.kvHeads, s.d, quant.KVF32)
		ref.RopeStore(&ref.RopeStoreArgs{
			Tokens: tokens, Heads: s.heads, RowStride: stride, HalfSplit: s.halfSplit, Table: table, QKV: sums, K: keys, V: values,
		}, 0, s.rows)
		// Only queries have a meaning afterwards: what else a row holds depends on the variant.
		y := b.outputFloats("roped linear q", fusedTolerance, poisonedFloats(s.bucket*stride), append(sums, poisonedFloats((s.bucket-s.rows)*stride)...))
		b.outputs[len(b.outputs)-1].free = func(word int) bool { return word < s.rows*stride && word%stride >= s.heads*s.d }
		empty := poisoned(len(keys.Words))
		args.Y = y
		args.Rope = &kernels.RopeStoreArgs{
			Rows: s.bucket, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.d, RowStride: stride, HalfSplit: s.halfSplit, KV: quant.KVF32,
			Tokens: b.tokens(tokens, s.bucket), Table: b.inputFloats(table), QKV: y,
			KCache: b.output("roped linear k", floats, fusedTolerance, empty, keys.Words),
			VCache: b.output("roped linear v", floats, fusedTolerance, empty, values.Words), Step: args.Step,
		}
		op, err := b.set.Linear(args)
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}
