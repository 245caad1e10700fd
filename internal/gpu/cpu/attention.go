package cpu

import (
	"fmt"
	"maps"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

func rope(c consts) ([]phase, error) {
	var a ref.RopeArgs
	var err error
	a.HeadDim, err = c.headDim()
	a.HalfSplit = c["HALF_SPLIT"] == 1
	return rowwise(a, ref.Rope, func(a *ref.RopeArgs, v *views) (int, int) {
		a.Heads, a.RowStride = v.count(0, "heads"), v.dim(1, "row_stride")
		if a.Heads*a.HeadDim > a.RowStride {
			v.fail("%d heads of %d exceed row_stride %d", a.Heads, a.HeadDim, a.RowStride)
		}
		a.Tokens = v.tokens(2)
		a.Table = v.floats(3, "table", a.HeadDim)
		a.QKV = v.floats(4, "qkv", v.rows*a.RowStride)
		return v.rows, 4 * a.Heads * a.HeadDim
	}), err
}

func qkNorm(c consts) ([]phase, error) {
	var a ref.QKNormArgs
	var err error
	a.HeadDim, err = c.headDim()
	return rowwise(a, ref.QKNorm, func(a *ref.QKNormArgs, v *views) (int, int) {
		a.Heads, a.KVHeads, a.RowStride = v.count(0, "heads"), v.count(1, "kv_heads"), v.dim(2, "row_stride")
		a.Eps = v.float(3)
		n := (a.Heads + a.KVHeads) * a.HeadDim
		if n > a.RowStride {
			v.fail("%d heads of %d exceed row_stride %d", a.Heads+a.KVHeads, a.HeadDim, a.RowStride)
		}
		a.QWeight = v.floats(2, "q_weight", a.HeadDim)
		a.KWeight = v.floats(3, "k_weight", a.HeadDim)
		a.QKV = v.floats(4, "qkv", v.rows*a.RowStride)
		return v.rows, 3 * n
	}), err
}

func kvStore(c consts) ([]phase, error) {
	var a ref.KVStoreArgs
	err := c.cache(&a.K)
	return storeKV(a), err
}

func kvStoreI8(c consts) ([]phase, error) {
	var a ref.KVStoreArgs
	var err error
	a.K.KV = quant.KVI8
	a.K.HeadDim, err = c.headDim()
	return storeKV(a), err
}

func storeKV(a ref.KVStoreArgs) []phase {
	return rowwise(a, ref.KVStore, func(a *ref.KVStoreArgs, v *views) (int, int) {
		a.K.KVHeads = v.count(0, "kv_heads")
		a.RowStride, a.KOffset, a.VOffset = v.dim(1, "row_stride"), v.dim(2, "k_offset"), v.dim(3, "v_offset")
		n := a.K.KVHeads * a.K.HeadDim
		if max(a.KOffset, a.VOffset)+n > a.RowStride {
			v.fail("k_offset %d or v_offset %d + %d exceed row_stride %d", a.KOffset, a.VOffset, n, a.RowStride)
		}
		a.Tokens = v.tokens(2)
		a.QKV = v.floats(3, "qkv", v.rows*a.RowStride)
		a.V = a.K
		a.K.Words, a.V.Words = v.words(4), v.words(5)
		return v.rows, 4 * n
	})
}

// attnArgs reads what the attention kernels have in common.
func attnArgs(v *views, a *ref.PagedAttnArgs) {
	a.Heads, a.K.KVHeads, a.RowStride, a.MaxBlocks = v.count(0, "heads"), v.count(1, "kv_heads"), v.dim(2, "row_stride"), v.dim(3, "max_blocks")
	a.Scale = v.float(4)
	if a.K.KVHeads == 0 || a.Heads%a.K.KVHeads != 0 {
		v.fail("%d heads are no multiple of %d kv heads", a.Heads, a.K.KVHeads)
	}
	if a.Heads*a.K.HeadDim > a.RowStride {
		v.fail("%d heads of %d exceed row_stride %d", a.Heads, a.K.HeadDim, a.RowStride)
	}
	a.Tokens = v.tokens(2)
	a.BlockTables = v.words(3)
	a.QKV = v.floats(4, "qkv", v.rows*a.RowStride)
	a.V = a.K
	a.K.Words, a.V.Words = v.words(5), v.words(6)
}

// attnCost is that of one row and one kv head.
func attnCost(a *ref.PagedAttnArgs) int {
	context := 0
	for _, t := range a.Tokens {
		context = max(context, min(int(t.Position)+1, a.MaxBlocks*ref.BlockSize))
	}
	return (context + 1) * a.K.HeadDim * (2 + 2*a.Heads/max(1, a.K.KVHeads))
}

func pagedAttn(c consts) ([]phase, error) {
	var a ref.PagedAttnArgs
	rows := 0
	err := c.cache(&a.K)
	initial := a
	return []phase{{
		func(v *views) (int, int) {
			attnArgs(v, &a)
			a.Out = v.floats(7, "out", v.rows*a.Heads*a.K.HeadDim)
			rows = v.rows
			return ref.PagedAttnUnits(&a, rows), attnCost(&a) * min(rows, ref.AttnTile)
		},
		func(s *ref.Scratch, lo, hi int) { ref.PagedAttnFast(&a, rows, s, lo, hi) },
		func() { a = initial },
	}}, err
}

// pagedAttnSerial writes results or, where contexts are split, partitions like those of paged_attn_decode.
func pagedAttnSerial(c consts) ([]phase, error) {
	split, err := c.get("SPLIT")
	if err != nil {
		return nil, err
	}
	if split == 1 {
		return pagedAttnDecode(c)
	}
	return pagedAttn(c)
}

func pagedAttnDecode(c consts) ([]phase, error) {
	var a ref.PagedAttnDecodeArgs
	part, err := c.get("PART")
	a.Part = int(part)
	if err == nil && a.Part == 0 {
		err = fmt.Errorf("PART is 0")
	}
	if err == nil {
		err = c.cache(&a.K)
	}
	return rowwise(a, ref.PagedAttnDecode, func(a *ref.PagedAttnDecodeArgs, v *views) (int, int) {
		attnArgs(v, &a.PagedAttnArgs)
		a.Parts = v.count(5, "parts")
		row0, rows := v.part(6, 7)
		a.Partial = v.floats(7, "partial", rows*a.Heads*a.Parts*(a.K.HeadDim+4))
		if v.err == nil {
			a.Tokens, a.QKV = a.Tokens[row0:row0+rows], a.QKV[row0*a.RowStride:]
		}
		return rows, attnCost(&a.PagedAttnArgs) * a.K.KVHeads
	}), err
}

// pagedAttnGrouped writes partitions of a position for two invocations like those of paged_attn_decode, or results.
func pagedAttnGrouped(c consts) ([]phase, error) {
	whole, err := c.get("WHOLE")
	if err != nil {
		return nil, err
	}
	if whole == 1 {
		return pagedAttn(c)
	}
	wg, err := c.get("WG")
	if err != nil {
		return nil, err
	}
	part := maps.Clone(c)
	part["PART"] = wg / 2
	return pagedAttnDecode(part)
}

func pagedAttnReduce(c consts) ([]phase, error) {
	var a ref.PagedAttnReduceArgs
	var err error
	a.HeadDim, err = c.headDim()
	return rowwise(a, ref.PagedAttnReduce, func(a *ref.PagedAttnReduceArgs, v *views) (int, int) {
		a.Heads, a.Parts = v.count(0, "heads"), v.count(1, "parts")
		if a.Parts == 0 {
			v.fail("no parts")
		}
		row0, rows := v.part(2, 3)
		a.Partial = v.floats(2, "partial", rows*a.Heads*a.Parts*(a.HeadDim+4))
		a.Out = v.floats(3, "out", v.rows*a.Heads*a.HeadDim)
		if v.err == nil {
			a.Out = a.Out[row0*a.Heads*a.HeadDim:]
		}
		return rows, 10 * a.Heads * a.Parts * a.HeadDim
	}), err
}
