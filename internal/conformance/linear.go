package conformance

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// linearShape is one linear layer.
type linearShape struct {
	rows, bucket, n, k int
	parts              int // of the weight
	offset, surplus    int // columns of y before and after those that are written
	xSurplus           int // elements of a row of x after K, a multiple of 4
	bias, add          bool
}

// fewRows are edges of matvec and matmul_serial: one to five tokens, rows around those of a workgroup. A K of
// 0 means a row of one group, of three groups, and so on.
var fewRows = []linearShape{
	{rows: 1, bucket: 1, n: 1, k: 1, parts: 1},
	{rows: 1, bucket: 1, n: 3, k: 3, parts: 1, bias: true},
	{rows: 1, bucket: 1, n: 5, k: 1024, parts: 1, add: true},
	{rows: 1, bucket: 1, n: 129, k: 5, parts: 1, bias: true, add: true},
	{rows: 1, bucket: 2, n: 4, k: 1000, parts: 2, offset: 3, surplus: 2},
	{rows: 2, bucket: 2, n: 33, k: 3, parts: 1, xSurplus: 8},
	{rows: 3, bucket: 8, n: 31, k: 40, parts: 3, offset: 1, bias: true, add: true},
	{rows: 4, bucket: 4, n: 64, k: 96, parts: 1},
	{rows: 5, bucket: 5, n: 65, k: 24, parts: 2, surplus: 1, add: true},
}

// manyRows are edges of matmul, whose tile has 64 rows, 64 columns and 32 elements of K.
var manyRows = []linearShape{
	{rows: 1, bucket: 1, n: 1, k: 1, parts: 1},
	{rows: 63, bucket: 64, n: 65, k: 3, parts: 1, bias: true},
	{rows: 64, bucket: 64, n: 64, k: 96, parts: 1, add: true},
	{rows: 65, bucket: 80, n: 63, k: 40, parts: 2, offset: 3, surplus: 2, bias: true, add: true},
	{rows: 2, bucket: 130, n: 130, k: 1000, parts: 1, xSurplus: 4},
	{rows: 17, bucket: 17, n: 20, k: 1024, parts: 3},
}

// libRows are edges of how weights lie in memory: parts that begin with any row, one group and several, an odd number of rows.
var libRows = []linearShape{
	{rows: 3, bucket: 4, n: 37, k: 768, parts: 3, offset: 1, surplus: 2, bias: true, add: true},
	{rows: 1, bucket: 1, n: 5, k: 1, parts: 1},
	{rows: 2, bucket: 2, n: 70, k: 3, parts: 2, add: true},
	{rows: 4, bucket: 4, n: 9, k: 1024, parts: 1},
}

// linearCase runs shapes, and two random ones, for one weight format. A K that the format's group does not divide counts
// groups instead of elements.
func linearCase(b *bench, f quant.Format, shapes []linearShape) error {
	for range 2 {
		rows := 1 + b.IntN(6)
		shapes = append(shapes[:len(shapes):len(shapes)], linearShape{
			rows: rows, bucket: rows + b.IntN(3), n: 1 + b.IntN(100), k: 1 + b.IntN(7), parts: 1 + b.IntN(3), offset: b.IntN(5),
			surplus: b.IntN(5), xSurplus: 4 * b.IntN(3), bias: b.IntN(2) == 0, add: b.IntN(2) == 0,
		})
	}
	return linearShapes(b, f, shapes)
}

// linearShapes runs shapes for one weight format.
func linearShapes(b *bench, f quant.Format, shapes []linearShape) error {
	for _, s := range shapes {
		s.k = rowOf(f, s.k)
		if err := linear(b, s, cut(b.matrix(f, s.n, s.k), s.parts)...); err != nil {
			return err
		}
	}
	return nil
}

// rowOf is a K that the format can have: k if it can, else k as a number of groups, or of what else rows are multiples of.
func rowOf(f quant.Format, k int) int {
	unit := f.Multiple()
	if k%unit == 0 {
		return k
	}
	most := 7
	if unit > 128 {
		most = 3
	}
	return unit * (1 + (k-1)%most)
}

// linearQuick is one layer with everything in it.
func linearQuick(b *bench, f quant.Format, rows int) error {
	s := linearShape{rows: rows, bucket: rows, n: 133, k: 1024, bias: true, add: true, offset: 1, surplus: 1}
	return linear(b, s, cut(b.matrix(f, s.n, s.k), 2)...)
}

// linearMixedParts is one weight whose parts differ in format, as the recipes of packed models may have it.
func linearMixedParts(b *bench) error {
	for _, rows := range []int{1, 11} {
		s := linearShape{rows: rows, bucket: rows, n: 60, k: 256, bias: true}
		err := linear(b, s, b.matrix(quant.Format{Kind: quant.Q4, Group: 32}, 25, s.k),
			b.matrix(quant.Format{Kind: quant.BF16}, 5, s.k), b.matrix(quant.Format{Kind: quant.Q8, Group: 128}, 30, s.k))
		if err != nil {
			return err
		}
	}
	return nil
}

// linearInput makes a buffer that Linear may also read as a uniform: as large as it needs to be for that, with NaN after x.
func (b *bench) linearInput(x []float32, rows, k int) gpu.Buffer {
	x = append(x[:len(x):len(x)], poisonedFloats(max(0, kernels.InputRows(rows, k)*k-len(x)))...)
	return b.buffer("input", bitsOf(x), gpu.UsageStorage|gpu.UsageUniform)
}

// linear adds one layer.
func linear(b *bench, s linearShape, parts ...ref.Matrix) error {
	xStride, yStride := s.k+s.xSurplus, s.offset+s.n+s.surplus
	x := b.rowsOf(s.rows, s.bucket, xStride)
	for m := range s.rows {
		copy(x[m*xStride+s.k:(m+1)*xStride], poisonedFloats(s.xSurplus))
	}
	before := poisonedFloats(s.bucket * yStride)
	if s.add {
		for m := range s.rows {
			copy(before[m*yStride+s.offset:][:s.n], b.uniform(s.n))
		}
	}
	want := append([]float32(nil), before...)
	args := kernels.LinearArgs{
		Rows: s.bucket, X: b.linearInput(x, s.bucket, s.k), XStride: xStride, UniformX: true, W: b.upload(parts...),
		YStride: yStride, YOffset: s.offset, Add: s.add, Step: b.step(s.rows),
	}
	var bias []float32
	if s.bias {
		bias = b.uniform(yStride)
		args.Bias = b.inputFloats(bias)
	}
	row := 0
	for _, part := range parts {
		ref.Matmul(&ref.MatmulArgs{
			M: s.rows, X: x, XStride: xStride, W: part, Bias: bias, Y: want, YStride: yStride, YOffset: s.offset + row, Add: s.add,
		}, 0, part.Rows)
		row += part.Rows
	}
	args.Y = b.outputFloats("linear y", summed, before, want)
	op, err := b.set.Linear(args)
	return b.run(op, err, s.bucket)
}
