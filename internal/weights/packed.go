package weights

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pagelight/pagelight/internal/quant"
)

// Checkpoints that another tool quantized hold a matrix as several tensors: codes, scales, zero points, and sometimes the
// group that each column belongs to. They differ in the order of these and in little else, so a packedMatrix describes where
// each number lies, and an unpacker writes it as one of the device's formats. Codes are moved, never computed with:
// what is in the checkpoint is what the device multiplies with (docs/adr/0024-quantized-checkpoints.md).

// packedMatrix is a quantized matrix [rows, k] of a checkpoint.
type packedMatrix struct {
	module string // the tensors are named module.qweight and so on
	file   string // that holds the codes
	rows   int
	k      int
	format quant.Format // on the device

	codes  codes
	scales grid
	zeros  zeroPoints
	size   int        // columns that share a scale, where index is nil
	index  *dirTensor // the group of each column (g_idx), where its tensor says so
	// shuffled says that columns of a group do not lie together; then they are sorted by group.
	shuffled bool

	err error // why it cannot be read
}

// codes says how the codes of a matrix lie in its tensor: little-endian words of 32 bits.
type codes struct {
	t    dirTensor
	bits int
	// byInput: the tensor's rows belong to inputs (the matrix lies transposed) and not to outputs.
	byInput bool
	// across: a word holds neighbouring outputs of one input, in AWQ's order; else neighbouring inputs of one output.
	across bool
	flip   uint32 // bits of each word to turn over: makes signed codes unsigned
	tensor string // its name, for errors
}

// lines is the number of rows of the tensor and the bytes that n outputs take in one of them (byInput only).
func (c *codes) lines(k, n int) (count, size int) {
	if c.across {
		return k, n * c.bits / 8
	}
	return k * c.bits / 32, 4 * n
}

// grid says how one value for each group of a matrix, a scale, lies in its tensor.
type grid struct {
	t       dirTensor
	kind    quant.Kind // F16, BF16 or F32
	groups  int        // values along the inputs
	rowStep int        // outputs that share a value
	byGroup bool       // the tensor is [groups, rows] and not [rows/rowStep, groups]
	tensor  string
}

// zeroPoints says where the zero points of a matrix lie.
type zeroPoints struct {
	layout zeroLayout
	t      dirTensor
	bits   int
	add    int   // to what is stored, in a code's bits
	value  uint8 // where all are the same
	tensor string
}

type zeroLayout uint8

const (
	zeroSame     zeroLayout = iota // all are value
	zeroAcross                     // words [groups, rows/8], AWQ's order
	zeroByGroup                    // words [groups, rows*bits/32]
	zeroByRow                      // words [rows*bits/32 rounded up, groups]
	zeroBytes                      // signed bytes [rows, groups]
	zeroByteSame                   // one signed byte
)

// packedPart is a run of rows of a packed matrix: all of them, or the part of a fused one.
type packedPart struct {
	m        *packedMatrix
	lo, rows int
}

func (p *packedPart) info() (Info, error) {
	return Info{Rows: p.rows, K: p.m.k, Format: p.m.format}, p.m.err
}

// awqOrder is the nibble in which AWQ keeps each of eight neighbouring outputs: its kernels unpack the even nibbles first.
var awqOrder = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// parts collects the tensors of a quantized module, and the first error.
type parts struct {
	d      *dirSource
	module string
	err    error
}

func (p *parts) fail(suffix, format string, args ...any) {
	if p.err == nil {
		name := p.module + "." + suffix
		p.err = fmt.Errorf("weights: %s: tensor %q %w", p.d.where(name), name, fmt.Errorf(format, args...))
	}
}

func (p *parts) has(suffix string) bool { return p.d.hasTensor(p.module + "." + suffix) }

// get finds a tensor of the module that has one of the given types.
func (p *parts) get(suffix string, dtypes ...string) dirTensor {
	t, ok := p.d.tensors[p.module+"."+suffix]
	switch {
	case !ok:
		if p.err == nil {
			name := p.module + "." + suffix
			p.err = fmt.Errorf("weights: %s: tensor %q: %w; %s needs it", p.d.where(name), name, ErrNoTensor, p.d.scheme.name())
		}
	case !slices.Contains(dtypes, t.dtype):
		p.fail(suffix, "is stored as %s, want %s", t.dtype, strings.Join(dtypes, " or "))
	}
	return t
}

// matrix is get for the tensor of codes, which has two dimensions of at least 1.
func (p *parts) matrix(suffix string, dtypes ...string) dirTensor {
	t := p.get(suffix, dtypes...)
	if p.err == nil && (len(t.shape) != 2 || t.shape[0] < 1 || t.shape[1] < 1) {
		p.fail(suffix, "has shape %v, which is not a matrix's", t.shape)
	}
	return t
}

// want demands a shape.
func (p *parts) want(suffix string, t dirTensor, shapes ...[]int) {
	for _, s := range shapes {
		if slices.Equal(s, t.shape) {
			return
		}
	}
	var words []string
	for _, s := range shapes {
		words = append(words, fmt.Sprint(s))
	}
	p.fail(suffix, "has shape %v, want %s", t.shape, strings.Join(words, " or "))
}

// alone refuses a module that also has a plain weight: it does not say which of the two holds.
func (p *parts) alone(suffix string) {
	if p.has("weight") {
		p.fail(suffix, "stands beside %s.weight", p.module)
	}
}

// floats is the tensor of scales.
func (p *parts) floats(suffix string) grid {
	g := grid{t: p.get(suffix, "F16", "BF16", "F32"), rowStep: 1, tensor: p.module + "." + suffix}
	if f, err := floatFormat(g.t.dtype); err == nil {
		g.kind = f.Kind
	}
	return g
}

// finish chooses the format on the device for a matrix whose tensors are all there.
func (p *parts) finish(m *packedMatrix, kind quant.Kind, suffix string) (*packedMatrix, error) {
	if p.err != nil {
		return nil, p.err
	}
	m.module, m.file = p.module, m.codes.t.file.name
	m.codes.tensor = p.module + "." + suffix
	counts := []int{m.size, m.k}
	if m.index != nil {
		_, columns, err := m.columns()
		if err != nil {
			return nil, err
		}
		counts = columns.counts
		m.shuffled = columns.order != nil
	}
	m.format = quant.Format{Kind: kind, Group: commonGroup(counts)}
	if m.format.Group == 0 {
		p.fail(suffix, "has %d inputs in groups of %d; want multiples of 8 in each", m.k, slices.Min(counts))
		return nil, p.err
	}
	if err := m.format.Check(m.k); err != nil {
		p.fail(suffix, "has %d inputs in groups of %d: %w", m.k, m.size, err)
		return nil, p.err
	}
	return m, nil
}

// maxDeviceGroup is the largest group that kernels exist for; a larger one repeats its scale.
const maxDeviceGroup = 128

// commonGroup is the largest group of the device's that divides all of the runs of columns; 0 when none does.
func commonGroup(runs []int) int {
	for g := maxDeviceGroup; g >= 8; g /= 2 {
		if !slices.ContainsFunc(runs, func(n int) bool { return n%g != 0 }) {
			return g
		}
	}
	return 0
}

// columnGroups is what a tensor of column groups says.
type columnGroups struct {
	counts []int   // columns of each group
	order  []int32 // the columns sorted by group; nil when they are so already
}

// columns reads the group of each column.
func (m *packedMatrix) columns() (raw []byte, c columnGroups, err error) {
	raw = make([]byte, 4*m.k)
	if err := readAt(m.index.file.r, raw, m.index.offset); err != nil {
		return nil, c, m.errorf(*m.index, "g_idx", "%w", err)
	}
	c.counts, c.order, err = sortColumns(raw, m.scales.groups)
	if err != nil {
		return nil, c, m.errorf(*m.index, "g_idx", "%w", err)
	}
	return raw, c, nil
}

func (m *packedMatrix) errorf(t dirTensor, what, format string, args ...any) error {
	return fmt.Errorf("weights: %s: tensor %q: %s: %w", t.file.name, m.module, what, fmt.Errorf(format, args...))
}

// assemble finds the matrices that the checkpoint's scheme made of several tensors. What is wrong with one is said when the
// model asks for it: files may hold more than the model needs.
func (d *dirSource) assemble() {
	modules := map[string]bool{}
	for name, t := range d.tensors {
		if at := strings.LastIndexByte(name, '.'); at > 0 && d.scheme.quantizes(name[at+1:], t) {
			modules[name[:at]] = true
		}
	}
	d.packed = map[string]*packedPart{}
	for module := range modules {
		p := &parts{d: d, module: module}
		m, err := d.scheme.matrix(p)
		if err != nil {
			m = &packedMatrix{module: module, file: d.where(module), err: err}
		}
		d.cfg.Reordered = d.cfg.Reordered || m.shuffled
		d.packed[module+".weight"] = &packedPart{m: m, rows: m.rows}
	}
	for name := range d.packed {
		delete(d.tensors, name) // of a scheme that calls its codes so
	}
}

// splitPacked enters the parts of a fused matrix under the names of the parts.
func (d *dirSource) splitPacked(name, part string, names []string, rows []int) bool {
	p := d.packed[name]
	total := 0
	for _, n := range rows {
		total += n
	}
	if p.m.err == nil && p.rows != total {
		return false
	}
	lo := p.lo
	for i, n := range rows {
		d.packed[strings.Replace(name, part, names[i], 1)] = &packedPart{m: p.m, lo: lo, rows: n}
		lo += n
	}
	return true
}

// packedRows reads rows of a packed matrix.
func (d *dirSource) packedRows(ctx context.Context, name string, p *packedPart, lo, hi int) (Rows, error) {
	info, err := p.info()
	if err != nil {
		return Rows{}, err
	}
	if err := checkRange(name, lo, hi, info.Rows); err != nil {
		return Rows{}, err
	}
	d.buf = grow(d.buf, (hi-lo)*info.Format.RowBytes(info.K))
	d.scales = grow(d.scales, (hi-lo)*info.Format.ScaleBytes(info.K))
	if err := d.unpacker.rows(ctx, p.m, p.lo+lo, p.lo+hi, d.buf, d.scales); err != nil {
		return Rows{}, err
	}
	return Rows{Data: Segment{Bytes: d.buf}, Scales: Segment{Bytes: d.scales}}, nil
}

// Order reads the order of the columns of a matrix whose groups were chosen by activation (desc_act).
func (d *dirSource) Order(_ context.Context, name string) ([]int32, error) {
	p, ok := d.packed[name]
	if !ok {
		_, _, err := d.tensor(name)
		return nil, err
	}
	if p.m.err != nil || !p.m.shuffled {
		return nil, p.m.err
	}
	_, c, err := p.m.columns()
	return c.order, err
}
