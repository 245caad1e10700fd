package weights

import (
	"fmt"
	"strings"

	"github.com/pagelight/pagelight/internal/quant"
)

// fp8 are weights in 8-bit floats, e4m3fn: sign, 4 bits of exponent, 3 of mantissa, no infinities.
//
//	weight            f8 [out, in]
//	weight_scale      f32 or bf16, one; [out] or [out, 1]; or a block's: [out/128 rounded up, in/128 rounded up]
//	weight = value * scale
//
// Scales of blocks are mostly called weight_scale_inv, and yet are what values are multiplied with. input_scale and
// activation_scheme are about activations, which stay f32 here.
type fp8 struct {
	block [2]int // outputs and inputs of a block, 0: no blocks
}

func newFP8(raw []byte) (scheme, error) {
	var c struct {
		Block  []int  `json:"weight_block_size"`
		Format string `json:"fmt"`
	}
	if err := decodeJSON(raw, &c); err != nil {
		return nil, err
	}
	if f := strings.ToLower(c.Format); f != "" && f != "e4m3" && f != "e4m3fn" && f != "float8_e4m3fn" {
		return nil, refuse("fp8 with fmt", fmt.Sprintf("%q", c.Format), "e4m3 is")
	}
	block, err := blockSize("weight_block_size", c.Block)
	return &fp8{block}, err
}

// blockSize reads the sides of a block; nothing gives 0.
func blockSize(field string, sides []int) (block [2]int, err error) {
	if len(sides) == 0 {
		return block, nil
	}
	if len(sides) != 2 || sides[0] < 1 || sides[1] < 1 || sides[0] > 1<<24 || sides[1] > 1<<24 {
		return block, fmt.Errorf("%s is %v, want two positive numbers", field, sides)
	}
	return [2]int(sides), nil
}

func (f *fp8) name() string { return "fp8" }

func (f *fp8) quantizes(suffix string, t dirTensor) bool {
	return suffix == "weight" && strings.HasPrefix(t.dtype, "F8_")
}

func (f *fp8) matrix(p *parts) (*packedMatrix, error) {
	suffix := "weight_scale"
	if p.has("weight_scale_inv") {
		suffix = "weight_scale_inv"
	}
	return p.floatMatrix(suffix, f.block)
}

// floatMatrix is a matrix of 8-bit floats with the named scales.
func (p *parts) floatMatrix(scale string, block [2]int) (*packedMatrix, error) {
	q := p.matrix("weight", "F8_E4M3")
	if p.err != nil {
		return nil, p.err
	}
	m := &packedMatrix{rows: q.shape[0], k: q.shape[1]}
	m.codes = codes{t: q, bits: 8}
	m.scales = p.floats(scale)
	if block[0] > 0 {
		m.scales.rowStep, m.size = block[0], block[1]
		m.scales.groups = (m.k + m.size - 1) / m.size
		p.want(scale, m.scales.t, []int{(m.rows + block[0] - 1) / block[0], m.scales.groups})
	} else {
		p.wide(m, scale)
	}
	return p.finish(m, quant.F8, "weight")
}

// wide fills in scales that hold for a whole output, or for the whole matrix.
func (p *parts) wide(m *packedMatrix, scale string) {
	m.size, m.scales.groups = m.k, 1
	if len(m.scales.t.shape) == 0 || m.scales.t.shape[0] == 1 {
		m.scales.rowStep = m.rows
		p.want(scale, m.scales.t, []int{}, []int{1}, []int{1, 1})
		return
	}
	p.want(scale, m.scales.t, []int{m.rows}, []int{m.rows, 1})
}
