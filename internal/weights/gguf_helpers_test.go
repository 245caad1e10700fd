package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// memBlob is a blob in memory.
type memBlob []byte

func (b memBlob) Size() int64 { return int64(len(b)) }

func (b memBlob) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// ggufKV is a key with a value of a Go type that says which type it has in the file.
type ggufKV struct {
	key   string
	value any
}

// ggufEntry is a tensor of a file that a test makes.
type ggufEntry struct {
	name   string
	dims   []uint64 // K first
	kind   ggmlType
	data   []byte
	offset *uint64 // nil: behind the tensor before it
}

// ggufMaker writes files that follow the format, or nearly.
type ggufMaker struct {
	version uint32 // 0 stands for 3
	align   uint64 // of the tensors, 0 stands for 32
	kv      []ggufKV
	tensors []ggufEntry
}

func (m ggufMaker) header() []byte {
	le := binary.LittleEndian
	version := m.version
	if version == 0 {
		version = 3
	}
	b := le.AppendUint32([]byte("GGUF"), version)
	b = le.AppendUint64(b, uint64(len(m.tensors)))
	b = le.AppendUint64(b, uint64(len(m.kv)))
	for _, kv := range m.kv {
		b = appendGGUFString(b, kv.key)
		b = appendGGUFValue(b, kv.value)
	}
	next := uint64(0)
	for _, t := range m.tensors {
		b = appendGGUFString(b, t.name)
		b = le.AppendUint32(b, uint32(len(t.dims)))
		for _, d := range t.dims {
			b = le.AppendUint64(b, d)
		}
		b = le.AppendUint32(b, uint32(t.kind))
		if t.offset != nil {
			next = *t.offset
		}
		b = le.AppendUint64(b, next)
		next = m.up(next + uint64(len(t.data)))
	}
	return b
}

func (m ggufMaker) up(n uint64) uint64 {
	align := m.align
	if align == 0 {
		align = 32
	}
	return (n + align - 1) / align * align
}

// file is header and data; tensors with an offset of their own add nothing to the data.
func (m ggufMaker) file() []byte {
	b := m.header()
	b = append(b, make([]byte, m.up(uint64(len(b)))-uint64(len(b)))...)
	for _, t := range m.tensors {
		if t.offset == nil {
			b = append(b, t.data...)
			b = append(b, make([]byte, m.up(uint64(len(t.data)))-uint64(len(t.data)))...)
		}
	}
	return b
}

func appendGGUFString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// rawGGUF are bytes to stand where a value's type and value do.
type rawGGUF []byte

func appendGGUFValue(b []byte, v any) []byte {
	le := binary.LittleEndian
	array := func(kind ggufType, n int) []byte {
		b = le.AppendUint32(b, uint32(ggufArray))
		b = le.AppendUint32(b, uint32(kind))
		return le.AppendUint64(b, uint64(n))
	}
	kind := func(kind ggufType) []byte { return le.AppendUint32(b, uint32(kind)) }
	switch v := v.(type) {
	case rawGGUF:
		return append(b, v...)
	case string:
		return appendGGUFString(kind(ggufString), v)
	case bool:
		if v {
			return append(kind(ggufBool), 1)
		}
		return append(kind(ggufBool), 0)
	case uint8:
		return append(kind(ggufU8), v)
	case int8:
		return append(kind(ggufI8), byte(v))
	case uint16:
		return le.AppendUint16(kind(ggufU16), v)
	case int16:
		return le.AppendUint16(kind(ggufI16), uint16(v))
	case uint32:
		return le.AppendUint32(kind(ggufU32), v)
	case int32:
		return le.AppendUint32(kind(ggufI32), uint32(v))
	case uint64:
		return le.AppendUint64(kind(ggufU64), v)
	case int64:
		return le.AppendUint64(kind(ggufI64), uint64(v))
	case float32:
		return le.AppendUint32(kind(ggufF32), math.Float32bits(v))
	case float64:
		return le.AppendUint64(kind(ggufF64), math.Float64bits(v))
	case []string:
		b = array(ggufString, len(v))
		for _, s := range v {
			b = appendGGUFString(b, s)
		}
		return b
	case []int32:
		b = array(ggufI32, len(v))
		for _, n := range v {
			b = le.AppendUint32(b, uint32(n))
		}
		return b
	case []float32:
		b = array(ggufF32, len(v))
		for _, x := range v {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
		return b
	}
	panic(fmt.Sprintf("BUG: no GGUF type for %T", v))
}
