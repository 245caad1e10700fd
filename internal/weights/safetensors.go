package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"os"
	"slices"
	"strings"
)

// Limits of a safetensors header: the biggest real ones are near 1 MB.
const (
	maxHeaderBytes = 16 << 20
	maxTensors     = 1 << 17
	maxDims        = 16
)

// dtypeBits are the element types that safetensors knows, with their size in bits. Only F32, F16 and BF16 can be read as
// weights; the others are recognised so that a file that also holds them opens.
var dtypeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8,
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
	"U64": 64, "I64": 64, "F64": 64, "C64": 64,
}

// StoredTensor is one entry of a safetensors header.
type StoredTensor struct {
	DType  string
	Shape  []int
	Offset int64 // of its first byte in the file
	Size   int64 // in bytes
}

// Safetensors reads one safetensors file. Opening it reads and checks the header; tensors are read when asked for.
type Safetensors struct {
	name    string
	r       io.ReaderAt
	tensors map[string]StoredTensor
}

// OpenSafetensors opens the file at path. Close it when done.
func OpenSafetensors(path string) (*Safetensors, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		drop(f)
		return nil, fmt.Errorf("weights: %w", err)
	}
	s, err := NewSafetensors(path, f, st.Size())
	if err != nil {
		drop(f)
		return nil, err
	}
	return s, nil
}

// NewSafetensors reads the header of a file of size bytes. The name is for error messages.
//
//	u64 n | n bytes of JSON: name -> {dtype, shape, data_offsets: [begin, end)} | data
//
// The byte ranges must tile the data: no gap, no overlap, nothing behind the last.
func NewSafetensors(name string, r io.ReaderAt, size int64) (*Safetensors, error) {
	s := &Safetensors{name: name, r: r}
	var err error
	if s.tensors, err = readHeader(r, size); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", name, err)
	}
	return s, nil
}

// Close closes the file when it can be closed.
func (s *Safetensors) Close() error {
	if c, ok := s.r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Names lists the tensors in alphabetical order.
func (s *Safetensors) Names() []string {
	return slices.Sorted(maps.Keys(s.tensors))
}

// Tensor describes a tensor; the error wraps ErrNoTensor.
func (s *Safetensors) Tensor(name string) (StoredTensor, error) {
	t, ok := s.tensors[name]
	if !ok {
		return t, fmt.Errorf("weights: %s: tensor %q: %w", s.name, name, ErrNoTensor)
	}
	return t, nil
}

// Float32s reads a whole F32, F16 or BF16 tensor as f32, whatever its shape.
func (s *Safetensors) Float32s(name string) ([]float32, error) {
	t, err := s.Tensor(name)
	if err != nil {
		return nil, err
	}
	f, err := floatFormat(t.DType)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: tensor %q: %w", s.name, name, err)
	}
	raw := make([]byte, t.Size)
	if err := readAt(s.r, raw, t.Offset); err != nil {
		return nil, fmt.Errorf("weights: %s: tensor %q: %w", s.name, name, err)
	}
	out := make([]float32, t.Size/int64(f.RowBytes(1)))
	decodeFloats(f.Kind, raw, out)
	return out, nil
}

// standIn says what lies in the place of a model's file, by its first bytes (4 or more), where a download left something else;
// nil when it is nothing known.
func standIn(head []byte) error {
	head = bytes.ToLower(head)
	switch {
	case bytes.HasPrefix([]byte("version https://git-lfs"), head):
		return errors.New("is the pointer of Git LFS and not the file that it stands for; fetch that with: git lfs pull")
	case bytes.HasPrefix(head, []byte("<!do")), bytes.HasPrefix(head, []byte("<htm")):
		return errors.New("is a web page and not the file that it is named as; download that again, from the link that gives the file itself")
	}
	return nil
}

func readHeader(r io.ReaderAt, size int64) (map[string]StoredTensor, error) {
	if size < 8 {
		return nil, fmt.Errorf("is %d bytes long, too short for a safetensors file", size)
	}
	var head [8]byte
	if err := readAt(r, head[:], 0); err != nil {
		return nil, fmt.Errorf("header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > uint64(min(maxHeaderBytes, size-8)) {
		if err := standIn(head[:]); err != nil {
			return nil, err
		}
	}
	if n > maxHeaderBytes {
		return nil, fmt.Errorf("says that its header has %d bytes; at most %d are accepted", n, maxHeaderBytes)
	}
	if n > uint64(size-8) {
		return nil, fmt.Errorf("says that its header has %d bytes, but only %d follow: the file is cut short or no safetensors file", n, size-8)
	}
	raw := make([]byte, n)
	if err := readAt(r, raw, 8); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	tensors, err := parseHeader(raw)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := place(tensors, 8+int64(n), size); err != nil {
		return nil, err
	}
	return tensors, nil
}

// parseHeader reads the JSON; offsets in the result still count from the start of the data.
func parseHeader(raw []byte) (map[string]StoredTensor, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("is not a JSON object")
	}
	tensors := map[string]StoredTensor{}
	metadata := false
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, jsonError(err)
		}
		name, ok := tok.(string)
		if !ok {
			return nil, fmt.Errorf("a %T where a tensor's name is expected", tok)
		}
		if name == "__metadata__" {
			var m map[string]string
			if metadata {
				return nil, errors.New("__metadata__ stands there twice")
			}
			if err := dec.Decode(&m); err != nil {
				return nil, fmt.Errorf("__metadata__: %w", jsonError(err))
			}
			metadata = true
			continue
		}
		if _, ok := tensors[name]; ok {
			return nil, fmt.Errorf("tensor %q stands there twice", name)
		}
		if len(tensors) == maxTensors {
			return nil, fmt.Errorf("more than %d tensors", maxTensors)
		}
		var e struct {
			DType   string  `json:"dtype"`
			Shape   []int64 `json:"shape"`
			Offsets []int64 `json:"data_offsets"`
		}
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, jsonError(err))
		}
		t, err := checkEntry(e.DType, e.Shape, e.Offsets)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors[name] = t
	}
	if _, err := dec.Token(); err != nil {
		return nil, jsonError(err)
	}
	if rest := bytes.TrimRight(raw[dec.InputOffset():], " "); len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes behind the JSON object", len(rest))
	}
	return tensors, nil
}

func checkEntry(dtype string, shape, offsets []int64) (StoredTensor, error) {
	width, ok := dtypeBits[dtype]
	if !ok {
		return StoredTensor{}, fmt.Errorf("unknown dtype %q", dtype)
	}
	if len(shape) > maxDims {
		return StoredTensor{}, fmt.Errorf("%d dimensions", len(shape))
	}
	if len(offsets) != 2 {
		return StoredTensor{}, fmt.Errorf("data_offsets has %d numbers, want 2", len(offsets))
	}
	begin, end := offsets[0], offsets[1]
	if begin < 0 || end < begin {
		return StoredTensor{}, fmt.Errorf("data_offsets [%d, %d] are out of order", begin, end)
	}
	t := StoredTensor{DType: dtype, Shape: make([]int, len(shape)), Offset: begin, Size: end - begin}
	n := width
	for i, d := range shape {
		if d < 0 || d > math.MaxInt32 {
			return StoredTensor{}, fmt.Errorf("shape %v: a dimension of %d", shape, d)
		}
		t.Shape[i] = int(d)
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 {
			return StoredTensor{}, fmt.Errorf("shape %v is too large", shape)
		}
		n = lo
	}
	if n%8 != 0 || n/8 != uint64(t.Size) {
		return StoredTensor{}, fmt.Errorf("shape %v of %s takes %d bytes, data_offsets give it %d", shape, dtype, n/8, t.Size)
	}
	return t, nil
}

// place checks that the byte ranges tile the data and makes their offsets count from the start of the file.
func place(tensors map[string]StoredTensor, base, size int64) error {
	names := slices.SortedFunc(maps.Keys(tensors), func(a, b string) int {
		x, y := tensors[a], tensors[b]
		return cmp.Or(cmp.Compare(x.Offset, y.Offset), cmp.Compare(x.Size, y.Size), strings.Compare(a, b))
	})
	next := int64(0)
	for _, name := range names {
		t := tensors[name]
		switch {
		case t.Offset < next:
			return fmt.Errorf("tensor %q begins at byte %d of the data, inside the tensor before it, which ends at %d", name, t.Offset, next)
		case t.Offset > next:
			return fmt.Errorf("tensor %q begins at byte %d of the data, but the tensor before it ends at %d", name, t.Offset, next)
		case t.Size > size-base-t.Offset:
			return fmt.Errorf("tensor %q ends at byte %d of the data, but the file has only %d: it is cut short", name, t.Offset+t.Size, size-base)
		}
		next = t.Offset + t.Size
		t.Offset += base
		tensors[name] = t
	}
	if next != size-base {
		return fmt.Errorf("%d bytes behind the last tensor", size-base-next)
	}
	return nil
}

// article puts "a" or "an" before encoding/json's name of a kind of value.
func article(kind string) string {
	if strings.HasPrefix(kind, "a") || strings.HasPrefix(kind, "o") {
		return "an " + kind
	}
	return "a " + kind
}

// jsonError says what is wrong with JSON in words that need no Go.
func jsonError(err error) error {
	var typ *json.UnmarshalTypeError
	var syn *json.SyntaxError
	switch {
	case errors.As(err, &typ) && typ.Field != "":
		field := typ.Field
		for _, embedded := range []string{"Sampling.", "hfMoE."} { // the Go name of a struct stands before the fields in it
			field = strings.TrimPrefix(field, embedded)
		}
		return fmt.Errorf("%s: %s does not fit here", field, article(typ.Value))
	case errors.As(err, &typ):
		return fmt.Errorf("%s does not fit here (byte %d)", article(typ.Value), typ.Offset)
	case errors.As(err, &syn):
		return fmt.Errorf("broken JSON at byte %d: %w", syn.Offset, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("broken JSON: it ends too early")
	}
	return fmt.Errorf("broken JSON: %w", err)
}
