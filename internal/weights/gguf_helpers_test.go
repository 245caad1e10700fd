package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
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

// with gives a copy whose keys of that name have another value, or which has the key in addition.
func (m ggufMaker) with(key string, value any) ggufMaker {
	m.kv = slices.Clone(m.kv)
	for i := range m.kv {
		if m.kv[i].key == key {
			m.kv[i].value = value
			return m
		}
	}
	m.kv = append(m.kv, ggufKV{key, value})
	return m
}

// without gives a copy that lacks a key.
func (m ggufMaker) without(key string) ggufMaker {
	m.kv = slices.DeleteFunc(slices.Clone(m.kv), func(kv ggufKV) bool { return kv.key == key })
	return m
}

// edit gives a copy in which do has changed the tensor of that name.
func (m ggufMaker) edit(name string, do func(e *ggufEntry)) ggufMaker {
	m.tensors = slices.Clone(m.tensors)
	for i := range m.tensors {
		if m.tensors[i].name == name {
			do(&m.tensors[i])
			return m
		}
	}
	panic("BUG: the file has no tensor " + name)
}

// add gives a copy with more tensors.
func (m ggufMaker) add(tensors ...ggufEntry) ggufMaker {
	m.tensors = slices.Concat(m.tensors, tensors)
	return m
}

// open opens the file.
func (m ggufMaker) open(t testing.TB) Source {
	t.Helper()
	src, err := OpenGGUF(t.Context(), "folder/some.gguf", memBlob(m.file()))
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// refused fails unless the file is refused with an error that names it and says all of the words.
func (m ggufMaker) refused(t testing.TB, words ...string) {
	t.Helper()
	_, err := OpenGGUF(t.Context(), "folder/some.gguf", memBlob(m.file()))
	wantWords(t, err, append(words, "folder/some.gguf")...)
}

// smallGGUF is the model of smallModel as a GGUF file. Its keys are in the name of arch.
func smallGGUF(t testing.TB, arch string) ggufMaker {
	t.Helper()
	m := ggufMaker{kv: []ggufKV{
		{"general.architecture", arch},
		{"general.name", "Small Model"},
		{arch + ".block_count", uint32(1)},
		{arch + ".context_length", uint32(128)},
		{arch + ".embedding_length", uint32(32)},
		{arch + ".feed_forward_length", uint32(64)},
		{arch + ".attention.head_count", uint32(2)},
		{arch + ".attention.head_count_kv", uint32(1)},
		{arch + ".attention.key_length", uint32(16)},
		{arch + ".attention.value_length", uint32(16)},
		{arch + ".attention.layer_norm_rms_epsilon", float32(1e-5)},
		{arch + ".rope.freq_base", float32(500000)},
		{"tokenizer.ggml.bos_token_id", uint32(1)},
		{"tokenizer.ggml.eos_token_id", uint32(2)},
	}}
	_, tensors := smallModel(t)
	for _, d := range tensors {
		name, _, ok := ggufName(d.name)
		if !ok {
			t.Fatalf("%s has no name in GGUF files", d.name)
		}
		e := ggufEntry{name: name, kind: ggmlBF16, data: d.data}
		for _, n := range slices.Backward(d.shape) {
			e.dims = append(e.dims, uint64(n))
		}
		m.tensors = append(m.tensors, e)
	}
	return m
}

// smallTensor is a tensor of small values that follow from its name.
func smallTensor(name string, kind ggmlType, dims ...uint64) ggufEntry {
	n := uint64(1)
	for _, d := range dims {
		n *= d
	}
	e := ggufEntry{name: name, dims: dims, kind: kind}
	for i := range n {
		h := uint16(synHash(synSeed(name), i))
		e.data = binary.LittleEndian.AppendUint16(e.data, h&0x807F|0x3E80)
	}
	if kind == ggmlF32 {
		var wide []byte
		for i := range int(n) {
			wide = append(wide, 0, 0, e.data[2*i], e.data[2*i+1])
		}
		e.data = wide
	}
	return e
}
