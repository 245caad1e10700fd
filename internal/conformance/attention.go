package conformance

import (
	"math"
	"slices"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// tokenRun is some neighbouring tokens of one sequence in a step.
type tokenRun struct{ from, to int } // positions from..to-1

// attnStep is the runs of a step, each of its own sequence.
type attnStep []tokenRun

// decodeRuns has single tokens with contexts around the edges of blocks (16) and of partitions (64).
var decodeRuns = []attnStep{
	{{0, 1}},
	{{15, 16}, {16, 17}, {14, 15}},
	{{63, 64}, {64, 65}, {2, 3}, {299, 300}},
}

// longRuns has the beginnings and later chunks of prompts, mixed with single tokens, around the edges of query tiles (16).
var longRuns = []attnStep{
	{{0, 17}},
	{{5, 20}, {33, 34}, {0, 3}},
	{{40, 41}, {7, 40}, {0, 1}, {16, 20}},
}

// mixedRuns have chunks of prompts beside single tokens of few sequences and of many.
var mixedRuns = []attnStep{
	{{63, 64}, {0, 1}, {128, 129}, {5, 40}},
	{{7, 40}, {299, 300}, {40, 60}, {21, 22}},
	append(slices.Repeat(attnStep{{30, 31}, {257, 258}, {64, 65}}, 30), tokenRun{32, 70}),
}

// distantRuns has single tokens where loops over all positions would have more rounds than software adapters allow, which they
// end without a word; the last is the longest context of ERNIE-4.5.
var distantRuns = attnStep{{65_540, 65_541}, {131_071, 131_072}}

// attentionCase runs steps, and a random one, for each head dimension, with a different number of heads per KV head each time.
func attentionCase(b *bench, kv quant.KVType, dims []int, steps []attnStep) error {
	groups := []int{1, 3, 7, 8}
	for i, d := range dims {
		for j, step := range append(steps[:len(steps):len(steps)], b.randomStep()) {
			group := groups[(i+j)%len(groups)]
			kvHeads := 1 + (i+j)%2
			if err := attention(b, kv, d, kvHeads, group, step, (i+j)%3); err != nil {
				return err
			}
		}
	}
	return nil
}

// randomStep is up to four runs of up to 20 tokens each, in contexts of up to 150.
func (b *bench) randomStep() attnStep {
	step := make(attnStep, 1+b.IntN(4))
	for i := range step {
		from := b.IntN(130)
		step[i] = tokenRun{from, from + 1 + b.IntN(20)}
	}
	return step
}

// attentionLong has contexts longer than what one invocation of a software adapter may walk over: Mesa 22 ends an
// invocation's loops after 65,535 rounds of all of them together, and at head dimension 128 a position takes about eight.
func attentionLong(b *bench) error {
	if err := attention(b, quant.KVF16, 128, 1, 2, attnStep{{19_999, 20_000}, {4, 5}}, 0); err != nil {
		return err
	}
	return attention(b, quant.KVF16, 16, 1, 2, distantRuns, 0)
}

// scene is one step of attention: all arguments but Out, and what ref makes of them.
type scene struct {
	args         kernels.AttentionArgs
	rows, bucket int
	want         []float32 // [bucket, heads*d]
}

// attention adds one step, for any contexts and for long ones.
func attention(b *bench, kv quant.KVType, d, kvHeads, group int, step attnStep, surplus int) error {
	s := b.scene(kv, d, kvHeads, group, step, surplus, b.tokens)
	for _, long := range []bool{false, true} {
		s.args.Out = b.outputFloats("attention out", attended, poisonedFloats(len(s.want)), s.want)
		op, err := b.set.Attention(s.args)
		if err := b.add(op, err, s.bucket, long); err != nil {
			return err
		}
	}
	return nil
}

// scene makes one step. The blocks of sequences are shuffled; whatever no sequence has is NaN or nonsense. upload puts the tokens of
// a bucket on the device.
func (b *bench) scene(kv quant.KVType, d, kvHeads, group int, step attnStep, surplus int, upload func([]ref.Token, int) gpu.Buffer) scene {
	heads := kvHeads * group
	maxBlocks, blocks := 0, 0
	for _, r := range step {
		n := (r.to + kernels.BlockSize - 1) / kernels.BlockSize
		maxBlocks, blocks = max(maxBlocks, n), blocks+n
	}
	maxBlocks += surplus
	free := b.Perm(blocks + 2)
	k, v := b.emptyCache(len(free), kvHeads, d, kv), b.emptyCache(len(free), kvHeads, d, kv)
	tables := poisoned(len(step) * maxBlocks) // a block number far outside the cache
	var tokens []ref.Token
	for seq, r := range step {
		for block := range (r.to + kernels.BlockSize - 1) / kernels.BlockSize {
			tables[seq*maxBlocks+block], free = uint32(free[0]), free[1:]
		}
		context := make([]ref.Token, r.to)
		for t := range context {
			slot := tables[seq*maxBlocks+t/kernels.BlockSize]*kernels.BlockSize + uint32(t%kernels.BlockSize)
			context[t] = ref.Token{Position: uint32(t), Slot: slot, Seq: uint32(seq)}
		}
		data := b.uniform(r.to * 2 * kvHeads * d)
		ref.KVStore(&ref.KVStoreArgs{
			Tokens: context, RowStride: 2 * kvHeads * d, VOffset: kvHeads * d, QKV: data, K: k, V: v,
		}, 0, r.to)
		tokens = append(tokens, context[r.from:]...)
	}
	rows := len(tokens)
	bucket, stride := rows+surplus, (heads+2*kvHeads)*d+4*surplus
	qkv := b.rowsOf(rows, bucket, stride)
	for i := range qkv {
		qkv[i] *= 3 // scores that differ enough for the softmax to matter
	}
	scale := float32(1 / math.Sqrt(float64(d)))
	want := poisonedFloats(bucket * heads * d)
	ref.PagedAttn(&ref.PagedAttnArgs{
		Tokens: tokens, BlockTables: tables, MaxBlocks: maxBlocks, Heads: heads, RowStride: stride, Scale: scale,
		QKV: qkv, K: k, V: v, Out: want,
	}, 0, rows)
	return scene{rows: rows, bucket: bucket, want: want, args: kernels.AttentionArgs{
		Rows: bucket, Heads: heads, KVHeads: kvHeads, HeadDim: d, RowStride: stride, MaxBlocks: maxBlocks, KV: kv,
		Tokens: upload(tokens, bucket), BlockTables: b.input(tables), QKV: b.inputFloats(qkv),
		KCache: b.buffer("k", k.Words, gpu.UsageStorage), VCache: b.buffer("v", v.Words, gpu.UsageStorage), Step: b.step(rows),
	}}
}
