package cpu

import "github.com/pagelight/pagelight/internal/ref"

func matmulLanes(c consts) ([]phase, error) { return matmulParts(c, false) }

// matmulTile may have K cut into parts.
func matmulTile(c consts) ([]phase, error) { return matmulParts(c, true) }

func matmulParts(c consts, cut bool) ([]phase, error) {
	var a ref.MatmulPartsArgs
	var err error
	a.W.Format, err = c.format()
	a.Gated = c["GATED"] == 1
	y := 6
	if !cut {
		y = 7
	}
	return rowwise(a, ref.MatmulParts, func(a *ref.MatmulPartsArgs, v *views) (int, int) {
		k, n := v.dim(0, "k"), v.dim(1, "n")
		a.XStride, a.YStride, a.YOffset = v.dim(2, "x_stride"), v.dim(3, "y_stride"), v.dim(4, "y_offset")
		flags := v.param(5)
		a.M, a.Parts, a.PartK = v.rows, 1, k
		if cut {
			a.PartK, a.Parts = 8*v.dim(6, "octets"), v.dim(7, "parts")
		}
		v.matrix(&a.W, n, k, 3, 4)
		if k > a.XStride {
			v.fail("k %d exceeds x_stride %d", k, a.XStride)
		}
		outputs := n
		if a.Gated {
			outputs = n / 2
		}
		if a.YOffset+outputs > a.YStride {
			v.fail("y_offset %d + %d outputs exceed y_stride %d", a.YOffset, outputs, a.YStride)
		}
		a.X = v.floats(2, "x", v.rows*a.XStride)
		a.Bias = nil
		if flags&flagBias != 0 {
			a.Bias = v.floats(5, "bias", a.YOffset+n)
		}
		if c["NORM"] == 1 {
			a.Norm, a.Eps = v.floats(6, "weight", k), v.float(6)
		}
		a.Y = v.floats(y, "y", a.Parts*v.rows*a.YStride)
		a.Add = flags&flagAdd != 0
		return outputs, k * (2 + v.rows)
	}), err
}

func sumParts(c consts) ([]phase, error) {
	a := ref.SumPartsArgs{Gated: c["GATED"] == 1}
	return rowwise(a, ref.SumParts, func(a *ref.SumPartsArgs, v *views) (int, int) {
		a.N, a.Parts = v.dim(0, "n"), v.dim(1, "parts")
		a.YStride, a.YOffset = v.dim(2, "y_stride"), v.dim(3, "y_offset")
		flags := v.param(4)
		a.M = v.rows
		outputs := a.N
		if a.Gated {
			outputs /= 2
		}
		if a.YOffset+outputs > a.YStride {
			v.fail("y_offset %d + %d outputs exceed y_stride %d", a.YOffset, outputs, a.YStride)
		}
		a.P = v.floats(2, "parts", a.Parts*v.rows*a.N)
		a.Bias = nil
		if flags&flagBias != 0 {
			a.Bias = v.floats(3, "bias", a.YOffset+a.N)
		}
		a.Y = v.floats(4, "y", v.rows*a.YStride)
		a.Add = flags&flagAdd != 0
		return v.rows, a.Parts * a.N
	}), nil
}

func ropeStore(c consts) ([]phase, error) {
	a := ref.RopeStoreArgs{HalfSplit: c["HALF_SPLIT"] == 1}
	err := c.cache(&a.K)
	return rowwise(a, ref.RopeStore, func(a *ref.RopeStoreArgs, v *views) (int, int) {
		a.Heads, a.K.KVHeads, a.RowStride = v.count(0, "heads"), v.count(1, "kv_heads"), v.dim(2, "row_stride")
		n := (a.Heads + 2*a.K.KVHeads) * a.K.HeadDim
		if n > a.RowStride {
			v.fail("%d elements of heads exceed row_stride %d", n, a.RowStride)
		}
		a.Tokens = v.tokens(2)
		a.Table = v.floats(3, "table", a.K.HeadDim)
		a.M, a.Parts, a.P, a.Bias = v.rows, v.count(3, "parts"), nil, nil
		if a.Parts > 0 {
			a.P = v.floats(4, "parts", a.Parts*v.rows*n)
		}
		if v.param(4)&flagBias != 0 {
			a.Bias = v.floats(5, "bias", n)
		}
		a.QKV = v.floats(6, "qkv", v.rows*a.RowStride)
		a.V = a.K
		a.K.Words, a.V.Words = v.words(7), v.words(8)
		return v.rows, (4 + a.Parts) * n
	}), err
}

func sumNorm(consts) ([]phase, error) {
	var a ref.SumNormArgs
	return rowwise(a, ref.SumNorm, func(a *ref.SumNormArgs, v *views) (int, int) {
		a.M, a.Dim, a.Parts = v.rows, v.dim(0, "dim"), v.count(1, "parts")
		a.Bias = nil
		if v.param(2)&flagBias != 0 {
			a.Bias = v.floats(3, "bias", a.Dim)
		}
		a.Eps = v.float(3)
		a.P = v.floats(2, "parts", a.Parts*v.rows*a.Dim)
		a.Weight = v.floats(4, "weight", a.Dim)
		a.X, a.Y = v.floats(5, "x", v.rows*a.Dim), v.floats(6, "y", v.rows*a.Dim)
		return v.rows, (2 + a.Parts) * a.Dim
	}), nil
}
