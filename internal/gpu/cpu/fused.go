package cpu

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/ref"
)

func normLinear(c consts) ([]phase, error) {
	var a ref.NormLinearArgs
	var err error
	if a.W.Format, err = c.format(); err != nil {
		return nil, err
	}
	norm := c["NORM"] == 1
	a.Gated = c["GATED"] == 1
	a.XShares, a.YShares = int(c["X_SHARES"]), int(c["Y_SHARES"])
	return rowwise(a, ref.NormLinear, func(a *ref.NormLinearArgs, v *views) (int, int) {
		k, n := v.dim(0, "k"), v.dim(1, "n")
		a.YStride, a.YOffset = v.dim(2, "y_stride"), v.dim(3, "y_offset")
		flags := v.param(4)
		a.Eps = v.float(5)
		a.M = v.rows
		a.X = v.floats(2, "x", v.rows*k)
		a.Norm, a.Bias = nil, nil
		if norm {
			a.Norm = v.floats(3, "weight", k)
		}
		v.matrix(&a.W, n, k, 4, 5)
		if flags&flagBias != 0 {
			a.Bias = v.floats(6, "bias", a.YOffset+n)
		}
		a.Add = flags&flagAdd != 0
		outputs := n
		if a.Gated {
			outputs = n / 2
		}
		if a.YOffset+outputs > a.YStride {
			v.fail("y_offset %d + %d outputs exceed y_stride %d", a.YOffset, outputs, a.YStride)
		}
		a.Shares = v.floats(7, "shares", v.rows*(a.XShares*k+a.YShares*a.YStride))
		a.Y = v.floats(8, "y", v.rows*a.YStride)
		return outputs, k * (2 + v.rows)
	}), nil
}

func qkvRopeStore(c consts) ([]phase, error) {
	var a ref.QKVRopeStoreArgs
	var err error
	if a.W.Format, err = c.format(); err != nil {
		return nil, err
	}
	if err = c.cache(&a.K); err != nil {
		return nil, err
	}
	a.HeadDim, a.HalfSplit = a.K.HeadDim, c["HALF_SPLIT"] == 1
	return rowwise(a, ref.QKVRopeStore, func(a *ref.QKVRopeStoreArgs, v *views) (int, int) {
		k := v.dim(0, "k")
		a.Heads, a.KVHeads, a.RowStride = v.count(1, "heads"), v.count(2, "kv_heads"), v.dim(3, "row_stride")
		a.Eps = v.float(4)
		if a.Heads*a.HeadDim > a.RowStride {
			v.fail("%d heads of %d exceed row_stride %d", a.Heads, a.HeadDim, a.RowStride)
		}
		a.Tokens = v.tokens(2)
		a.X = v.floats(3, "x", v.rows*k)
		a.Norm = v.floats(4, "weight", k)
		n := (a.Heads + 2*a.KVHeads) * a.HeadDim
		v.matrix(&a.W, n, k, 5, 6)
		a.Table = v.floats(7, "table", a.HeadDim)
		a.QKV = v.floats(8, "qkv", v.rows*a.RowStride)
		a.K.KVHeads = a.KVHeads
		a.V = a.K
		a.K.Words, a.V.Words = v.words(9), v.words(10)
		return v.rows, 2 * n * k
	}), nil
}

func attnLinear(c consts) ([]phase, error) {
	var a ref.AttnLinearArgs
	var err error
	if a.W.Format, err = c.format(); err != nil {
		return nil, err
	}
	if a.HeadDim, err = c.headDim(); err != nil {
		return nil, err
	}
	parts, err := c.get("PARTS")
	if err != nil {
		return nil, err
	}
	a.Parts = int(parts)
	return rowwise(a, ref.AttnLinear, func(a *ref.AttnLinearArgs, v *views) (int, int) {
		k, n := v.dim(0, "k"), v.dim(1, "n")
		a.YStride, a.YOffset, a.Heads = v.dim(2, "y_stride"), v.dim(3, "y_offset"), v.count(4, "heads")
		a.M = v.rows
		if a.Heads*a.HeadDim != k {
			v.fail("%d heads of %d are no %d inputs", a.Heads, a.HeadDim, k)
		}
		if a.YOffset+n > a.YStride {
			v.fail("y_offset %d + %d outputs exceed y_stride %d", a.YOffset, n, a.YStride)
		}
		a.Partial = v.floats(3, "partial", v.rows*a.Heads*a.Parts*(a.HeadDim+4))
		v.matrix(&a.W, n, k, 4, 5)
		a.Y = v.floats(6, "y", v.rows*a.YStride)
		return n, k * (2 + v.rows)
	}), nil
}

func pagedAttnLinear(c consts) ([]phase, error) {
	var a ref.PagedAttnLinearArgs
	var err error
	if a.W.Format, err = c.format(); err != nil {
		return nil, err
	}
	if err = c.cache(&a.K); err != nil {
		return nil, err
	}
	heads, err := c.get("HEADS")
	if err != nil {
		return nil, err
	}
	a.Set = int(heads)
	return rowwise(a, ref.PagedAttnLinear, func(a *ref.PagedAttnLinearArgs, v *views) (int, int) {
		attnArgs(v, &a.PagedAttnArgs)
		k, n := v.dim(5, "k"), v.dim(6, "n")
		a.M = v.rows
		if a.Heads*a.K.HeadDim != k || a.Set == 0 || a.Heads%a.Set != 0 {
			v.fail("%d heads of %d, in sets of %d, are no %d inputs", a.Heads, a.K.HeadDim, a.Set, k)
			return 0, 0
		}
		v.matrix(&a.W, n, k, 7, 8)
		a.Shares = v.floats(9, "shares", v.rows*a.Heads/a.Set*n)
		return n, k * (2 + v.rows)
	}), nil
}

// pagedAttnJoin is pagedAttnReduce with tokens, of which it needs nothing: partitions that they do not have are marked.
func pagedAttnJoin(c consts) ([]phase, error) {
	var a ref.PagedAttnReduceArgs
	var err error
	a.HeadDim, err = c.headDim()
	return rowwise(a, ref.PagedAttnReduce, func(a *ref.PagedAttnReduceArgs, v *views) (int, int) {
		a.Heads, a.Parts = v.count(0, "heads"), v.count(1, "parts")
		if a.Parts == 0 {
			v.fail("no parts")
		}
		a.Partial = v.floats(3, "partial", v.rows*a.Heads*a.Parts*(a.HeadDim+4))
		a.Out = v.floats(4, "out", v.rows*a.Heads*a.HeadDim)
		return v.rows, 10 * a.Heads * a.Parts * a.HeadDim
	}), err
}

// headArgmax has two phases: logits by row of the weights, then the best ones by row of logits.
func headArgmax(c consts) ([]phase, error) {
	var a ref.HeadArgmaxArgs
	var err error
	if a.W.Format, err = c.format(); err != nil {
		return nil, err
	}
	shape := map[string]int{}
	for _, name := range []string{"WG", "LANES", "FOURS"} {
		v, err := c.get(name)
		if err != nil || v == 0 {
			return nil, fmt.Errorf("%s is %d: %w", name, v, err)
		}
		shape[name] = int(v)
	}
	a.Block = 4 * shape["FOURS"] * shape["WG"] / shape["LANES"]
	initial := a
	return []phase{
		{
			func(v *views) (int, int) {
				k, n := v.dim(0, "k"), v.dim(1, "n")
				a.Vocab, a.Offset, a.Limit = v.dim(2, "vocab"), v.dim(3, "offset"), v.dim(4, "limit")
				a.Parts, a.Part0, a.Eps = v.dim(5, "parts"), v.dim(6, "part0"), v.float(7)
				rows := v.words(2)
				if a.Offset+n > a.Vocab || a.Limit > a.Vocab || len(rows) < v.rows || a.Part0+(n+a.Block-1)/a.Block > a.Parts {
					v.fail("ids %d to %d below %d of %d, parts from %d of %d, %d of %d rows", a.Offset, a.Offset+n, a.Limit, a.Vocab, a.Part0,
						a.Parts, v.rows, len(rows))
					return 0, 0
				}
				a.Rows = rows[:v.rows]
				last := 0
				for _, r := range a.Rows {
					last = max(last, int(min(r, maxRows)))
				}
				a.X = v.floats(3, "x", (last+1)*k)
				a.Norm = v.floats(4, "weight", k)
				v.matrix(&a.W, n, k, 5, 6)
				a.Logits = v.floats(7, "logits", v.rows*a.Vocab)
				if a.Partial = view[ref.Best](v.words(8), 2); len(a.Partial) < v.rows*a.Parts {
					v.fail("partial: %d elements, %d needed", len(a.Partial), v.rows*a.Parts)
				}
				return n, k * (2 + v.rows)
			},
			func(_ *ref.Scratch, lo, hi int) { ref.HeadLogits(&a, lo, hi) },
			func() {},
		},
		{
			func(v *views) (int, int) { return v.rows, a.W.Rows },
			func(_ *ref.Scratch, lo, hi int) { ref.HeadArgmax(&a, lo, hi) },
			func() { a = initial },
		},
	}, nil
}
