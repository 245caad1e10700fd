package checkpointtest

import (
	"encoding/binary"
	"math"
	"sort"
)

// E4M3 is the value of an 8-bit float: sign, four bits of exponent, three of mantissa, and one NaN of each sign.
func E4M3(b byte) float32 {
	sign := 1.0
	if b&0x80 != 0 {
		sign = -1
	}
	exponent, mantissa := int(b>>3&15), float64(b&7)
	switch {
	case b&0x7F == 0x7F:
		return float32(math.NaN())
	case exponent == 0:
		return float32(sign * math.Ldexp(mantissa, -9))
	}
	return float32(sign * math.Ldexp(1+mantissa/8, exponent-7))
}

// nearestE4M3 rounds to the nearest 8-bit float of at most 448.
func nearestE4M3(v float32) byte {
	size := float32(math.Abs(float64(v)))
	code := sort.Search(0x7E, func(i int) bool { return E4M3(byte(i)) >= size })
	if code > 0 && size-E4M3(byte(code-1)) < E4M3(byte(code))-size {
		code--
	}
	if math.Signbit(float64(v)) {
		code |= 0x80
	}
	return byte(code)
}

// FloatMatrix is a matrix of 8-bit floats with a scale for each block.
type FloatMatrix struct {
	Rows, K int
	Block   int // rows and columns of a block
	Codes   []byte
	Scales  []float32 // [blocks of rows, blocks of columns]
}

// At is a weight.
func (m *FloatMatrix) At(row, col int) float32 {
	return E4M3(m.Codes[row*m.K+col]) * m.Scales[m.block(row, col)]
}

func (m *FloatMatrix) block(row, col int) int {
	return row/m.Block*((m.K+m.Block-1)/m.Block) + col/m.Block
}

// QuantizeFloats gives each block the scale that makes its largest weight 448.
func QuantizeFloats(w []float32, k, block int) *FloatMatrix {
	m := &FloatMatrix{Rows: len(w) / k, K: k, Block: block, Codes: make([]byte, len(w))}
	m.Scales = make([]float32, m.block(m.Rows-1, k-1)+1)
	for i, v := range w {
		at := &m.Scales[m.block(i/k, i%k)]
		*at = max(*at, float32(math.Abs(float64(v)))/448)
	}
	for i, v := range w {
		m.Codes[i] = nearestE4M3(v / m.Scales[m.block(i/k, i%k)])
	}
	return m
}

// FP8 are the tensors of a module with scales of blocks.
func (m *FloatMatrix) FP8(module string) []Tensor {
	var scales []byte
	for _, s := range m.Scales {
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(s))
	}
	across := (m.K + m.Block - 1) / m.Block
	return []Tensor{
		{module + ".weight", "F8_E4M3", []int{m.Rows, m.K}, m.Codes},
		{module + ".weight_scale_inv", "F32", []int{len(m.Scales) / across, across}, scales},
	}
}
