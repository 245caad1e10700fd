package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pagelight/pagelight/internal/quant"
)

// Limits of the files of a Hugging Face directory.
const (
	maxConfigBytes = 1 << 20
	maxIndexBytes  = 16 << 20
	maxSmallFile   = 64 << 20 // tokenizer.json of a large vocabulary has some 20 MB
	maxShardFiles  = 1024
	readStep       = 8 << 20 // bytes between two looks at the context
)

// dirSource is a Hugging Face directory.
type dirSource struct {
	cfg     *Config
	fsys    fs.FS
	at      string // what to put before file names in errors: the directory
	files   []*Safetensors
	tensors map[string]dirTensor
	listed  string // the file that lists the tensors, for errors about missing ones
	buf     []byte

	// Of checkpoints that another tool quantized:
	scheme   scheme
	packed   map[string]*packedPart // its matrices, none of which are in tensors
	scales   []byte
	unpacker unpacker
}

// dirTensor is a tensor, or a run of rows of one, in a file.
type dirTensor struct {
	file    *Safetensors
	dtype   string
	shape   []int
	rows, k int // 0 when the shape is neither that of a vector nor of a matrix
	offset  int64
}

// OpenDir opens a directory in the layout of Hugging Face: config.json, generation_config.json, model.safetensors or its
// shards and index, and the tokenizer's files. It reads and checks everything but the weights themselves.
func OpenDir(dir string) (Source, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("weights: %s is a file; want the folder that holds config.json and model.safetensors", dir)
	}
	return openDir(os.DirFS(dir), dir, dirName(dir))
}

// OpenFS is OpenDir over any file system whose files can be read at an offset. The name becomes Config.Name.
func OpenFS(fsys fs.FS, name string) (Source, error) {
	return openDir(fsys, name, name)
}

// dirName is what to call a model in a directory: the directory's name, or org/name inside the cache of Hugging Face.
func dirName(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		abs = filepath.Clean(dir)
	}
	if up := filepath.Dir(abs); filepath.Base(up) == "snapshots" {
		if repo, ok := strings.CutPrefix(filepath.Base(filepath.Dir(up)), "models--"); ok {
			return strings.ReplaceAll(repo, "--", "/")
		}
	}
	return filepath.Base(abs)
}

func openDir(fsys fs.FS, at, name string) (_ Source, err error) {
	d := &dirSource{fsys: fsys, at: at, tensors: map[string]dirTensor{}}
	defer func() {
		if err != nil {
			drop(d)
		}
	}()
	config, err := d.readSmall("config.json", maxConfigBytes)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, fmt.Errorf("weights: %s: config.json is missing: no Hugging Face model folder", at)
	}
	generation, err := d.readSmall("generation_config.json", maxConfigBytes)
	if err != nil {
		return nil, err
	}
	if d.cfg, err = parseConfig(config, generation); err != nil {
		return nil, fmt.Errorf("weights: %s/%w", at, err)
	}
	d.cfg.Name = name
	if d.scheme, err = d.quantization(config); err != nil {
		return nil, err
	}
	if err := d.openWeights(); err != nil {
		return nil, err
	}
	if d.scheme != nil {
		d.assemble()
	}
	d.translate()
	if err := Check(d); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *dirSource) openWeights() error {
	const single, index = "model.safetensors", "model.safetensors.index.json"
	switch _, err := fs.Stat(d.fsys, single); {
	case err == nil:
		d.listed = single
		f, err := d.openFile(single)
		if err != nil {
			return err
		}
		for name := range f.tensors {
			d.add(f, name)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("weights: %s/%s: %w", d.at, single, cause(err))
	}
	raw, err := d.readSmall(index, maxIndexBytes)
	if err != nil {
		return err
	}
	if raw == nil {
		return fmt.Errorf("weights: %s: neither %s nor %s is there%s", d.at, single, index, d.otherWeights())
	}
	d.listed = index
	var ix struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := decodeJSON(raw, &ix); err != nil {
		return fmt.Errorf("weights: %s/%s: %w", d.at, index, err)
	}
	if len(ix.WeightMap) == 0 {
		return fmt.Errorf("weights: %s/%s: weight_map is missing or empty", d.at, index)
	}
	names := slices.Compact(slices.Sorted(maps.Values(ix.WeightMap)))
	if len(names) > maxShardFiles {
		return fmt.Errorf("weights: %s/%s: %d files, at most %d are accepted", d.at, index, len(names), maxShardFiles)
	}
	files := map[string]*Safetensors{}
	for _, name := range names {
		if !fs.ValidPath(name) || strings.ContainsAny(name, "\\:") || !strings.HasSuffix(name, ".safetensors") {
			return fmt.Errorf("weights: %s/%s: %q is not the path of a safetensors file inside the folder", d.at, index, name)
		}
		f, err := d.openFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("weights: %s/%s: names %s, which is missing", d.at, index, name)
		}
		if err != nil {
			return err
		}
		files[name] = f
	}
	for _, name := range slices.Sorted(maps.Keys(ix.WeightMap)) {
		f := files[ix.WeightMap[name]]
		if _, ok := f.tensors[name]; !ok {
			return fmt.Errorf("weights: %s: tensor %q: %w, but %s says that it is there", f.name, name, ErrNoTensor, index)
		}
		d.add(f, name)
	}
	return nil
}

// otherWeights names weights of a kind that is not supported, for the error that says that there are none.
func (d *dirSource) otherWeights() string {
	entries, err := fs.ReadDir(d.fsys, ".")
	if err != nil {
		return ""
	}
	for _, e := range entries {
		switch path.Ext(e.Name()) {
		case ".gguf":
			return fmt.Sprintf("; give the path of %s itself", e.Name())
		case ".bin", ".pt", ".pth", ".pdparams", ".onnx":
			return fmt.Sprintf("; %s is of a kind that is not supported", e.Name())
		}
	}
	return ""
}

// openFile opens a safetensors file and keeps it for Close.
func (d *dirSource) openFile(name string) (*Safetensors, error) {
	where := d.at + "/" + name
	f, size, err := openRegular(d.fsys, name)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", where, err)
	}
	r, ok := f.(io.ReaderAt)
	if !ok {
		drop(f)
		return nil, fmt.Errorf("weights: %s: this file system cannot read at an offset", where)
	}
	s, err := NewSafetensors(where, r, size)
	if err != nil {
		drop(f)
		return nil, err
	}
	d.files = append(d.files, s)
	return s, nil
}

// openRegular opens a file and tells its size. It looks before it opens, for opening a pipe would wait for a writer.
func openRegular(fsys fs.FS, name string) (fs.File, int64, error) {
	st, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, 0, cause(err)
	}
	if !st.Mode().IsRegular() {
		return nil, 0, errors.New("is not a regular file")
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, 0, cause(err)
	}
	return f, st.Size(), nil
}

// cause takes the path out of an error whose text will name the file anyway.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func (d *dirSource) add(f *Safetensors, name string) {
	st := f.tensors[name]
	t := dirTensor{file: f, dtype: st.DType, shape: st.Shape, offset: st.Offset}
	switch len(st.Shape) {
	case 1:
		t.rows, t.k = 1, st.Shape[0]
	case 2:
		t.rows, t.k = st.Shape[0], st.Shape[1]
	}
	d.tensors[name] = t
}

func (d *dirSource) Config() *Config { return d.cfg }

func (d *dirSource) Has(name string) bool {
	return d.packed[name] != nil || d.hasTensor(name)
}

func (d *dirSource) hasTensor(name string) bool {
	_, ok := d.tensors[name]
	return ok
}

func (d *dirSource) where(name string) string {
	if p := d.packed[name]; p != nil {
		return p.m.file
	}
	if t, ok := d.tensors[name]; ok {
		return t.file.name
	}
	return d.at + "/" + d.listed
}

// tensor finds a tensor and its format.
func (d *dirSource) tensor(name string) (dirTensor, quant.Format, error) {
	t, ok := d.tensors[name]
	if !ok {
		return t, quant.Format{}, fmt.Errorf("weights: %s: tensor %q: %w%s", d.where(name), name, ErrNoTensor, d.unexplained(name))
	}
	f, err := floatFormat(t.dtype)
	if err == nil && t.k == 0 {
		err = fmt.Errorf("has shape %v, which is neither a vector's nor a matrix's", t.shape)
	}
	if err != nil {
		return t, f, fmt.Errorf("weights: %s: tensor %q %w", t.file.name, name, err)
	}
	return t, f, nil
}

// unexplained says why a tensor may be missing: it was quantized, and nothing says how.
func (d *dirSource) unexplained(name string) string {
	module := strings.TrimSuffix(name, ".weight")
	for _, suffix := range []string{".qweight", ".weight_packed"} {
		if d.hasTensor(module + suffix) {
			return fmt.Sprintf(", but %s is there, and config.json has no quantization_config that fits it", module+suffix)
		}
	}
	return ""
}

func (d *dirSource) Info(name string) (Info, error) {
	if p := d.packed[name]; p != nil {
		return p.info()
	}
	t, f, err := d.tensor(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Rows: t.rows, K: t.k, Format: f}, nil
}

func (d *dirSource) Rows(ctx context.Context, name string, lo, hi int) (Rows, error) {
	if p := d.packed[name]; p != nil {
		return d.packedRows(ctx, name, p, lo, hi)
	}
	t, f, err := d.tensor(name)
	if err != nil {
		return Rows{}, err
	}
	if err := checkRange(name, lo, hi, t.rows); err != nil {
		return Rows{}, err
	}
	rowBytes := f.RowBytes(t.k)
	size := (hi - lo) * rowBytes
	d.buf = grow(d.buf, size)
	for at := 0; at < size; at += readStep {
		if err := ctx.Err(); err != nil {
			return Rows{}, fmt.Errorf("weights: %s: tensor %q: %w", t.file.name, name, err)
		}
		part := d.buf[at:min(at+readStep, size)]
		if err := readAt(t.file.r, part, t.offset+int64(lo)*int64(rowBytes)+int64(at)); err != nil {
			return Rows{}, fmt.Errorf("weights: %s: tensor %q: %w", t.file.name, name, err)
		}
		if i := firstNonFinite(f.Kind, part); i >= 0 {
			i += at / f.RowBytes(1)
			return Rows{}, fmt.Errorf("weights: %s: tensor %q: row %d, column %d is NaN or infinite", t.file.name, name, lo+i/t.k, i%t.k)
		}
	}
	return Rows{Data: Segment{Bytes: d.buf}}, nil
}

func (d *dirSource) Vector(ctx context.Context, name string) ([]float32, error) {
	if p := d.packed[name]; p != nil {
		return nil, fmt.Errorf("weights: %s: tensor %q is a quantized matrix, want a vector", p.m.file, name)
	}
	t, f, err := d.tensor(name)
	if err != nil {
		return nil, err
	}
	if t.rows != 1 {
		return nil, fmt.Errorf("weights: %s: tensor %q has shape %v, want a vector", t.file.name, name, t.shape)
	}
	r, err := d.Rows(ctx, name, 0, 1)
	if err != nil {
		return nil, err
	}
	out := make([]float32, t.k)
	decodeFloats(f.Kind, r.Data.Bytes, out)
	return out, nil
}

func (d *dirSource) File(_ context.Context, name string) ([]byte, error) {
	if !fs.ValidPath(name) || strings.ContainsAny(name, "/\\:") {
		return nil, fmt.Errorf("weights: %s: %q is not a file's name", d.at, name)
	}
	return d.readSmall(name, maxSmallFile)
}

func (d *dirSource) Bytes() int64 { return deviceBytes(d) }

func (d *dirSource) Close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.Close())
	}
	d.files = nil
	return errors.Join(errs...)
}

// readSmall reads a file of at most limit bytes; nil when there is none.
func (d *dirSource) readSmall(name string, limit int64) ([]byte, error) {
	f, _, err := openRegular(d.fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("weights: %s/%s: %w", d.at, name, err)
	}
	defer drop(f)
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("weights: %s/%s: %w", d.at, name, cause(err))
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("weights: %s/%s: is larger than %d bytes", d.at, name, limit)
	}
	return raw, nil
}

// deviceBytes adds up what a model's tensors take on the device: matrices as they are stored, vectors as f32.
func deviceBytes(src Source) int64 {
	var n int64
	for _, t := range Tensors(src.Config()) {
		if t.Vector {
			n += 4 * int64(t.K)
			continue
		}
		if info, err := src.Info(t.Name); err == nil {
			n += int64(info.Rows) * int64(info.Format.RowBytes(info.K)+info.Format.ScaleBytes(info.K))
			if src.Config().Reordered {
				n += 4 * int64(info.K) // the order of its columns, at most: to know it, files would have to be read
			}
		}
	}
	return n
}

func checkRange(name string, lo, hi, rows int) error {
	if lo < 0 || hi < lo || hi > rows {
		return fmt.Errorf("weights: tensor %q: rows %d to %d of %d", name, lo, hi, rows)
	}
	return nil
}

// grow is buf with length n, made new when it is too small; its content is not kept.
func grow(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n)
	}
	return buf[:n]
}
