package weights

import (
	"encoding/binary"
	"fmt"
	"math"
)

// metadata are the keys and values of a GGUF file. A getter gives the default where the key is absent, and an error that
// names the key where its value has another type or does not fit.
type metadata map[string]ggufValue

// ggufType is the type of a value of metadata.
type ggufType uint32

const (
	ggufU8 ggufType = iota
	ggufI8
	ggufU16
	ggufI16
	ggufU32
	ggufI32
	ggufF32
	ggufBool
	ggufString
	ggufArray
	ggufU64
	ggufI64
	ggufF64
)

// ggufWidths are the bytes of a scalar; 0 for strings and arrays.
var ggufWidths = [...]int{
	ggufU8: 1, ggufI8: 1, ggufU16: 2, ggufI16: 2, ggufU32: 4, ggufI32: 4, ggufF32: 4, ggufBool: 1, ggufU64: 8, ggufI64: 8, ggufF64: 8,
}

var ggufTypeNames = [...]string{"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"}

func (t ggufType) String() string {
	if int(t) < len(ggufTypeNames) {
		return ggufTypeNames[t]
	}
	return fmt.Sprintf("type %d", uint32(t))
}

func (t ggufType) integer() bool {
	return t <= ggufI32 || t == ggufU64 || t == ggufI64
}

// ggufValue is a scalar, a string, or an array of these.
type ggufValue struct {
	kind  ggufType // of the value, or of the elements of an array
	array bool
	raw   []byte   // of scalars, as the file has them
	texts []string // of strings
}

// what names the type in errors.
func (v ggufValue) what() string {
	if v.array {
		return "an array of " + v.kind.String()
	}
	return "of type " + v.kind.String()
}

// integerAt is element i of an integer type; false when it does not fit an int64.
func (v ggufValue) integerAt(i int) (int64, bool) {
	w := ggufWidths[v.kind]
	b := v.raw[i*w:][:w]
	switch v.kind {
	case ggufU8:
		return int64(b[0]), true
	case ggufI8:
		return int64(int8(b[0])), true
	case ggufU16:
		return int64(binary.LittleEndian.Uint16(b)), true
	case ggufI16:
		return int64(int16(binary.LittleEndian.Uint16(b))), true
	case ggufU32:
		return int64(binary.LittleEndian.Uint32(b)), true
	case ggufI32:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	}
	u := binary.LittleEndian.Uint64(b)
	return int64(u), v.kind == ggufI64 || u <= math.MaxInt64
}

// numberAt is element i of any type of number.
func (v ggufValue) numberAt(i int) float64 {
	switch v.kind {
	case ggufF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.raw[4*i:])))
	case ggufF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw[8*i:]))
	case ggufU64:
		return float64(binary.LittleEndian.Uint64(v.raw[8*i:]))
	}
	n, _ := v.integerAt(i)
	return float64(n)
}

func (m metadata) has(key string) bool {
	_, ok := m[key]
	return ok
}

// text reads a string.
func (m metadata) text(key, absent string) (string, error) {
	v, ok := m[key]
	if !ok {
		return absent, nil
	}
	if v.array || v.kind != ggufString {
		return "", fmt.Errorf("%s is %s, want a string", key, v.what())
	}
	return v.texts[0], nil
}

// flag reads a bool.
func (m metadata) flag(key string, absent bool) (bool, error) {
	v, ok := m[key]
	if !ok {
		return absent, nil
	}
	if v.array || v.kind != ggufBool {
		return false, fmt.Errorf("%s is %s, want a bool", key, v.what())
	}
	return v.raw[0] != 0, nil
}

// integer reads a whole number of any width.
func (m metadata) integer(key string, absent int64) (int64, error) {
	v, ok := m[key]
	if !ok {
		return absent, nil
	}
	if v.array || !v.kind.integer() {
		return 0, fmt.Errorf("%s is %s, want a whole number", key, v.what())
	}
	n, ok := v.integerAt(0)
	if !ok {
		return 0, fmt.Errorf("%s is %d, which is too large", key, binary.LittleEndian.Uint64(v.raw))
	}
	return n, nil
}

// number reads a finite number of any type.
func (m metadata) number(key string, absent float64) (float64, error) {
	v, ok := m[key]
	if !ok {
		return absent, nil
	}
	if v.array || v.kind == ggufString || v.kind == ggufBool {
		return 0, fmt.Errorf("%s is %s, want a number", key, v.what())
	}
	x := v.numberAt(0)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%s is %v", key, x)
	}
	return x, nil
}

// texts reads an array of strings; nil when it is absent. The strings are bytes as the file has them, maybe no UTF-8.
func (m metadata) texts(key string) ([]string, error) {
	v, ok := m[key]
	if !ok {
		return nil, nil
	}
	if !v.array || v.kind != ggufString {
		return nil, fmt.Errorf("%s is %s, want an array of strings", key, v.what())
	}
	return v.texts, nil
}

// integers reads an array of whole numbers that fit an int32, such as token ids and types; nil when it is absent.
func (m metadata) integers(key string) ([]int32, error) {
	v, ok := m[key]
	if !ok {
		return nil, nil
	}
	if !v.array || !v.kind.integer() {
		return nil, fmt.Errorf("%s is %s, want an array of whole numbers", key, v.what())
	}
	out := make([]int32, len(v.raw)/ggufWidths[v.kind])
	for i := range out {
		n, ok := v.integerAt(i)
		if !ok || n < math.MinInt32 || n > math.MaxInt32 {
			return nil, fmt.Errorf("%s: element %d is too large", key, i)
		}
		out[i] = int32(n)
	}
	return out, nil
}

// numbers reads an array of finite numbers; nil when it is absent.
func (m metadata) numbers(key string) ([]float32, error) {
	v, ok := m[key]
	if !ok {
		return nil, nil
	}
	if !v.array || v.kind == ggufString || v.kind == ggufBool {
		return nil, fmt.Errorf("%s is %s, want an array of numbers", key, v.what())
	}
	out := make([]float32, len(v.raw)/ggufWidths[v.kind])
	for i := range out {
		x := v.numberAt(i)
		out[i] = float32(x)
		if math.IsNaN(x) || math.IsInf(float64(out[i]), 0) {
			return nil, fmt.Errorf("%s: element %d is %v", key, i, x)
		}
	}
	return out, nil
}
