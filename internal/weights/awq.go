package weights

import (
	"strings"

	"github.com/pagelight/pagelight/internal/quant"
)

// awq is the layout "gemm" of AutoAWQ (casper-hansen/AutoAWQ, awq/modules/linear/gemm.py, awq/utils/packing_utils.py):
//
//	qweight  i32 [in, out/8]        eight outputs of one input to a word, in awqOrder
//	qzeros   i32 [in/group, out/8]  likewise
//	scales   f16 [in/group, out]
//	weight = (code - zero) * scale
type awq struct {
	group int // inputs that share a scale, 0: all
}

func newAWQ(raw []byte) (scheme, error) {
	var c struct {
		Bits      *int   `json:"bits"`
		WBit      *int   `json:"w_bit"` // in quant_config.json
		Group     *int   `json:"group_size"`
		QGroup    *int   `json:"q_group_size"`
		ZeroPoint *bool  `json:"zero_point"`
		Version   string `json:"version"`
		Format    string `json:"format"` // what later tools call it
		Backend   string `json:"backend"`
	}
	if err := decodeJSON(raw, &c); err != nil {
		return nil, err
	}
	bits := 4
	set(&bits, c.WBit)
	set(&bits, c.Bits)
	if bits != 4 {
		return nil, refuse("awq with bits", bits, "4 is")
	}
	for _, v := range []struct{ field, value string }{{"version", c.Version}, {"format", c.Format}} {
		if v.value != "" && !strings.EqualFold(v.value, "gemm") {
			return nil, refuse("awq "+v.field, v.value, "gemm is: "+instead)
		}
	}
	if c.Backend != "" && !strings.EqualFold(c.Backend, "autoawq") {
		return nil, refuse("awq backend", c.Backend, "autoawq is: "+instead)
	}
	if c.ZeroPoint != nil && !*c.ZeroPoint {
		return nil, refuse("awq with zero_point", false, "true is")
	}
	group, err := groupSize(c.Group, c.QGroup)
	if err != nil {
		return nil, err
	}
	return &awq{group}, nil
}

func (a *awq) name() string { return "awq" }

func (a *awq) quantizes(suffix string, _ dirTensor) bool {
	return suffix == "qweight" || suffix == "qzeros"
}

func (a *awq) matrix(p *parts) (*packedMatrix, error) {
	q := p.matrix("qweight", "I32")
	if p.err != nil {
		return nil, p.err
	}
	p.alone("qweight")
	m := &packedMatrix{k: q.shape[0], rows: 8 * q.shape[1], size: a.group}
	if m.size == 0 {
		m.size = m.k
	}
	if m.k%m.size != 0 {
		p.fail("qweight", "has %d inputs, which groups of %d do not divide", m.k, m.size)
	}
	groups := m.k / m.size
	m.codes = codes{t: q, bits: 4, byInput: true, across: true}
	m.zeros = zeroPoints{layout: zeroAcross, t: p.get("qzeros", "I32"), bits: 4, tensor: p.module + ".qzeros"}
	p.want("qzeros", m.zeros.t, []int{groups, q.shape[1]})
	m.scales = p.floats("scales")
	m.scales.groups, m.scales.byGroup = groups, true
	p.want("scales", m.scales.t, []int{groups, m.rows})
	return p.finish(m, quant.Q4, "qweight")
}
