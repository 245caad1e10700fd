package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/ref"
)

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
	if kind > uint32(quant.CCQ2) {
		return quant.Format{}, fmt.Errorf("WEIGHT is %d", kind)
	}
	f := quant.Format{Kind: quant.Kind(kind)}
	if f.Grouped() {
		group, err := c.get("GROUP")
		if err != nil {
			return f, err
		}
		f.Group = int(group)
	}
	return f, f.Check(f.Multiple())
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
	if k%w.Format.Multiple() != 0 {
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
func view[T float32 | ref.Token | ref.Best | ref.Draw | ref.Slice | ref.State | ref.Sampler | ref.Penalty | ref.Entry | ref.Mass | [2]uint32 | [8]uint32](words []uint32, n int) []T {
	if len(words) < n {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&words[0])), len(words)/n)
}
