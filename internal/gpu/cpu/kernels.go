package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/quant"
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

// uniformLayout is that of matmul_uniform, whose inputs are a uniform.
func uniformLayout() []gpu.BindingKind {
	list := layout(4, 1)
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
	"matmul_serial":      {layout(4, 1), matmul},
	"matmul_uniform":     {uniformLayout(), matmulUniform},
	"rope":               {layout(2, 1), rope},
	"kv_store":           {layout(2, 2), kvStore},
	"kv_store_i8":        {layout(2, 2), kvStoreI8},
	"paged_attn_prefill": {layout(5, 1), pagedAttn},
	"paged_attn_serial":  {layout(5, 1), pagedAttnSerial},
	"paged_attn_decode":  {layout(5, 1), pagedAttnDecode},
	"paged_attn_reduce":  {layout(1, 1), pagedAttnReduce},
	"silu_mul":           {layout(1, 1), siluMul},
	"gather_rows":        {layout(2, 1), gatherRows},
	"argmax_partial":     {layout(1, 1), argmaxPartial},
	"argmax_reduce":      {layout(1, 1), argmaxReduce},
	"topk_partial":       {layout(2, 1), topKPartial},
	"topk_reduce":        {layout(3, 2), topKReduce},
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

func rope(c consts) ([]phase, error) {
	var a ref.RopeArgs
	var err error
	a.HeadDim, err = c.headDim()
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

func argmaxPartial(consts) ([]phase, error) {
	var a ref.ArgmaxPartialArgs
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
	}), nil
}

func argmaxReduce(consts) ([]phase, error) {
	var a ref.ArgmaxReduceArgs
	return rowwise(a, ref.ArgmaxReduce, func(a *ref.ArgmaxReduceArgs, v *views) (int, int) {
		a.Parts = v.count(0, "parts")
		if a.Parts == 0 {
			v.fail("no parts")
		}
		a.Partial = view[ref.Best](v.words(2), 2)
		if len(a.Partial) < v.rows*a.Parts {
			v.fail("partial: %d elements, %d needed", len(a.Partial), v.rows*a.Parts)
		}
		a.IDs = v.words(3)
		if len(a.IDs) < v.rows {
			v.fail("ids: %d elements, %d needed", len(a.IDs), v.rows)
		}
		return v.rows, 4 * a.Parts
	}), nil
}

// consts are PipelineDesc.Consts.
type consts map[string]uint32

// get is a constant that the kernel cannot do without.
func (c consts) get(name string) (uint32, error) {
	v, ok := c[name]
	if !ok {
		return 0, fmt.Errorf("the constant %s is missing", name)
	}
	return v, nil
}

// headDim is HEAD_DIM.
func (c consts) headDim() (int, error) {
	d, err := c.get("HEAD_DIM")
	if err == nil && (d == 0 || d%16 != 0 || d > 256) {
		err = fmt.Errorf("HEAD_DIM is %d, not a multiple of 16 up to 256", d)
	}
	return int(d), err
}

// cache sets what HEAD_DIM and KV_TYPE say of the KV cache.
func (c consts) cache(cache *ref.Cache) error {
	var err error
	if cache.HeadDim, err = c.headDim(); err != nil {
		return err
	}
	kv, err := c.get("KV_TYPE")
	cache.KV = quant.KVType(kv)
	if err == nil && kv > uint32(quant.KVI8) {
		err = fmt.Errorf("KV_TYPE is %d", kv)
	}
	return err
}

// format is what WEIGHT and GROUP say of the weights.
func (c consts) format() (quant.Format, error) {
	kind, err := c.get("WEIGHT")
	if err != nil {
		return quant.Format{}, err
	}
	if kind > uint32(quant.Q4) {
		return quant.Format{}, fmt.Errorf("WEIGHT is %d", kind)
	}
	f := quant.Format{Kind: quant.Kind(kind)}
	if f.MaxCode() > 0 {
		group, err := c.get("GROUP")
		if err != nil {
			return f, err
		}
		f.Group = int(group)
		return f, f.Check(f.Group)
	}
	return f, nil
}

// The most that parameters may say, so that products of them cannot overflow.
const (
	maxRows  = 1 << 20 // rows of a step
	maxDim   = 1 << 24 // sizes and offsets
	maxCount = 1 << 12 // heads and partitions
)

// views shows the buffers of a command to a kernel. Its methods note the first complaint in err and go on.
type views struct {
	bindings []binding
	params   []uint32
	rows     int // M
	pool     *pool
	err      error
}

// bind starts a command.
func (v *views) bind(bindings []binding, p *pool) {
	*v = views{bindings: bindings, pool: p}
	v.params = v.words(0)
	step := v.words(1)
	if len(step) < 4 {
		v.fail("step: %d bytes, 16 needed", 4*len(step))
	}
	if v.err == nil {
		v.rows = int(step[0])
	}
	if v.rows > maxRows {
		v.fail("step: %d rows, the most is %d", v.rows, maxRows)
	}
}

// fail notes a complaint.
func (v *views) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// words is a whole binding.
func (v *views) words(i int) []uint32 {
	b := &v.bindings[i]
	return b.buffer.words[b.from:b.to:b.to]
}

// floats is a binding that must have at least n elements.
func (v *views) floats(i int, name string, n int) []float32 {
	f := view[float32](v.words(i), 1)
	if len(f) < n {
		v.fail("%s: %d elements, %d needed", name, len(f), n)
	}
	return f
}

// tokens is a binding that must have one element per row; it shows just these.
func (v *views) tokens(i int) []ref.Token {
	t := view[ref.Token](v.words(i), 4)
	if len(t) < v.rows {
		v.fail("tokens: %d elements, %d needed", len(t), v.rows)
	}
	return t[:min(len(t), v.rows)]
}

// matrix sets a weight matrix from the bindings of its data and scales.
func (v *views) matrix(w *ref.Matrix, rows, k, data, scales int) {
	if group := w.Format.Group; k%8 != 0 || group > 0 && k%group != 0 {
		v.fail("k %d does not fit format %v", k, w.Format)
		return
	}
	w.Rows, w.K, w.Data, w.Scales = rows, k, v.words(data), nil
	if len(w.Data) < rows*w.Format.RowWords(k) {
		v.fail("weights: %d words, %d needed", len(w.Data), rows*w.Format.RowWords(k))
	}
	if n := rows * w.Format.ScaleWords(k); n > 0 {
		w.Scales = v.words(scales)
		if len(w.Scales) < n {
			v.fail("scales: %d words, %d needed", len(w.Scales), n)
		}
	}
}

// widened is memory for n inputs in float64, valid until the command ends.
func (v *views) widened(n int) []float64 {
	if cap(v.pool.wide) < n {
		v.pool.wide = make([]float64, n)
	}
	return v.pool.wide[:n]
}

// param is field i of Params.
func (v *views) param(i int) uint32 {
	if i >= len(v.params) {
		v.fail("params: %d fields, %d needed", len(v.params), i+1)
		return 0
	}
	return v.params[i]
}

// part is the rows of a dispatch that computes some of a step's: the fields first and count of Params say which, as far as
// the step has them.
func (v *views) part(first, count int) (row0, rows int) {
	row0 = min(v.dim(first, "row0"), v.rows)
	return row0, min(v.dim(count, "rows"), v.rows-row0)
}

// float is field i of Params, an f32.
func (v *views) float(i int) float32 { return math.Float32frombits(v.param(i)) }

// dim is field i of Params, a size or an offset.
func (v *views) dim(i int, name string) int { return v.bounded(i, name, maxDim) }

// count is field i of Params, a small number.
func (v *views) count(i int, name string) int { return v.bounded(i, name, maxCount) }

func (v *views) bounded(i int, name string, most int) int {
	n := v.param(i)
	if int64(n) > int64(most) {
		v.fail("%s is %d, the most is %d", name, n, most)
		return 0
	}
	return int(n)
}

// view shows words as elements of n words each.
func view[T float32 | ref.Token | ref.Best | ref.Draw | ref.Slice | [2]uint32](words []uint32, n int) []T {
	if len(words) < n {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&words[0])), len(words)/n)
}
