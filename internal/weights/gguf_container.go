package weights

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// Limits of a GGUF header. Real ones have some 60 keys, a vocabulary of up to 262144 pieces (10 MB with its merges), and a
// few thousand tensors. A vocabulary takes up to seven times its bytes of memory before its tokenizer stands.
const (
	maxGGUFKeys     = 1 << 16
	maxGGUFKey      = 1 << 10 // bytes of a key or of a tensor's name
	maxGGUFString   = 4 << 20 // the largest is a chat template
	maxGGUFElements = 4 << 20 // of all arrays together
	maxGGUFHeader   = 32 << 20
	maxGGUFDims     = 4
	maxGGUFAlign    = 1 << 20
	ggufReadAhead   = 256 << 10
)

// ggufFile is the header of a GGUF file: what it says about the model, and where its tensors lie.
type ggufFile struct {
	name    string // for errors
	blob    Blob
	kv      metadata
	tensors map[string]ggufTensor
}

// ggufTensor is one entry of the table of tensors.
type ggufTensor struct {
	layout ggmlLayout
	dims   []int // the first one is K: the values of a row, which lie together
	offset int64 // of its first byte in the file
	size   int64 // in bytes
}

// readGGUF reads and checks a header. The tensors' data are not touched.
//
//	"GGUF" | u32 version | u64 tensors | u64 keys | keys | tensors | padding | data
//	key      string | u32 type | value
//	tensor   string | u32 n | n u64 dims | u32 type | u64 offset from the start of the data
//	string   u64 length | bytes
//	array    u32 type | u64 length | elements
func readGGUF(name string, blob Blob) (*ggufFile, error) {
	f := &ggufFile{name: name, blob: blob, kv: metadata{}, tensors: map[string]ggufTensor{}}
	size := blob.Size()
	r := &ggufReader{left: min(size, maxGGUFHeader), capped: size > maxGGUFHeader}
	r.r = bufio.NewReaderSize(io.NewSectionReader(blob, 0, r.left), int(min(ggufReadAhead, max(r.left, 16))))
	if err := f.read(r, size); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", name, err)
	}
	return f, nil
}

func (f *ggufFile) read(r *ggufReader, size int64) error {
	numTensors, numKeys, err := r.start()
	if err != nil {
		return err
	}
	for i := range numKeys {
		if err := f.readKey(r); err != nil {
			return fmt.Errorf("key %d of %d: %w", i+1, numKeys, err)
		}
	}
	for i := range numTensors {
		if err := f.readTensor(r); err != nil {
			return fmt.Errorf("tensor %d of %d: %w", i+1, numTensors, err)
		}
	}
	align, err := f.kv.integer("general.alignment", 32)
	if err != nil {
		return err
	}
	if align < 1 || align > maxGGUFAlign || align&(align-1) != 0 {
		return fmt.Errorf("general.alignment is %d, want a power of two of at most %d", align, maxGGUFAlign)
	}
	return f.place((r.read+align-1)&^(align-1), align, size)
}

func (f *ggufFile) readKey(r *ggufReader) error {
	key, err := r.text(maxGGUFKey)
	if err != nil {
		return err
	}
	if f.kv.has(key) {
		return fmt.Errorf("%q stands there twice", key)
	}
	v, err := r.value()
	if err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	f.kv[key] = v
	return nil
}

func (f *ggufFile) readTensor(r *ggufReader) error {
	name, err := r.text(maxGGUFKey)
	if err != nil {
		return err
	}
	if _, ok := f.tensors[name]; ok {
		return fmt.Errorf("%q stands there twice", name)
	}
	t, err := r.tensor()
	if err != nil {
		return fmt.Errorf("%q %w", name, err)
	}
	f.tensors[name] = t
	return nil
}

// place checks that the tensors lie inside the file and not over one another, and makes their offsets count from its start.
func (f *ggufFile) place(base, align, size int64) error {
	names := slices.SortedFunc(maps.Keys(f.tensors), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.tensors[a].offset, f.tensors[b].offset), cmp.Compare(a, b))
	})
	end, before := int64(0), ""
	for _, name := range names {
		t := f.tensors[name]
		switch {
		case t.offset%align != 0:
			return fmt.Errorf("tensor %q begins at byte %d of the data, no multiple of the alignment %d", name, t.offset, align)
		case t.offset < end:
			return fmt.Errorf("tensor %q begins at byte %d of the data, inside %q, which ends at %d", name, t.offset, before, end)
		case base > size || t.offset > size-base || t.size > size-base-t.offset:
			return fmt.Errorf("tensor %q has %d bytes at %d of the data, but the file has only %d there: it is cut short", name, t.size, t.offset, max(0, size-base))
		}
		end, before = t.offset+t.size, name
		t.offset += base
		f.tensors[name] = t
	}
	return nil
}

// ggufReader reads a header piece by piece. What a length claims is compared with what is left before memory is made.
type ggufReader struct {
	r        *bufio.Reader
	read     int64 // bytes so far
	left     int64 // bytes that may still be read
	capped   bool  // left is bounded by maxGGUFHeader, not by the file
	elements int   // of arrays so far
	word     [8]byte
}

// need says whether n more items of at least so many bytes can be there.
func (r *ggufReader) need(n uint64, each int) error {
	if n <= uint64(r.left)/uint64(each) {
		return nil
	}
	if r.capped {
		return fmt.Errorf("the header has more than the %d bytes that are accepted", maxGGUFHeader)
	}
	return errors.New("the file ends inside the header: it is cut short or damaged")
}

func (r *ggufReader) fill(b []byte) error {
	if err := r.need(uint64(len(b)), 1); err != nil {
		return err
	}
	if _, err := io.ReadFull(r.r, b); err != nil {
		return fmt.Errorf("reading at byte %d: %w", r.read, err)
	}
	r.read += int64(len(b))
	r.left -= int64(len(b))
	return nil
}

// bytes reads n bytes into memory of their own.
func (r *ggufReader) bytes(n uint64) ([]byte, error) {
	if err := r.need(n, 1); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, r.fill(b)
}

func (r *ggufReader) u32() (uint32, error) {
	err := r.fill(r.word[:4])
	return binary.LittleEndian.Uint32(r.word[:4]), err
}

func (r *ggufReader) u64() (uint64, error) {
	err := r.fill(r.word[:])
	return binary.LittleEndian.Uint64(r.word[:]), err
}

func (r *ggufReader) text(limit uint64) (string, error) {
	n, err := r.u64()
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", fmt.Errorf("a string of %d bytes; at most %d are accepted here", n, limit)
	}
	b, err := r.bytes(n)
	return string(b), err
}

// start reads what stands before the keys.
func (r *ggufReader) start() (numTensors, numKeys uint64, err error) {
	magic, err := r.bytes(uint64(min(4, r.left)))
	if err != nil {
		return 0, 0, err
	}
	switch string(magic) {
	case "GGUF":
	case "FUGG":
		return 0, 0, errors.New("is a big-endian GGUF file; only little-endian ones can be read")
	case "lmgg", "tjgg", "fmgg", "algg":
		return 0, 0, errors.New("is a file of the formats before GGUF (GGML, GGJT); convert the original checkpoint again")
	default:
		if err := standIn(magic); len(magic) == 4 && err != nil {
			return 0, 0, err
		}
		return 0, 0, fmt.Errorf("begins with %q: no GGUF file", magic)
	}
	version, err := r.u32()
	if err != nil {
		return 0, 0, err
	}
	switch {
	case version == 2 || version == 3:
	case version != 0 && bits.ReverseBytes32(version) <= 3:
		return 0, 0, errors.New("is a big-endian GGUF file; only little-endian ones can be read")
	default:
		return 0, 0, fmt.Errorf("is GGUF version %d; versions 2 and 3 can be read", version)
	}
	if numTensors, err = r.u64(); err != nil {
		return 0, 0, err
	}
	if numKeys, err = r.u64(); err != nil {
		return 0, 0, err
	}
	if numTensors > maxTensors || numKeys > maxGGUFKeys {
		return 0, 0, fmt.Errorf("says that it has %d tensors and %d keys; at most %d and %d are accepted", numTensors, numKeys, maxTensors, maxGGUFKeys)
	}
	return numTensors, numKeys, nil
}

// value reads a type and what follows it.
func (r *ggufReader) value() (ggufValue, error) {
	kind, err := r.u32()
	if err != nil {
		return ggufValue{}, err
	}
	v := ggufValue{kind: ggufType(kind)}
	n := uint64(1)
	if v.kind == ggufArray {
		if kind, err = r.u32(); err != nil {
			return v, err
		}
		v.kind, v.array = ggufType(kind), true
		if n, err = r.u64(); err != nil {
			return v, err
		}
		if n > uint64(maxGGUFElements-r.elements) {
			return v, fmt.Errorf("an array of %d elements; at most %d are accepted in all arrays together", n, maxGGUFElements)
		}
		r.elements += int(n)
	}
	switch {
	case v.kind == ggufArray:
		return v, errors.New("an array of arrays, which is not supported")
	case v.kind == ggufString:
		v.texts, err = r.texts(n)
		return v, err
	case int(v.kind) >= len(ggufWidths):
		return v, fmt.Errorf("a value of unknown type %d", kind)
	}
	if err := r.need(n, ggufWidths[v.kind]); err != nil {
		return v, err
	}
	if v.raw, err = r.bytes(n * uint64(ggufWidths[v.kind])); err != nil {
		return v, err
	}
	if v.kind == ggufBool && bytes.ContainsFunc(v.raw, func(b rune) bool { return b > 1 }) {
		return v, errors.New("a bool that is neither 0 nor 1")
	}
	return v, nil
}

func (r *ggufReader) texts(n uint64) ([]string, error) {
	if err := r.need(n, 8); err != nil {
		return nil, err
	}
	out := make([]string, n)
	for i := range out {
		var err error
		if out[i], err = r.text(maxGGUFString); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return out, nil
}

// tensor reads a tensor's entry behind its name. The offset still counts from the start of the data.
func (r *ggufReader) tensor() (ggufTensor, error) {
	var t ggufTensor
	n, err := r.u32()
	if err != nil {
		return t, err
	}
	if n < 1 || n > maxGGUFDims {
		return t, fmt.Errorf("has %d dimensions, want 1 to %d", n, maxGGUFDims)
	}
	values := uint64(1)
	for range n {
		d, err := r.u64()
		if err != nil {
			return t, err
		}
		hi, lo := bits.Mul64(values, d)
		if d < 1 || d > math.MaxInt32 || hi != 0 || lo > math.MaxInt64/8 {
			return t, fmt.Errorf("has a dimension of %d after %v: more than there can be", d, t.dims)
		}
		values = lo
		t.dims = append(t.dims, int(d))
	}
	kind, err := r.u32()
	if err != nil {
		return t, err
	}
	if t.layout, err = ggmlType(kind).layout(); err != nil {
		return t, err
	}
	if t.dims[0]%t.layout.values != 0 {
		return t, fmt.Errorf("has rows of %d values, no multiple of the %d in a block of %s", t.dims[0], t.layout.values, t.layout.name)
	}
	t.size = int64(values) / int64(t.layout.values) * int64(t.layout.bytes)
	offset, err := r.u64()
	if err != nil {
		return t, err
	}
	if offset > math.MaxInt64-uint64(t.size) {
		return t, fmt.Errorf("begins at byte %d of the data", offset)
	}
	t.offset = int64(offset)
	return t, nil
}
