package conformance

import (
	"math"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// fusedShape is one layer of norm_linear.
type fusedShape struct {
	rows, bucket, n, k, parts int
	norm, bias, gated, add    bool
	shares                    int // of x, or with add of y
}

// fusedShapes are layers with every switch, for all numbers of lanes, and for a K that no number of lanes divides. The first has
// most of what there is.
var fusedShapes = []fusedShape{
	{rows: 2, bucket: 3, n: 38, k: 1024, parts: 1, norm: true, bias: true, gated: true},
	{rows: 1, bucket: 1, n: 1, k: 32, parts: 1, norm: true},
	{rows: 2, bucket: 4, n: 6, k: 96, parts: 1, bias: true, gated: true},
	{rows: 3, bucket: 3, n: 9, k: 2048, parts: 3, add: true},
	{rows: 1, bucket: 2, n: 5, k: 3072, parts: 1, norm: true, bias: true, add: true},
	{rows: 1, bucket: 1, n: 17, k: 4096, parts: 2},
	{rows: 2, bucket: 2, n: 7, k: 1280, parts: 1, norm: true},
	{rows: 3, bucket: 4, n: 12, k: 1024, parts: 1, norm: true, gated: true, shares: 4},
	{rows: 2, bucket: 2, n: 7, k: 3072, parts: 2, bias: true, add: true, shares: 2},
	{rows: 1, bucket: 1, n: 9, k: 96, parts: 1, norm: true, shares: 8},
	{rows: 3, bucket: 3, n: 5, k: 64, parts: 1, add: true, shares: 7},
}

// normLinearCase runs layers of one weight format.
func normLinearCase(b *bench, f quant.Format, shapes []fusedShape) error {
	for _, s := range shapes {
		k := rowOf(f, s.k)
		x := b.rowsOf(s.rows, s.bucket, k)
		parts := cut(b.matrix(f, s.n, k), s.parts)
		outputs := s.n
		if s.gated {
			outputs /= 2
		}
		before := poisonedFloats(s.bucket * outputs)
		if s.add {
			copy(before, b.uniform(s.rows*outputs))
		}
		want := append([]float32(nil), before...)
		args := kernels.NormLinearArgs{
			Rows: s.bucket, X: b.inputFloats(x), Eps: 1e-5, W: b.upload(parts...), Gated: s.gated, Add: s.add, Step: b.step(s.rows),
		}
		var norm, bias []float32
		if s.norm {
			norm = b.uniform(k)
			args.Norm = b.inputFloats(norm)
		}
		if s.bias {
			bias = b.uniform(s.n)
			args.Bias = b.inputFloats(bias)
		}
		var shares []float32
		var xShares, yShares int
		switch {
		case s.shares > 0 && s.add:
			yShares, shares = s.shares, b.uniform(s.bucket*s.shares*outputs)
		case s.shares > 0:
			xShares, shares = s.shares, b.uniform(s.bucket*s.shares*k)
		}
		if s.shares > 0 {
			args.Shares, args.XShares, args.YShares = b.inputFloats(shares), xShares, yShares
		}
		row := 0
		for _, part := range parts {
			ref.NormLinear(&ref.NormLinearArgs{
				M: s.rows, X: x[:s.rows*k], Norm: norm, Eps: 1e-5, W: part, Bias: bias, Gated: s.gated, Add: s.add, Y: want, YStride: outputs,
				YOffset: row, Shares: shares, XShares: xShares, YShares: yShares,
			}, 0, min(part.Rows, outputs))
			row += part.Rows
		}
		args.Y = b.outputFloats("norm_linear y", fusedTolerance, before, want)
		op, err := b.set.NormLinear(args)
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// fusedTolerance is that of a sum, of a norm and of what the gate adds.
var fusedTolerance = tolerance{4e-5, 4e-5}

// qkvShape is one layer of qkv_rope_store.
type qkvShape struct {
	rows, heads, kvHeads, d, k int
	halfSplit                  bool
	kv                         quant.KVType
}

// qkvShapes differ in head dimension, and have both kinds of pairs and of cache.
var qkvShapes = []qkvShape{
	{1, 4, 2, 128, 1024, false, quant.KVF16},
	{4, 3, 1, 64, 96, true, quant.KVF16},
	{2, 2, 2, 48, 2048, false, quant.KVF32},
	{3, 1, 1, 16, 4096, true, quant.KVF32},
}

// qkvRopeStoreCase runs layers of one weight format; in every other one a token stores nothing.
func qkvRopeStoreCase(b *bench, f quant.Format, shapes []qkvShape) error {
	for i, s := range shapes {
		k, stride := rowOf(f, s.k), (s.heads+2*s.kvHeads)*s.d
		const positions, blocks = 33, 3
		table := make([]float32, 0, positions*s.d)
		for range positions * s.d / 2 {
			sin, cos := math.Sincos(b.Float64() * 7)
			table = append(table, float32(cos), float32(sin))
		}
		tokens := make([]ref.Token, s.rows)
		for m, slot := range b.Perm(blocks*kernels.BlockSize - 1)[:s.rows] {
			tokens[m] = ref.Token{Position: uint32(b.IntN(positions)), Slot: uint32(slot) + 1}
		}
		if i%2 == 1 {
			tokens[1].Slot = kernels.NoSlot
		}
		x, norm, w := b.uniform(s.rows*k), b.uniform(k), b.matrix(f, stride, k)
		before := poisonedFloats(s.rows * stride)
		want := append([]float32(nil), before...)
		kc, vc := b.emptyCache(blocks, s.kvHeads, s.d, s.kv), b.emptyCache(blocks, s.kvHeads, s.d, s.kv)
		ref.QKVRopeStore(&ref.QKVRopeStoreArgs{
			Tokens: tokens, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.d, RowStride: stride, HalfSplit: s.halfSplit, X: x, Norm: norm,
			Eps: 1e-5, W: w, Table: table, QKV: want, K: kc, V: vc,
		}, 0, s.rows)
		kind, tol := floats, fusedTolerance
		if s.kv == quant.KVF16 {
			kind, tol = halves, tolerance{half.abs + fusedTolerance.abs, half.rel}
		}
		empty := poisoned(len(kc.Words))
		op, err := b.set.QKVRopeStore(kernels.QKVRopeStoreArgs{
			Rows: s.rows, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.d, RowStride: stride, HalfSplit: s.halfSplit, KV: s.kv, Eps: 1e-5,
			Tokens: b.uniformTokens(tokens, s.rows), X: b.inputFloats(x), Norm: b.inputFloats(norm), W: b.upload(w), Table: b.inputFloats(table),
			QKV:    b.outputFloats("qkv_rope_store qkv", fusedTolerance, before, want),
			KCache: b.output("qkv_rope_store k", kind, tol, empty, kc.Words),
			VCache: b.output("qkv_rope_store v", kind, tol, empty, vc.Words), Step: b.step(s.rows),
		})
		if err := b.run(op, err, s.rows); err != nil {
			return err
		}
	}
	return nil
}

// fewRuns has single tokens around the edges of what a workgroup of paged_attn_few takes at a time (64), and of all that it takes
// before it begins anew (256 and 2048).
var fewRuns = []attnStep{
	{{0, 1}},
	{{63, 64}, {64, 65}, {130, 131}},
	{{2, 3}, {255, 256}, {256, 257}, {900, 901}},
	{{2047, 2048}, {2048, 2049}},
}

// attnLinearCase runs steps for each head dimension, with a different number of heads per KV head each time.
func attnLinearCase(b *bench, f quant.Format, kv quant.KVType, dims []int, long bool) error {
	for i, d := range dims {
		for j, step := range fewRuns {
			s := b.scene(kv, d, 1+(i+j)%2, []int{8, 1, 4, 6}[(i+j)%4], step, j%2*(kernels.FusedRows-len(step)), b.uniformTokens)
			const n = 37
			k := s.args.Heads * d
			if k%f.Multiple() != 0 || k%32 != 0 {
				continue
			}
			parts := cut(b.matrix(f, n, k), 1+j%2)
			before := poisonedFloats(s.bucket * n)
			copy(before, b.uniform(s.rows*n))
			want := append([]float32(nil), before...)
			row := 0
			for _, part := range parts {
				ref.NormLinear(&ref.NormLinearArgs{
					M: s.rows, X: s.want[:s.rows*k], W: part, Add: true, Y: want, YStride: n, YOffset: row,
				}, 0, part.Rows)
				row += part.Rows
			}
			if long {
				s.args.Out = b.outputFloats("attn_linear out", attended, poisonedFloats(len(s.want)), s.want)
			}
			op, err := b.set.AttnLinear(kernels.AttnLinearArgs{
				Attention: s.args, W: b.upload(parts...), Y: b.outputFloats("attn_linear y", fusedTolerance, before, want), Long: long,
			})
			if err := b.run(op, err, s.bucket); err != nil {
				return err
			}
		}
	}
	return nil
}

// shortRuns has single tokens around the edges of what paged_attn_linear takes at a time: 16, 64 and 128 positions.
var shortRuns = []attnStep{
	{{0, 1}},
	{{63, 64}, {64, 65}, {127, 128}},
	{{2, 3}, {15, 16}, {16, 17}, {100, 101}},
}

// shortShapes are heads, how many of them make a share, and how many rows of weights an invocation has.
var shortShapes = []struct{ kvHeads, group, set, each int }{{2, 4, 4, 2}, {2, 3, 3, 2}, {1, 8, 4, 4}, {2, 8, 2, 2}, {1, 2, 2, 1}, {3, 1, 1, 4}}

// pagedAttnLinearCase runs steps for each head dimension, for every so many of the shapes.
func pagedAttnLinearCase(b *bench, f quant.Format, kv quant.KVType, dims []int, every int) error {
	for i, d := range dims {
		for j := i % every; j < len(shortShapes); j += every {
			shape := shortShapes[j]
			runs := shortRuns[(i+j)%3]
			k, n := shape.kvHeads*shape.group*d, 37+64*(j%2)
			if k%f.Multiple() != 0 || shape.set*d%32 != 0 {
				continue
			}
			s := b.scene(kv, d, shape.kvHeads, shape.group, runs, j%2*(kernels.FusedRows-len(runs)), b.uniformTokens)
			w, shares := b.matrix(f, n, k), shape.kvHeads*shape.group/shape.set
			want := poisonedFloats(s.bucket * shares * n)
			columns := shape.set * d
			for m := range s.rows { // what each set of heads adds, by the layer with all other inputs zero
				for share := range shares {
					x := make([]float32, k)
					copy(x[share*columns:], s.want[m*k+share*columns:][:columns])
					ref.NormLinear(&ref.NormLinearArgs{M: 1, X: x, W: w, Y: want[(m*shares+share)*n:], YStride: n}, 0, n)
				}
			}
			op, err := b.set.PagedAttnLinear(kernels.PagedAttnLinearArgs{
				Attention: s.args, W: b.upload(w), Set: shape.set, Each: shape.each,
				Shares: b.outputFloats("paged_attn_linear shares", fusedTolerance, poisonedFloats(len(want)), want),
			})
			if err := b.run(op, err, s.bucket); err != nil {
				return err
			}
		}
	}
	return nil
}

// headShape is an LM head and which of its logits stand out.
type headShape struct {
	rows, bucket, vocab, limit, k, parts int
	winners                              []int // ids whose logits are equal, and the largest by far
	nan                                  bool  // in the row that is read last
}

// headShapes have winners in one workgroup, in two and in two parts of the weight, larger logits past the limit, and limits in a part.
var headShapes = []headShape{
	{rows: 3, bucket: 4, vocab: 517, limit: 500, k: 1024, parts: 2, winners: []int{499, 140, 510}, nan: true},
	{rows: 1, bucket: 1, vocab: 70, limit: 0, k: 2048, parts: 1, winners: []int{69}},
	{rows: 2, bucket: 2, vocab: 1100, limit: 300, k: 3072, parts: 3, winners: []int{301, 7, 6}},
	{rows: 1, bucket: 3, vocab: 5, limit: 4, k: 64, parts: 1, winners: []int{0, 4, 3}},
}

// headArgmaxCase runs heads of one weight format, and with next the winners make the next step of their rows.
func headArgmaxCase(b *bench, f quant.Format, shapes []headShape, next bool) error {
	for _, s := range shapes {
		k := rowOf(f, s.k)
		w := b.matrix(f, s.vocab, k)
		for _, id := range s.winners[1:] { // equal rows have equal logits
			n, scales := f.RowWords(k), f.ScaleWords(k)
			copy(w.Data[id*n:(id+1)*n], w.Data[s.winners[0]*n:][:n])
			copy(w.Scales[id*scales:(id+1)*scales], w.Scales[s.winners[0]*scales:][:scales])
		}
		// Each row goes along the winners' weights, which makes their logit the largest.
		row := make([]float32, k)
		w.Row(s.winners[0], row)
		const inputs = 6
		x, norm := b.uniform(inputs*k), b.uniform(k)
		for i := range x {
			x[i] = 0.2*x[i] + row[i%k]*norm[i%k]*float32(math.Sqrt(float64(k)))
		}
		index := make([]uint32, kernels.FusedRows)
		for m, i := range b.Perm(inputs)[:s.rows] {
			index[m] = uint32(i)
		}
		if s.nan {
			x[int(index[s.rows-1])*k+k/2] = float32(math.NaN())
		}
		limit := s.limit
		if limit == 0 {
			limit = s.vocab
		}
		logits := poisonedFloats(s.bucket * s.vocab)
		ref.HeadLogits(&ref.HeadArgmaxArgs{Rows: index[:s.rows], X: x, Norm: norm, Eps: 1e-5, W: w, Vocab: s.vocab, Logits: logits}, 0, s.vocab)
		ids := poisoned(s.bucket)
		ref.Argmax(logits, s.vocab, limit, ids[:s.rows])
		args := kernels.HeadArgmaxArgs{
			Rows: s.bucket, Index: b.buffer("rows", index, gpu.UsageUniform), X: b.inputFloats(x), Norm: b.inputFloats(norm), Eps: 1e-5,
			W: b.upload(cut(w, s.parts)...), Limit: s.limit, Step: b.step(s.rows),
			Logits: b.outputFloats("head_argmax logits", fusedTolerance, poisonedFloats(len(logits)), logits),
			IDs:    b.output("head_argmax ids", words, exact, poisoned(s.bucket), ids),
		}
		if next {
			a, buffers := advanceRows(b, s.rows, s.bucket, s.bucket, 3, false)
			a.IDs = ids
			ref.Advance(a, 0, s.rows)
			step := buffers()
			step.Step = args.Step
			args.Advance = &step
		}
		op, err := b.set.HeadArgmax(args)
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// uniformTokens is tokens in a buffer that kernels read as a uniform, which is as large as the largest bucket.
func (b *bench) uniformTokens(tokens []ref.Token, _ int) gpu.Buffer {
	var words []uint32
	for _, t := range append(tokens[:len(tokens):len(tokens)], make([]ref.Token, kernels.FusedRows-len(tokens))...) {
		words = append(words, t.ID, t.Position, t.Slot, t.Seq)
	}
	return b.buffer("tokens", words, gpu.UsageUniform)
}
