package conformance

import (
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

// tileRows are edges of matmul_lanes, which takes 8 tokens and 4 rows, and of matmul_tile, whose tiles have 32 to 128 of either and
// whose K may be cut.
var tileRows = []linearShape{
	{rows: 7, bucket: 8, n: 131, k: 1024, parts: 2, offset: 3, surplus: 2, bias: true, add: true},
	{rows: 33, bucket: 40, n: 65, k: 2048, parts: 1, xSurplus: 4, bias: true},
	{rows: 2, bucket: 2, n: 3, k: 1, parts: 1},
	{rows: 130, bucket: 132, n: 129, k: 264, parts: 1, add: true},
}

// gatedRows are gated layers: with and without biases, of which the last has its weight in two parts.
var gatedRows = []linearShape{
	{rows: 9, bucket: 12, n: 2, k: 1, parts: 1},
	{rows: 37, bucket: 37, n: 134, k: 1024, parts: 1, bias: true},
	{rows: 5, bucket: 6, n: 70, k: 3, parts: 2, bias: true},
}

// tileOptions are the kernels and the variants that are forced.
var tileOptions = [][]string{
	{"matmul_lanes", "lanes 32"},
	{"matmul_tile_parts", "tile 32x64 k4", "tile 32x64 k2", "tile 32x64"},
	{"matmul_lanes_128", "lanes 128"},
	{"matmul_lanes_8", "lanes 32x8"},
	{"matmul_tile_64", "tile 64x64 k8", "tile 64x64"},
	{"matmul_tile_64x128", "tile 64x128"},
	{"matmul_tile_small_64x128", "tile 64x128/128 k3", "tile 64x128/128"},
	{"matmul_tile_small", "tile 32x64/128 k2", "tile 32x64/128"},
	{"matmul_tile_small_64", "tile 64x64/128 k4", "tile 64x64/128"},
	{"matmul_tile_small_128", "tile 128x64/128", "tile 32x64/128"},
	{"matmul_tile_128", "tile 128x128 k2", "tile 128x128"},
}

// preferring is a tuning whose linear layers take a variant wherever they have it.
func preferring(names ...string) *kernels.Tuning {
	return &kernels.Tuning{MatmulRows: 17, PrefillRows: 65, Workgroups: 1024, Prefer: names}
}

// tileCase runs layers of one weight format, gated ones among them.
func tileCase(b *bench, f quant.Format, plain, gated []linearShape) error {
	if err := linearShapes(b, f, plain); err != nil {
		return err
	}
	for _, s := range gated {
		s.k = rowOf(f, s.k)
		if err := gatedLinear(b, s, cut(b.matrix(f, s.n, s.k), s.parts)); err != nil {
			return err
		}
	}
	return nil
}

// gatedLinear adds one gated layer.
func gatedLinear(b *bench, s linearShape, parts []ref.Matrix) error {
	x := b.rowsOf(s.rows, s.bucket, s.k)
	before := poisonedFloats(s.bucket * s.n / 2)
	z, want := make([]float32, s.rows*s.n), append([]float32(nil), before...)
	between := poisonedFloats(s.bucket * s.n)
	args := kernels.LinearArgs{
		Rows: s.bucket, X: b.linearInput(x, s.bucket, s.k), UniformX: true, W: b.upload(parts...), Gated: true,
		Between: b.inputFloats(between), Step: b.step(s.rows),
	}
	var bias []float32
	if s.bias {
		bias = b.uniform(s.n)
		args.Bias = b.inputFloats(bias)
	}
	row := 0
	for _, part := range parts {
		ref.Matmul(&ref.MatmulArgs{M: s.rows, X: x, XStride: s.k, W: part, Bias: bias, Y: z, YStride: s.n, YOffset: row}, 0, part.Rows)
		row += part.Rows
	}
	ref.SiLUMul(&ref.SiLUMulArgs{Dim: s.n / 2, GateUp: z, Out: want}, 0, s.rows)
	args.Y = b.outputFloats("gated y", fusedTolerance, before, want)
	op, err := b.set.Linear(args)
	return b.run(op, err, s.bucket)
}

// normedRows are layers that add to the residual stream, which is normed then: longer and shorter than a workgroup.
var normedRows = []linearShape{
	{rows: 5, bucket: 7, n: 1100, k: 256, parts: 1, bias: true},
	{rows: 37, bucket: 40, n: 68, k: 2048, parts: 2},
	{rows: 3, bucket: 3, n: 4, k: 1, parts: 1, bias: true},
}

// normedCase runs layers of one weight format with a norm, which with later is left to others where they do it.
func normedCase(b *bench, f quant.Format, later bool) error {
	for _, s := range normedRows {
		k := rowOf(f, s.k)
		parts := cut(b.matrix(f, s.n, k), s.parts)
		x, norm := b.rowsOf(s.rows, s.bucket, k), b.uniform(s.n)
		before := b.rowsOf(s.rows, s.bucket, s.n)
		want, normed := append([]float32(nil), before...), poisonedFloats(s.bucket*s.n)
		args := kernels.LinearArgs{
			Rows: s.bucket, X: b.linearInput(x, s.bucket, k), UniformX: true, W: b.upload(parts...), Add: true, Norm: b.inputFloats(norm),
			Eps: 1e-5, NormLater: later, Step: b.step(s.rows),
		}
		var bias []float32
		if s.bias {
			bias = b.uniform(s.n)
			args.Bias = b.inputFloats(bias)
		}
		row := 0
		for _, part := range parts {
			ref.Matmul(&ref.MatmulArgs{
				M: s.rows, X: x, XStride: k, W: part, Bias: bias, Y: want, YStride: s.n, YOffset: row, Add: true,
			}, 0, part.Rows)
			row += part.Rows
		}
		if !later || s.bucket > kernels.NormRows {
			ref.RMSNorm(&ref.RMSNormArgs{Dim: s.n, Eps: 1e-5, X: want, Weight: norm, Y: normed}, 0, s.rows)
		}
		args.Y = b.outputFloats("normed linear x", summed, before, want)
		args.Normed = b.outputFloats("normed linear y", fusedTolerance, poisonedFloats(s.bucket*s.n), normed)
		op, err := b.set.Linear(args)
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}

// inputNormRows are layers that norm what they read, except the last, which has too many rows.
var inputNormRows = []linearShape{
	{rows: 7, bucket: 8, n: 134, k: 1024, parts: 2, bias: true},
	{rows: 20, bucket: 32, n: 66, k: 264, parts: 1},
	{rows: 1, bucket: 1, n: 4, k: 1, parts: 1},
	{rows: 33, bucket: 40, n: 68, k: 512, parts: 1, bias: true},
}

// inputNormCase runs such layers of one weight format, with a gate and without.
func inputNormCase(b *bench, f quant.Format) error {
	for i, s := range inputNormRows {
		k := rowOf(f, s.k)
		parts := cut(b.matrix(f, s.n, k), s.parts)
		few, gated := s.bucket <= kernels.NormRows, i%2 == 0 && s.parts == 1
		x, residual, norm := b.rowsOf(s.rows, s.bucket, k), b.rowsOf(s.rows, s.bucket, k), b.uniform(k)
		a := ref.MatmulPartsArgs{MatmulArgs: ref.MatmulArgs{M: s.rows, X: x, XStride: k}, Parts: 1, PartK: k, Gated: gated, Eps: 1e-5}
		unused := poisonedFloats(len(x)) // what it is not to read
		args := kernels.LinearArgs{
			Rows: s.bucket, W: b.upload(parts...), InNorm: b.inputFloats(norm), Eps: 1e-5, Gated: gated, Step: b.step(s.rows),
		}
		if few {
			a.X, a.Norm = residual, norm
			args.X, args.Residual = b.inputFloats(unused), b.inputFloats(residual)
		} else {
			args.X, args.Residual = b.inputFloats(x), b.inputFloats(unused)
		}
		if s.bias {
			a.Bias = b.uniform(s.n)
			args.Bias = b.inputFloats(a.Bias)
		}
		outputs := s.n
		if gated {
			outputs /= 2
			args.Between = b.inputFloats(poisonedFloats(s.bucket * s.n))
		}
		before := poisonedFloats(s.bucket * outputs)
		a.Y, a.YStride = append([]float32(nil), before...), outputs
		for _, part := range parts {
			a.W = part
			n := part.Rows
			if gated {
				n /= 2
			}
			ref.MatmulParts(&a, 0, n)
			a.YOffset += part.Rows
		}
		args.Y = b.outputFloats("normed input y", fusedTolerance, before, a.Y)
		op, err := b.set.Linear(args)
		if err := b.run(op, err, s.bucket); err != nil {
			return err
		}
	}
	return nil
}
