package weights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pagelight/pagelight/internal/quant"
)

// gptq is the layout of AutoGPTQ and GPTQModel (AutoGPTQ/AutoGPTQ, auto_gptq/nn_modules/qlinear/qlinear_cuda_old.py), b bits:
//
//	qweight  i32 [in*b/32, out]                  inputs of one output, b bits each, the first in the lowest bits; codes of 3 bits
//	                                             go on in the next word
//	qzeros   i32 [in/group rounded up, out*b/32] outputs likewise
//	scales   f16 [in/group rounded up, out]
//	g_idx    i32 [in]                            the group of each input; without it, input/group
//	weight[o, i] = (code - zero[g_idx[i], o]) * scale[g_idx[i], o]
//
// The zero points of checkpoint_format "gptq" are stored less one, modulo 2^b; those of "gptq_v2" are stored as they are.
// desc_act spreads the inputs of a group over the matrix; its columns then are sorted by group (Source.Order).
type gptq struct {
	bits, group int // group 0: all inputs
	kind        quant.Kind
	desc        bool
	zeroAdd     int
}

// gptqKinds are the numbers of bits that a code may have.
var gptqKinds = map[int]quant.Kind{2: quant.Q2, 3: quant.Q3, 4: quant.Q4, 8: quant.Q8}

func newGPTQ(raw []byte) (scheme, error) {
	var c struct {
		Bits    *int           `json:"bits"`
		Group   *int           `json:"group_size"`
		Desc    bool           `json:"desc_act"`
		Format  string         `json:"checkpoint_format"`
		Later   string         `json:"format"`
		Marlin  bool           `json:"is_marlin_format"`
		Dynamic map[string]any `json:"dynamic"`
	}
	if err := decodeJSON(raw, &c); err != nil {
		return nil, err
	}
	if c.Bits == nil {
		return nil, fmt.Errorf("bits is missing")
	}
	g := &gptq{bits: *c.Bits, desc: c.Desc}
	var ok bool
	if g.kind, ok = gptqKinds[g.bits]; !ok {
		return nil, refuse("gptq with bits", g.bits, "2, 3, 4 and 8 are")
	}
	format := c.Format
	if format == "" {
		format = c.Later
	}
	if c.Marlin {
		format = "marlin"
	}
	switch strings.ToLower(format) {
	case "", "gptq":
		g.zeroAdd = 1
	case "gptq_v2":
	default:
		return nil, refuse("gptq checkpoint_format", fmt.Sprintf("%q", format), "gptq and gptq_v2 are: "+instead)
	}
	// Patterns with "-:" leave modules out, which then have plain weights. The others give some modules other settings.
	for _, pattern := range slices.Sorted(maps.Keys(c.Dynamic)) {
		if !strings.HasPrefix(pattern, "-:") {
			return nil, refuse("gptq with settings of their own for modules (dynamic)", fmt.Sprintf("%q", pattern), "the same for all are")
		}
	}
	var err error
	g.group, err = groupSize(c.Group)
	return g, err
}

func (g *gptq) name() string { return "gptq" }

func (g *gptq) quantizes(suffix string, _ dirTensor) bool {
	return suffix == "qweight" || suffix == "qzeros"
}

func (g *gptq) matrix(p *parts) (*packedMatrix, error) {
	q := p.matrix("qweight", "I32")
	if p.err != nil {
		return nil, p.err
	}
	p.alone("qweight")
	if q.shape[0]*32%g.bits != 0 {
		p.fail("qweight", "has %d words for the inputs, which are no whole codes of %d bits", q.shape[0], g.bits)
	}
	m := &packedMatrix{k: q.shape[0] * 32 / g.bits, rows: q.shape[1], size: g.group}
	if m.size == 0 {
		m.size = m.k
	}
	if m.rows*g.bits%32 != 0 {
		p.fail("qweight", "has %d outputs, whose zero points of %d bits are no whole words", m.rows, g.bits)
	}
	groups := (m.k + m.size - 1) / m.size
	m.codes = codes{t: q, bits: g.bits, byInput: true}
	m.zeros = zeroPoints{layout: zeroByGroup, t: p.get("qzeros", "I32"), bits: g.bits, add: g.zeroAdd, tensor: p.module + ".qzeros"}
	p.want("qzeros", m.zeros.t, []int{groups, m.rows * g.bits / 32})
	m.scales = p.floats("scales")
	m.scales.groups, m.scales.byGroup = groups, true
	p.want("scales", m.scales.t, []int{groups, m.rows})
	if g.desc || p.has("g_idx") {
		index := p.get("g_idx", "I32")
		p.want("g_idx", index, []int{m.k})
		m.index = &index
	}
	return p.finish(m, g.kind, "qweight")
}
