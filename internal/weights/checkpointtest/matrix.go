// Package checkpointtest writes checkpoints in the layouts of other tools, for tests of what reads them. It states each
// layout once more, one code at a time and from the tools' descriptions, and shares nothing with the reader.
package checkpointtest

import (
	"encoding/binary"
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// Matrix is a quantized matrix [Rows, K]: weight = (code - zero) * scale.
type Matrix struct {
	Rows, K int
	Bits    int
	Groups  int
	Codes   []uint8   // [Rows, K], from 0 on
	Zeros   []uint8   // [Rows, Groups]
	Scales  []float32 // [Rows, Groups], halves
	Index   []int     // group of each column
}

// At is a weight.
func (m *Matrix) At(row, col int) float32 {
	g := row*m.Groups + m.Index[col]
	return (float32(m.Codes[row*m.K+col]) - float32(m.Zeros[g])) * m.Scales[g]
}

// Options say how to quantize.
type Options struct {
	Bits  int
	Group int // columns that share a scale, 0: all
	// Sym: the zero point is the middle code, and the weight of largest magnitude gets code 0. Else the smallest and the
	// largest weight get the first and the last code.
	Sym bool
	// Spread puts column i into group (7*i) modulo the number of groups, as act-order scatters them.
	Spread bool
}

// Quantize rounds rows of k weights to the nearest codes.
func Quantize(w []float32, k int, o Options) *Matrix {
	group := o.Group
	if group == 0 {
		group = k
	}
	m := &Matrix{Rows: len(w) / k, K: k, Bits: o.Bits, Groups: (k + group - 1) / group, Codes: make([]uint8, len(w)), Index: make([]int, k)}
	for i := range m.Index {
		m.Index[i] = i / group
		if o.Spread {
			m.Index[i] = 7 * i % m.Groups
		}
	}
	m.Zeros, m.Scales = make([]uint8, m.Rows*m.Groups), make([]float32, m.Rows*m.Groups)
	for row := range m.Rows {
		at := row * m.Groups
		m.quantizeRow(w[row*k:][:k], m.Codes[row*k:][:k], m.Zeros[at:][:m.Groups], m.Scales[at:][:m.Groups], o.Sym)
	}
	return m
}

func (m *Matrix) quantizeRow(w []float32, codes, zeros []uint8, scales []float32, sym bool) {
	top := float64(int(1)<<m.Bits - 1)
	lo, hi := make([]float64, m.Groups), make([]float64, m.Groups)
	for i, v := range w {
		g := m.Index[i]
		lo[g], hi[g] = min(lo[g], float64(v)), max(hi[g], float64(v))
	}
	for g := range scales {
		scale, zero := (hi[g]-lo[g])/top, 0.0
		if sym {
			far := hi[g]
			if -lo[g] >= far {
				far = lo[g]
			}
			zero = (top + 1) / 2
			scale = -far / zero
		}
		scale = float64(quant.F16ToF32(quant.F32ToF16(float32(scale))))
		if scale == 0 {
			scale = 1.0 / 1024
		}
		if !sym {
			zero = min(max(math.Round(-lo[g]/scale), 0), top)
		}
		zeros[g], scales[g] = uint8(zero), float32(scale)
	}
	for i, v := range w {
		g := m.Index[i]
		codes[i] = uint8(min(max(math.Round(float64(v)/float64(scales[g]))+float64(zeros[g]), 0), top))
	}
}

// Tensor is a tensor of a safetensors file.
type Tensor struct {
	Name  string
	DType string
	Shape []int
	Data  []byte
}

// bitWords are 32-bit words that codes are put into.
type bitWords []byte

func newWords(n int) bitWords { return make([]byte, 4*n) }

func (w bitWords) put(word, bit int, code uint8) {
	at := w[4*word:]
	binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)|uint32(code)<<bit)
}

// AWQ is the layout "gemm" of AutoAWQ: [in, out/8] words, whose nibble i is output order[i] of the eight.
func (m *Matrix) AWQ(module string) []Tensor {
	order := [8]int{0, 2, 4, 6, 1, 3, 5, 7}
	across := m.Rows / 8
	q, z := newWords(m.K*across), newWords(m.Groups*across)
	for word := range across {
		for nibble, output := range order {
			row := 8*word + output
			for in := range m.K {
				q.put(in*across+word, 4*nibble, m.Codes[row*m.K+in])
			}
			for g := range m.Groups {
				z.put(g*across+word, 4*nibble, m.Zeros[row*m.Groups+g])
			}
		}
	}
	return []Tensor{
		{module + ".qweight", "I32", []int{m.K, across}, q},
		{module + ".qzeros", "I32", []int{m.Groups, across}, z},
		m.scalesByGroup(module + ".scales"),
	}
}

func (m *Matrix) scalesByGroup(name string) Tensor {
	s := make([]byte, 0, 2*m.Groups*m.Rows)
	for g := range m.Groups {
		for row := range m.Rows {
			s = binary.LittleEndian.AppendUint16(s, quant.F32ToF16(m.Scales[row*m.Groups+g]))
		}
	}
	return Tensor{name, "F16", []int{m.Groups, m.Rows}, s}
}

// GPTQ is the layout of AutoGPTQ; v2 stores zero points as they are, v1 less one. Codes follow each other bit by bit.
func (m *Matrix) GPTQ(module string, v2 bool) []Tensor {
	mask, down, across := 1<<m.Bits-1, m.K*m.Bits/32, m.Rows*m.Bits/32
	q, z := newWords(down*m.Rows), newWords(m.Groups*across)
	var index []byte
	for in := range m.K {
		index = binary.LittleEndian.AppendUint32(index, uint32(m.Index[in]))
		for row := range m.Rows {
			for b := range m.Bits {
				bit := in*m.Bits + b
				q.put(bit/32*m.Rows+row, bit%32, m.Codes[row*m.K+in]>>b&1)
			}
		}
	}
	for g := range m.Groups {
		for row := range m.Rows {
			zero := int(m.Zeros[row*m.Groups+g])
			if !v2 {
				zero = (zero - 1) & mask
			}
			for b := range m.Bits {
				bit := row*m.Bits + b
				z.put(g*across+bit/32, bit%32, uint8(zero>>b&1))
			}
		}
	}
	return []Tensor{
		{module + ".qweight", "I32", []int{down, m.Rows}, q},
		{module + ".qzeros", "I32", []int{m.Groups, across}, z},
		m.scalesByGroup(module + ".scales"),
		{module + ".g_idx", "I32", []int{m.K}, index},
	}
}

// Packed is compressed-tensors' pack-quantized, with zero points in words.
func (m *Matrix) Packed(module string, sym, index bool) []Tensor {
	per := 32 / m.Bits
	down := (m.Rows + per - 1) / per
	q, z := newWords(m.Rows*m.K/per), newWords(down*m.Groups)
	for row := range m.Rows {
		for in := range m.K {
			q.put((row*m.K+in)/per, m.Bits*(in%per), m.Codes[row*m.K+in])
		}
		for g := range m.Groups {
			z.put(row/per*m.Groups+g, m.Bits*(row%per), m.Zeros[row*m.Groups+g])
		}
	}
	var shape, at []byte
	shape = binary.LittleEndian.AppendUint64(shape, uint64(m.Rows))
	shape = binary.LittleEndian.AppendUint64(shape, uint64(m.K))
	out := []Tensor{
		{module + ".weight_packed", "I32", []int{m.Rows, m.K / per}, q},
		m.scalesByRow(module + ".weight_scale"),
		{module + ".weight_shape", "I64", []int{2}, shape},
	}
	if !sym {
		out = append(out, Tensor{module + ".weight_zero_point", "I32", []int{down, m.Groups}, z})
	}
	if index {
		for _, g := range m.Index {
			at = binary.LittleEndian.AppendUint32(at, uint32(g))
		}
		out = append(out, Tensor{module + ".weight_g_idx", "I32", []int{m.K}, at})
	}
	return out
}

func (m *Matrix) scalesByRow(name string) Tensor {
	var s []byte
	for _, v := range m.Scales {
		s = binary.LittleEndian.AppendUint16(s, quant.F32ToF16(v))
	}
	return Tensor{name, "F16", []int{m.Rows, m.Groups}, s}
}

// Bytes is compressed-tensors' int-quantized: signed bytes, with zero points likewise.
func (m *Matrix) Bytes(module string, sym bool) []Tensor {
	half := 1 << (m.Bits - 1)
	signed := func(codes []uint8) []byte {
		out := make([]byte, len(codes))
		for i, c := range codes {
			out[i] = byte(int8(int(c) - half))
		}
		return out
	}
	out := []Tensor{{module + ".weight", "I8", []int{m.Rows, m.K}, signed(m.Codes)}, m.scalesByRow(module + ".weight_scale")}
	if !sym {
		out = append(out, Tensor{module + ".weight_zero_point", "I8", []int{m.Rows, m.Groups}, signed(m.Zeros)})
	}
	return out
}
