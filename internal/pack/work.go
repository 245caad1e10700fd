package pack

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// work is a folder of finished tensors beside the bundle that is being made. A tensor is two files: its bytes, data then scales, and a
// description, which is written last and says what the bytes must hash to.
type work struct {
	dir string
	key string // of everything that decides the bytes of tensors
}

// finished describes a tensor in the folder.
type finished struct {
	Key    string `json:"key"`
	Name   string `json:"name"`
	Rows   int    `json:"rows"`
	K      int    `json:"k"`
	Format string `json:"format"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`

	format quant.Format
	path   string
}

// openWork makes the folder, or finds it as an earlier run left it.
func openWork(dir, key string) (*work, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return &work{dir: dir, key: key}, nil
}

func (w *work) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(w.dir, hex.EncodeToString(sum[:16]))
}

// find gives a finished tensor, or nil when there is none, when it was made otherwise, or when its bytes are not what they were.
func (w *work) find(name string, rows, k int, f quant.Format) (*finished, error) {
	path := w.path(name)
	raw, err := os.ReadFile(path + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	var t finished
	if json.Unmarshal(raw, &t) != nil || t.Key != w.key || t.Name != name || t.Rows != rows || t.K != k || t.Format != f.String() {
		return nil, nil
	}
	file, err := os.Open(path + ".bin")
	if err != nil {
		return nil, nil // it is made again
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, file)
	if err != nil || n != t.Size || n != bits(f, rows, k)/8 || hex.EncodeToString(sum.Sum(nil)) != t.SHA256 {
		return nil, nil
	}
	t.format, t.path = f, path+".bin"
	return &t, nil
}

// tensorWriter writes one tensor: rows after rows of data, and at the end the scales.
type tensorWriter struct {
	w      *work
	t      finished
	file   *os.File
	sum    hash.Hash
	scales []byte
}

func (w *work) create(name string, rows, k int, f quant.Format) (*tensorWriter, error) {
	file, err := os.CreateTemp(w.dir, "part-*")
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return &tensorWriter{w: w, file: file, sum: sha256.New(), t: finished{Key: w.key, Name: name, Rows: rows, K: k, Format: f.String(), format: f}}, nil
}

func (t *tensorWriter) add(data, scales []uint32) error {
	raw := make([]byte, 4*len(data))
	for i, v := range data {
		binary.LittleEndian.PutUint32(raw[4*i:], v)
	}
	for _, v := range scales {
		t.scales = binary.LittleEndian.AppendUint32(t.scales, v)
	}
	return t.write(raw)
}

func (t *tensorWriter) write(raw []byte) error {
	t.sum.Write(raw)
	t.t.Size += int64(len(raw))
	if _, err := t.file.Write(raw); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

// close makes the tensor a finished one.
func (t *tensorWriter) close() (*finished, error) {
	err := t.write(t.scales)
	path := t.w.path(t.t.Name)
	t.t.SHA256, t.t.path = hex.EncodeToString(t.sum.Sum(nil)), path+".bin"
	raw, jsonErr := json.Marshal(t.t)
	err = errors.Join(err, jsonErr, t.file.Sync(), t.file.Close())
	if err == nil {
		// A description of other bytes goes first: whenever this ends, what is described is there.
		err = errors.Join(remove(path+".json"), os.Rename(t.file.Name(), path+".bin"))
	}
	if err == nil {
		err = writeFile(path+".json", raw)
	}
	if err != nil {
		return nil, fmt.Errorf("pack: tensor %q: %w", t.t.Name, err)
	}
	t.file = nil
	return &t.t, nil
}

// discard removes what close has not finished.
func (t *tensorWriter) discard() {
	if t.file != nil {
		_, _ = t.file.Close(), os.Remove(t.file.Name())
	}
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeFile writes a file that is there whole or not at all.
func writeFile(path string, raw []byte) error {
	if err := os.WriteFile(path+".part", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// packed is a source some of whose tensors are finished ones.
type packed struct {
	weights.Source
	tensors map[string]*finished
	open    *os.File // of the tensor that was read last
	name    string
}

// Info describes a tensor as it will be read.
func (p *packed) Info(name string) (weights.Info, error) {
	if t := p.tensors[name]; t != nil {
		return weights.Info{Rows: t.Rows, K: t.K, Format: t.format}, nil
	}
	return p.Source.Info(name)
}

// Rows reads rows of a finished tensor, or of the source.
func (p *packed) Rows(ctx context.Context, name string, lo, hi int) (weights.Rows, error) {
	t := p.tensors[name]
	if t == nil {
		return p.Source.Rows(ctx, name, lo, hi)
	}
	row, scale := int64(t.format.RowBytes(t.K)), int64(t.format.ScaleBytes(t.K))
	var out weights.Rows
	var err error
	if out.Data.Bytes, err = p.read(t, int64(lo)*row, int64(hi-lo)*row); err != nil {
		return out, err
	}
	if scale > 0 {
		out.Scales.Bytes, err = p.read(t, int64(t.Rows)*row+int64(lo)*scale, int64(hi-lo)*scale)
	}
	return out, err
}

func (p *packed) read(t *finished, at, n int64) ([]byte, error) {
	if p.open == nil || p.name != t.Name {
		p.release()
		f, err := os.Open(t.path)
		if err != nil {
			return nil, fmt.Errorf("pack: tensor %q: %w", t.Name, err)
		}
		p.open, p.name = f, t.Name
	}
	raw := make([]byte, n)
	if _, err := p.open.ReadAt(raw, at); err != nil {
		return nil, fmt.Errorf("pack: tensor %q: %w", t.Name, err)
	}
	return raw, nil
}

// Vector reads a finished vector, or one of the source.
func (p *packed) Vector(ctx context.Context, name string) ([]float32, error) {
	t := p.tensors[name]
	if t == nil {
		return p.Source.Vector(ctx, name)
	}
	raw, err := p.read(t, 0, 4*int64(t.K))
	if err != nil {
		return nil, err
	}
	out := make([]float32, t.K)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out, nil
}

// Order says that finished tensors have their columns in order.
func (p *packed) Order(ctx context.Context, name string) ([]int32, error) {
	if p.tensors[name] != nil {
		return nil, nil
	}
	return p.Source.Order(ctx, name)
}

// Bytes is the size of all weights.
func (p *packed) Bytes() int64 {
	var n int64
	for _, s := range weights.Tensors(p.Config()) {
		if s.Vector {
			n += 4 * int64(s.K)
		} else if info, err := p.Info(s.Name); err == nil {
			n += bits(info.Format, s.Rows, s.K) / 8
		}
	}
	return n
}

// release closes the file that was read last. The source stays open.
func (p *packed) release() {
	if p.open != nil {
		_ = p.open.Close()
		p.open = nil
	}
}
