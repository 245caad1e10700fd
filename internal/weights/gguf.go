package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
)

// ggufStage is how many bytes of blocks are read at a time to be converted.
const ggufStage = 4 << 20

// maxGGUFParts is how many files one model may be split into.
const maxGGUFParts = 1024

// ggufSource is a model in GGUF files.
type ggufSource struct {
	naturalOrder

	cfg     *Config
	name    string // of the first file, for errors
	parts   []*ggufFile
	tensors map[string]*ggufFile // which part a tensor is in, by its name in the files
	files   map[string][]byte    // of the tokenizer

	stage, data, scales []byte
}

// OpenGGUF opens a model in a GGUF file, or in all the parts that one was split into, in any order. It reads and checks the
// header, by ranges, and nothing else; weights are read when asked for, by ranges again, and turned into the formats of the
// device without loss: what is stored in four bits stays in four bits. name is the file's name or path: it stands in errors, and
// its last part without the ending .gguf becomes Config.Name. Without that ending, Config.Name is what the file says, if it does.
//
// The source owns the blobs and closes those that can be closed; when opening fails it closes them too.
func OpenGGUF(ctx context.Context, name string, parts ...Blob) (_ Source, err error) {
	s := &ggufSource{name: name, tensors: map[string]*ggufFile{}}
	defer func() {
		if err != nil {
			for _, b := range parts {
				drop(b)
			}
		}
	}()
	for i, b := range parts {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("weights: %s: %w", name, err)
		}
		where := name
		if len(parts) > 1 {
			where = fmt.Sprintf("%s (file %d of %d)", name, i+1, len(parts))
		}
		f, err := readGGUF(where, b)
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, f)
	}
	if err := s.join(); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", name, err)
	}
	if err := s.configure(ctx); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", name, err)
	}
	if err := Check(s); err != nil {
		return nil, err
	}
	if err := s.complete(); err != nil {
		return nil, fmt.Errorf("weights: %s: %w", name, err)
	}
	for _, f := range s.parts {
		f.kv = nil // the vocabulary is large
	}
	return s, nil
}

// join puts the parts into their order and enters all of their tensors.
func (s *ggufSource) join() error {
	if len(s.parts) == 0 {
		return errors.New("no file")
	}
	byNumber := make([]*ggufFile, len(s.parts))
	for _, f := range s.parts {
		count, err := f.kv.integer("split.count", 1)
		if err != nil {
			return err
		}
		number, err := f.kv.integer("split.no", 0)
		if err != nil {
			return err
		}
		switch {
		case count > maxGGUFParts:
			return fmt.Errorf("split.count is %d; at most %d parts are accepted", count, maxGGUFParts)
		case max(count, 1) != int64(len(s.parts)):
			return fmt.Errorf("is part %d of %d: open all parts together, from the folder in which they lie under their names (NAME-00001-of-%05d.gguf and so on), or merge them", number+1, count, count)
		case number < 0 || number >= int64(len(s.parts)) || byNumber[number] != nil:
			return fmt.Errorf("%s says that it is part %d of %d, as another one does or none can", f.name, number+1, count)
		}
		byNumber[number] = f
	}
	s.parts = byNumber
	for _, f := range s.parts {
		for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
			if other := s.tensors[name]; other != nil {
				return fmt.Errorf("tensor %q stands in %s and in %s", name, other.name, f.name)
			}
			s.tensors[name] = f
		}
	}
	want, err := s.parts[0].kv.integer("split.tensors.count", int64(len(s.tensors)))
	if err == nil && want != int64(len(s.tensors)) {
		err = fmt.Errorf("split.tensors.count is %d, but the parts have %d tensors together", want, len(s.tensors))
	}
	return err
}

// stored finds a tensor by its name in the files.
func (s *ggufSource) stored(name string) (ggufTensor, bool) {
	f, ok := s.tensors[name]
	if !ok {
		return ggufTensor{}, false
	}
	return f.tensors[name], true
}

// configure makes the configuration and the tokenizer's files.
func (s *ggufSource) configure(ctx context.Context) (err error) {
	kv := s.parts[0].kv
	if s.cfg, err = ggufConfig(kv, s.stored); err != nil {
		return err
	}
	if stem := ggufStem(s.name); stem != "" && (isGGUF(s.name) || s.cfg.Name == "") {
		s.cfg.Name = stem
	}
	if s.files, err = ggufVocabulary(kv); err != nil {
		return err
	}
	if t, ok := s.stored(ggufRopeFactors); ok {
		if s.cfg.RopeFactors, err = s.vector(ctx, s.tensors[ggufRopeFactors], ggufRopeFactors, t); err != nil {
			return err
		}
	}
	return s.cfg.validate()
}

// checkVector says whether a tensor can be read as a vector.
func (t ggufTensor) checkVector(name string) error {
	if len(t.dims) == 1 && t.layout.format.Group == 0 {
		return nil
	}
	return fmt.Errorf("tensor %q has shape %v in %s, want a vector in F32, F16 or BF16", name, t.shape(), t.layout.name)
}

// complete refuses vectors that are none, and tensors that the model would not use: they are part of what it computes, and
// leaving them out would change it in silence.
func (s *ggufSource) complete() error {
	used := map[string]bool{ggufRopeFactors: true}
	for _, t := range Tensors(s.cfg) {
		name, _, _ := ggufName(t.Name)
		used[name] = true
		if stored, _ := s.stored(name); t.Vector {
			if err := stored.checkVector(name); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.tensors)) {
		if !used[name] {
			return fmt.Errorf("tensor %q is no part of the architecture %s as it is supported", name, s.cfg.Architecture)
		}
	}
	return nil
}

func (s *ggufSource) Config() *Config { return s.cfg }

func (s *ggufSource) Has(name string) bool {
	_, _, err := s.find(name)
	return err == nil
}

func (s *ggufSource) where(name string) string {
	if f, _, err := s.find(name); err == nil {
		return f.name
	}
	return s.name
}

// find finds a tensor by its Hugging Face name. One of a stack comes as a matrix of its own.
func (s *ggufSource) find(name string) (*ggufFile, ggufTensor, error) {
	stored, expert, ok := ggufName(name)
	f := s.tensors[stored]
	if !ok || f == nil {
		if ok {
			name += " (" + stored + ")"
		}
		return nil, ggufTensor{}, fmt.Errorf("weights: %s: tensor %s: %w", s.name, strconv.Quote(name), ErrNoTensor)
	}
	t := f.tensors[stored]
	if expert >= 0 {
		if len(t.dims) != 3 || expert >= t.dims[2] {
			return nil, t, fmt.Errorf("weights: %s: tensor %q has shape %v, want a stack of more than %d matrices", f.name, stored, t.shape(), expert)
		}
		t.size /= int64(t.dims[2])
		t.offset += int64(expert) * t.size
		t.dims = t.dims[:2]
	}
	return f, t, nil
}

// shape is the dimensions as checkpoints have them, rows first.
func (t ggufTensor) shape() []int {
	d := slices.Clone(t.dims)
	slices.Reverse(d)
	return d
}

// info describes a tensor of one or two dimensions.
func (t ggufTensor) info() (Info, error) {
	info := Info{Rows: 1, K: t.dims[0], Format: t.layout.format}
	if len(t.dims) > 1 {
		info.Rows = t.dims[1]
	}
	if len(t.dims) > 2 {
		return info, fmt.Errorf("has shape %v, which is neither a vector's nor a matrix's", t.shape())
	}
	return info, nil
}

// tensor is find and info.
func (s *ggufSource) tensor(name string) (*ggufFile, ggufTensor, Info, error) {
	f, t, err := s.find(name)
	if err != nil {
		return nil, t, Info{}, err
	}
	info, err := t.info()
	if err != nil {
		return nil, t, info, fmt.Errorf("weights: %s: tensor %q %w", f.name, name, err)
	}
	return f, t, info, nil
}

func (s *ggufSource) Info(name string) (Info, error) {
	_, _, info, err := s.tensor(name)
	return info, err
}

func (s *ggufSource) Rows(ctx context.Context, name string, lo, hi int) (Rows, error) {
	f, t, info, err := s.tensor(name)
	if err != nil {
		return Rows{}, err
	}
	if err := checkRange(name, lo, hi, info.Rows); err != nil {
		return Rows{}, err
	}
	rows, err := s.rows(ctx, f, t, info, lo, hi)
	if err != nil {
		return Rows{}, fmt.Errorf("weights: %s: tensor %q: %w", f.name, name, err)
	}
	return rows, nil
}

// rows reads rows in steps of some megabytes and converts each step on all processors.
func (s *ggufSource) rows(ctx context.Context, f *ggufFile, t ggufTensor, info Info, lo, hi int) (Rows, error) {
	stored := info.K / t.layout.values * t.layout.bytes // bytes of a row in the file
	rowBytes, scaleBytes := info.Format.RowBytes(info.K), info.Format.ScaleBytes(info.K)
	s.data, s.scales = grow(s.data, (hi-lo)*rowBytes), grow(s.scales, (hi-lo)*scaleBytes)
	step := max(1, ggufStage/stored)
	for at := lo; at < hi; at += step {
		if err := ctx.Err(); err != nil {
			return Rows{}, err
		}
		n := min(step, hi-at)
		data, scales := s.data[(at-lo)*rowBytes:][:n*rowBytes], s.scales[(at-lo)*scaleBytes:][:n*scaleBytes]
		if info.Format.Group == 0 {
			if err := s.floats(f, t, info, at, data); err != nil {
				return Rows{}, err
			}
			continue
		}
		s.stage = grow(s.stage, n*stored)
		if err := readAt(f.blob, s.stage, t.offset+int64(at)*int64(stored)); err != nil {
			return Rows{}, err
		}
		var bad firstError
		err := eachRow(ctx, n, func(row int) {
			err := unpackBlocks(t.layout, s.stage[row*stored:][:stored], data[row*rowBytes:][:rowBytes], scales[row*scaleBytes:][:scaleBytes])
			if err != nil {
				bad.set(row, err)
			}
		})
		if err == nil {
			err = bad.wrap(at)
		}
		if err != nil {
			return Rows{}, err
		}
	}
	out := Rows{Data: Segment{Bytes: s.data}}
	if info.Format.Group != 0 {
		out.Scales.Bytes = s.scales
	}
	return out, nil
}

// floats reads rows that lie in the file as they do on the device.
func (s *ggufSource) floats(f *ggufFile, t ggufTensor, info Info, row int, data []byte) error {
	if err := readAt(f.blob, data, t.offset+int64(row)*int64(info.Format.RowBytes(info.K))); err != nil {
		return err
	}
	if i := firstNonFinite(info.Format.Kind, data); i >= 0 {
		return fmt.Errorf("row %d, column %d is NaN or infinite", row+i/info.K, i%info.K)
	}
	return nil
}

func (s *ggufSource) Vector(ctx context.Context, name string) ([]float32, error) {
	f, t, err := s.find(name)
	if err != nil {
		return nil, err
	}
	v, err := s.vector(ctx, f, name, t)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", f.name, err)
	}
	return v, nil
}

// vector reads a tensor of one dimension.
func (s *ggufSource) vector(ctx context.Context, f *ggufFile, name string, t ggufTensor) ([]float32, error) {
	if err := t.checkVector(name); err != nil {
		return nil, err
	}
	info := Info{Rows: 1, K: t.dims[0], Format: t.layout.format}
	r, err := s.rows(ctx, f, t, info, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	out := make([]float32, info.K)
	decodeFloats(info.Format.Kind, r.Data.Bytes, out)
	return out, nil
}

// File gives the tokenizer's files, which are made of the metadata.
func (s *ggufSource) File(_ context.Context, name string) ([]byte, error) {
	return s.files[name], nil
}

// License is what the metadata says of the model's licence, mostly a short name such as apache-2.0; "" when they say nothing.
func (s *ggufSource) License() string {
	if len(s.parts) == 0 {
		return ""
	}
	text, err := s.parts[0].kv.text("general.license", "")
	if err != nil {
		return ""
	}
	return text
}

func (s *ggufSource) Bytes() int64 { return deviceBytes(s) }

func (s *ggufSource) Close() error {
	var errs []error
	for _, f := range s.parts {
		if c, ok := f.blob.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	s.parts = nil
	return errors.Join(errs...)
}
