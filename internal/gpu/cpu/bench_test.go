package cpu

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
)

// shape is that of a whole model.
type shape struct {
	hidden, inter, layers, heads, kvHeads, headDim, vocab int
}

// tinyShape is the small ERNIE that the tests and the page use: 15.7 million parameters.
var tinyShape = shape{384, 1024, 8, 6, 2, 64, 8192}

// decoder is a recorded step of a model whose weights are all the same.
type decoder struct {
	program      gpu.Program
	tokens, back gpu.Buffer
	row          []uint32 // what tokens holds
}

// newDecoder records a step of rows tokens of one sequence, the last of which has context tokens.
func newDecoder(l *lab, s shape, f quant.Format, rows, context int) *decoder {
	buffer := func(words int) gpu.Buffer {
		b, err := l.NewBuffer("model", int64(4*words), storage)
		return must(l.t, b, err)
	}
	qkvDim, d := (s.heads+2*s.kvHeads)*s.headDim, &decoder{}
	for i := range rows {
		position := uint32(context - rows + i)
		d.row = append(d.row, 5, position, position, 0)
	}
	d.tokens = l.words(storage, d.row...)
	maxBlocks := (context + 15) / 16
	table := make([]uint32, maxBlocks)
	for i := range table {
		table[i] = uint32(i)
	}
	tables, none, step := l.words(storage, table...), l.words(storage, 0, 0, 0, 0), l.step(rows)
	rope := buffer(context * s.headDim)
	x, norm, qkv := buffer(rows*s.hidden), buffer(rows*s.hidden), buffer(rows*qkvDim)
	attn, gateUp, act := buffer(rows*s.heads*s.headDim), buffer(rows*2*s.inter), buffer(rows*s.inter)
	last, logits, partial, ids := buffer(s.hidden), buffer(s.vocab), buffer(2*64), buffer(4)
	c := map[string]uint32{"WEIGHT": uint32(f.Kind), "GROUP": uint32(f.Group), "HEAD_DIM": uint32(s.headDim), "KV_TYPE": 1, "SPLIT": 0}
	params := func(values ...int) gpu.Buffer {
		words := make([]uint32, 8)
		for i, v := range values {
			words[i] = uint32(v)
		}
		return l.words(uniform, words...)
	}
	scale := int(math.Float32bits(float32(math.Pow(float64(s.headDim), -0.5))))

	matrix := func(n, k int) (data, scales gpu.Buffer) {
		data, scales = buffer(n*f.RowWords(k)), none
		if words := n * f.ScaleWords(k); words > 0 {
			scales = buffer(words)
		}
		return data, scales
	}
	linear := func(step, x gpu.Buffer, k, n int, y gpu.Buffer, flags int) gpu.Command {
		data, scales := matrix(n, k)
		return l.dispatch("matmul", c, params(k, n, k, n, 0, flags), step, x, data, scales, none, y)
	}
	embed, embedScales := matrix(s.vocab, s.hidden)
	list := []gpu.Command{l.dispatch("embed", c, params(s.hidden, 0, s.vocab), step, d.tokens, embed, embedScales, x)}
	weight := buffer(s.hidden)
	for range s.layers {
		words := maxBlocks * 16 * s.kvHeads * s.headDim / 2
		k, v := buffer(words), buffer(words)
		list = append(list,
			l.dispatch("rms_norm_serial", nil, params(s.hidden, 0), step, x, weight, norm),
			linear(step, norm, s.hidden, qkvDim, qkv, 0),
			l.dispatch("rope", c, params(s.heads+s.kvHeads, qkvDim), step, d.tokens, rope, qkv),
			l.dispatch("kv_store", c, params(s.kvHeads, qkvDim, s.heads*s.headDim, (s.heads+s.kvHeads)*s.headDim), step, d.tokens, qkv, k, v),
			l.dispatch("paged_attn_serial", c, params(s.heads, s.kvHeads, qkvDim, maxBlocks, scale), step, d.tokens, tables, qkv, k, v, attn),
			linear(step, attn, s.heads*s.headDim, s.hidden, x, flagAdd),
			l.dispatch("rms_norm_serial", nil, params(s.hidden, 0), step, x, weight, norm),
			linear(step, norm, s.hidden, 2*s.inter, gateUp, 0),
			l.dispatch("silu_mul", nil, params(s.inter), step, gateUp, act),
			linear(step, act, s.inter, s.hidden, x, flagAdd))
	}
	one := l.step(1)
	back, err := l.NewBuffer("back", 4, gpu.UsageMapRead|gpu.UsageCopyDst)
	d.back = must(l.t, back, err)
	list = append(list,
		l.dispatch("gather_rows", nil, params(s.hidden, s.hidden), one, l.words(storage, uint32(rows-1)), x, last),
		l.dispatch("matmul", c, params(s.hidden, s.vocab, s.hidden, s.vocab), one, last, embed, embedScales, none, logits),
		l.dispatch("argmax_partial", nil, params(s.vocab, s.vocab, 64), one, logits, partial),
		l.dispatch("argmax_reduce", nil, params(64), one, partial, ids),
		gpu.Command{CopySrc: ids, CopyDst: d.back, CopySize: 4})
	d.program, err = l.NewProgram("step", list)
	must(l.t, d.program, err)
	return d
}

// BenchmarkModel measures whole steps of the small model. Zero weights take as long as any.
func BenchmarkModel(b *testing.B) {
	for _, f := range []quant.Format{{Kind: quant.F32}, {Kind: quant.F16}, {Kind: quant.BF16}, {Kind: quant.Q8, Group: 32}, {Kind: quant.Q4, Group: 32}} {
		for _, c := range []struct{ rows, context int }{{1, 64}, {1, 1024}, {8, 64}, {128, 128}, {128, 1024}} {
			b.Run(fmt.Sprintf("%v/rows=%d/context=%d", f, c.rows, c.context), func(b *testing.B) {
				l := open(b, Options{})
				d := newDecoder(l, tinyShape, f, c.rows, c.context)
				dst := make([]byte, 4)
				b.ResetTimer()
				for b.Loop() {
					if err := l.Submit(d.program); err != nil {
						b.Fatal(err)
					}
					if err := l.Read(context.Background(), d.back, 0, dst); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(c.rows)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
			})
		}
	}
}
