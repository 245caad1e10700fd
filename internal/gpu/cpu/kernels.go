package cpu

import (
	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/ref"
)

// phase is a part of a kernel whose items can be computed in any order. A kernel's phases run one after the other.
type phase struct {
	// prepare reads the parameters and views the buffers; it gives the number of items, and the cost of one in
	// multiply-adds. Complaints go to v.err.
	prepare func(v *views) (items, cost int)
	// run computes the items lo..hi-1.
	run func(s *ref.Scratch, lo, hi int)
	// drop forgets the buffers, so that they can be freed while the program still exists. Called after the last phase.
	drop func()
}

// rowwise is a kernel that computes row by row. initial holds what the constants say; prepare adds the rest.
func rowwise[A any](initial A, run func(a *A, lo, hi int), prepare func(a *A, v *views) (items, cost int)) []phase {
	a := initial
	return []phase{{
		prepare: func(v *views) (int, int) { return prepare(&a, v) },
		run:     func(_ *ref.Scratch, lo, hi int) { run(&a, lo, hi) },
		drop:    func() { a = initial },
	}}
}

// kernel makes the phases of one command: they hold the arguments of that command.
type kernel struct {
	layout []gpu.BindingKind
	make   func(c consts) ([]phase, error)
}

// layout is the uniforms that every kernel has, reads storage buffers that are read, and writes that are written.
func layout(reads, writes int) []gpu.BindingKind {
	list := []gpu.BindingKind{gpu.BindUniform, gpu.BindUniform}
	for range reads {
		list = append(list, gpu.BindRead)
	}
	for range writes {
		list = append(list, gpu.BindReadWrite)
	}
	return list
}

// uniformLayout is layout with the first of the reads as a uniform.
func uniformLayout(reads, writes int) []gpu.BindingKind {
	list := layout(reads, writes)
	list[2] = gpu.BindUniform
	return list
}

// kernels are all that there are, by the names of the WGSL files. Kernels that compute the same in another manner share
// a function.
var kernels = map[string]kernel{
	"embed":              {layout(3, 1), embed},
	"rms_norm":           {layout(2, 1), rmsNorm},
	"rms_norm_serial":    {layout(2, 1), rmsNorm},
	"matvec":             {layout(4, 1), matmul},
	"matmul":             {layout(4, 1), matmul},
	"matmul_lanes":       {layout(5, 1), matmulLanes},
	"matmul_tile":        {layout(4, 1), matmulTile},
	"sum_parts":          {layout(2, 1), sumParts},
	"sum_norm":           {layout(3, 2), sumNorm},
	"matmul_serial":      {layout(4, 1), matmul},
	"matmul_uniform":     {uniformLayout(4, 1), matmulUniform},
	"rope":               {layout(2, 1), rope},
	"qk_norm":            {layout(2, 1), qkNorm},
	"rope_store":         {layout(4, 3), ropeStore},
	"kv_store":           {layout(2, 2), kvStore},
	"kv_store_i8":        {layout(2, 2), kvStoreI8},
	"paged_attn_prefill": {layout(5, 1), pagedAttn},
	"paged_attn_serial":  {layout(5, 1), pagedAttnSerial},
	"paged_attn_decode":  {layout(5, 1), pagedAttnDecode},
	"paged_attn_reduce":  {layout(1, 1), pagedAttnReduce},
	"paged_attn_grouped": {layout(5, 1), pagedAttnGrouped},
	"norm_linear":        {layout(6, 1), normLinear},
	"paged_attn_few":     {uniformLayout(5, 1), pagedAttnDecode},
	"paged_attn_linear":  {uniformLayout(7, 1), pagedAttnLinear},
	"paged_attn_join":    {uniformLayout(2, 1), pagedAttnJoin},
	"attn_linear":        {uniformLayout(4, 1), attnLinear},
	"qkv_rope_store":     {uniformLayout(6, 3), qkvRopeStore},
	"silu_mul":           {layout(1, 1), siluMul},
	"gather_rows":        {layout(2, 1), gatherRows},
	"gather_columns":     {layout(2, 1), gatherColumns},
	"moe_route":          {layout(2, 2), moeRoute},
	"moe_group":          {layout(1, 1), moeGroup},
	"moe_matvec":         {layout(4, 1), moeMatvec},
	"moe_matmul":         {layout(4, 1), moeMatmul},
	"moe_serial":         {layout(4, 1), moeSerial},
	"moe_combine":        {layout(2, 1), moeCombine},
	"argmax_partial":     {layout(1, 1), argmaxPartial},
	"argmax_blocks":      {layout(1, 1), argmaxBlocks},
	"argmax_reduce":      {layout(1, 1), argmaxReduce},
	"head_argmax":        {uniformLayout(5, 2), headArgmax},
	"argmax_advance":     {layout(3, 5), argmaxAdvance},
	"advance":            {layout(3, 4), advance},
	"penalize":           {layout(5, 1), penalize},
	"sample_mass":        {layout(5, 1), sampleMass},
	"sample":             {layout(3, 3), sample},
	"topk_partial":       {layout(2, 1), topKPartial},
	"topk_slices":        {layout(2, 1), topKSlices},
	"topk_pick":          {layout(3, 2), topKPick},
	"topk_reduce_serial": {layout(2, 3), topKReduce},
}

func embed(c consts) ([]phase, error) {
	var a ref.EmbedArgs
	var err error
	a.Table.Format, err = c.format()
	return rowwise(a, ref.Embed, func(a *ref.EmbedArgs, v *views) (int, int) {
		dim := v.dim(0, "dim")
		a.Row0 = v.dim(1, "row0")
		v.matrix(&a.Table, v.dim(2, "rows"), dim, 3, 4)
		a.Tokens = v.tokens(2)
		a.X = v.floats(5, "x", v.rows*dim)
		return v.rows, 2 * dim
	}), err
}

func rmsNorm(consts) ([]phase, error) {
	var a ref.RMSNormArgs
	return rowwise(a, ref.RMSNorm, func(a *ref.RMSNormArgs, v *views) (int, int) {
		a.Dim = v.dim(0, "dim")
		a.Eps = v.float(1)
		a.X = v.floats(2, "x", v.rows*a.Dim)
		a.Weight = v.floats(3, "weight", a.Dim)
		a.Y = v.floats(4, "y", v.rows*a.Dim)
		return v.rows, 3 * a.Dim
	}), nil
}

// The flags of matvec and matmul.
const (
	flagAdd  = 1
	flagBias = 2
)

func matmul(c consts) ([]phase, error) {
	return matmulOf(c, false)
}

// matmulUniform computes some of the rows, from inputs that may begin with another row.
func matmulUniform(c consts) ([]phase, error) {
	return matmulOf(c, true)
}

// matmulOf is matmul of all rows, or of those that the parameters name.
func matmulOf(c consts, some bool) ([]phase, error) {
	var a ref.MatmulArgs
	var x []float64 // X widened, by the first phase
	var err error
	a.W.Format, err = c.format()
	drop := func() { a, x = ref.MatmulArgs{W: ref.Matrix{Format: a.W.Format}}, nil }
	return []phase{{
		func(v *views) (int, int) {
			k, n := v.dim(0, "k"), v.dim(1, "n")
			a.XStride, a.YStride, a.YOffset = v.dim(2, "x_stride"), v.dim(3, "y_stride"), v.dim(4, "y_offset")
			flags := v.param(5)
			row0, xRow0 := 0, 0
			a.M = v.rows
			if some {
				row0, a.M = v.part(6, 2)
				a.XStride, xRow0 = k, min(v.dim(7, "x_row0"), row0)
			}
			v.matrix(&a.W, n, k, 3, 4)
			if k > a.XStride {
				v.fail("k %d exceeds x_stride %d", k, a.XStride)
			}
			if a.YOffset+n > a.YStride {
				v.fail("y_offset %d + n %d exceed y_stride %d", a.YOffset, n, a.YStride)
			}
			a.X = v.floats(2, "x", (row0-xRow0+a.M)*a.XStride)
			a.Bias = nil
			if flags&flagBias != 0 {
				a.Bias = v.floats(5, "bias", a.YOffset+n)
			}
			a.Y = v.floats(6, "y", v.rows*a.YStride)
			a.Add = flags&flagAdd != 0
			if v.err == nil {
				x = v.widened(a.M * k)
				a.X, a.Y = a.X[(row0-xRow0)*a.XStride:], a.Y[row0*a.YStride:]
			}
			return a.M, k / 2
		},
		func(_ *ref.Scratch, lo, hi int) { a.Widen(x, lo, hi) },
		drop,
	}, {
		// An item is four rows of weights, which MatmulFast takes together.
		func(*views) (int, int) {
			if a.M == 0 {
				return 0, 0
			}
			return (a.W.Rows + 3) / 4, 4 * a.W.K * (2 + a.M)
		},
		func(s *ref.Scratch, lo, hi int) { ref.MatmulFast(&a, x, s, 4*lo, min(4*hi, a.W.Rows)) },
		drop,
	}}, err
}

func siluMul(consts) ([]phase, error) {
	var a ref.SiLUMulArgs
	return rowwise(a, ref.SiLUMul, func(a *ref.SiLUMulArgs, v *views) (int, int) {
		a.Dim = v.dim(0, "dim")
		a.GateUp = v.floats(2, "gate_up", 2*v.rows*a.Dim)
		a.Out = v.floats(3, "out", v.rows*a.Dim)
		return v.rows, 16 * a.Dim
	}), nil
}

func gatherRows(consts) ([]phase, error) {
	var a ref.GatherRowsArgs
	return rowwise(a, ref.GatherRows, func(a *ref.GatherRowsArgs, v *views) (int, int) {
		a.Dim, a.XStride = v.dim(0, "dim"), v.dim(1, "x_stride")
		if a.Dim > a.XStride {
			v.fail("dim %d exceeds x_stride %d", a.Dim, a.XStride)
		}
		a.Rows = v.words(2)
		if len(a.Rows) < v.rows {
			v.fail("rows: %d elements, %d needed", len(a.Rows), v.rows)
		}
		a.X = v.floats(3, "x", a.XStride)
		a.Out = v.floats(4, "out", v.rows*a.Dim)
		return v.rows, a.Dim / 4
	}), nil
}

func gatherColumns(consts) ([]phase, error) {
	var a ref.GatherColumnsArgs
	return rowwise(a, ref.GatherColumns, func(a *ref.GatherColumnsArgs, v *views) (int, int) {
		a.K, a.XStride = v.dim(0, "k"), v.dim(1, "x_stride")
		a.Order = v.words(2)
		if len(a.Order) < a.K {
			v.fail("order: %d elements, %d needed", len(a.Order), a.K)
			return 0, 0
		}
		for j, from := range a.Order[:a.K] {
			if int64(from) >= int64(a.XStride) {
				v.fail("order: element %d is %d, a row of x has %d", j, from, a.XStride)
				return 0, 0
			}
		}
		a.X = v.floats(3, "x", v.rows*a.XStride)
		a.Out = v.floats(4, "out", v.rows*a.K)
		return v.rows, a.K / 4
	}), nil
}

func argmaxPartial(consts) ([]phase, error) { return argmaxPartialOf(0), nil }

func argmaxBlocks(consts) ([]phase, error) { return argmaxPartialOf(2048), nil }

// argmaxPartialOf has slices of block ids each, or, if that is 0, of every parts-th id.
func argmaxPartialOf(block int) []phase {
	a := ref.ArgmaxPartialArgs{Block: block}
	return rowwise(a, ref.ArgmaxPartial, func(a *ref.ArgmaxPartialArgs, v *views) (int, int) {
		a.Vocab, a.Limit, a.Parts = v.dim(0, "vocab"), v.dim(1, "limit"), v.count(2, "parts")
		if a.Limit == 0 || a.Limit > a.Vocab {
			v.fail("limit %d of a vocabulary of %d", a.Limit, a.Vocab)
		}
		if a.Parts == 0 {
			v.fail("no parts")
		}
		a.Logits = v.floats(2, "logits", v.rows*a.Vocab)
		a.Partial = view[ref.Best](v.words(3), 2)
		if len(a.Partial) < v.rows*a.Parts {
			v.fail("partial: %d elements, %d needed", len(a.Partial), v.rows*a.Parts)
		}
		return v.rows, a.Vocab
	})
}

func argmaxReduce(consts) ([]phase, error) {
	return rowwise(ref.ArgmaxReduceArgs{}, ref.ArgmaxReduce, func(a *ref.ArgmaxReduceArgs, v *views) (int, int) {
		return argmaxReduceArgs(v, a, 0, 2, 3)
	}), nil
}

// argmaxReduceArgs reads the number of parts and the bindings of partial and ids.
func argmaxReduceArgs(v *views, a *ref.ArgmaxReduceArgs, parts, partial, ids int) (items, cost int) {
	a.Parts = v.dim(parts, "parts")
	if a.Parts == 0 {
		v.fail("no parts")
	}
	a.Partial = view[ref.Best](v.words(partial), 2)
	if len(a.Partial) < v.rows*a.Parts {
		v.fail("partial: %d elements, %d needed", len(a.Partial), v.rows*a.Parts)
	}
	a.IDs = v.words(ids)
	if len(a.IDs) < v.rows {
		v.fail("ids: %d elements, %d needed", len(a.IDs), v.rows)
	}
	return v.rows, 4 * a.Parts
}
