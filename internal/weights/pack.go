package weights

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/pagelight/pagelight/internal/quant"
)

// BundleFiles are the small files that WriteBundle takes along where the source has them.
var BundleFiles = []string{
	"tokenizer.model", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "added_tokens.json",
	"special_tokens_map.json", "generation_config.json", "MODEL_CARD.md", "README.md", "SOURCES.md", "LICENSE", "NOTICE",
}

// BundleOptions say how a bundle is written.
type BundleOptions struct {
	Name    string // the model's name in the bundle; "" keeps the source's
	Summary string // how the weights were made, in words
	Notice  string // licence and attribution, in words
	Replace bool   // whether a bundle that is there may be replaced
	// Temp is the folder to write in, which becomes the bundle at the end; whatever is there is removed. "" makes one beside the bundle.
	Temp string
	// ShardBytes is the size at which a shard is closed; 0 stands for 32 MiB, which is also the most.
	ShardBytes int64
}

// packPiece is how many bytes of data are read from the source at a time.
const packPiece = 4 << 20

// packer writes shards.
type packer struct {
	ctx  context.Context
	src  Source
	dir  string // being filled
	cap  int64
	m    *Manifest
	file *os.File // the shard being written, nil when there is none
	w    *bufio.Writer
	sum  hash.Hash
	size int64 // of the shard so far

	done, total int64
	progress    func(done, total int64)
	row, scales []byte
}

// WriteBundle packs a model into the directory dir in the formats that the source has; wrap the source in Quantized to
// change them. The same source and options give the same bytes.
//
// Everything is written into a folder beside dir, which takes its place at the end: whoever looks sees all of a bundle or
// none. Memory stays bounded by a few pieces of some megabytes. progress may be nil.
func WriteBundle(ctx context.Context, src Source, dir string, opts BundleOptions, progress func(done, total int64)) (err error) {
	if opts.ShardBytes < 0 || opts.ShardBytes > maxShardBytes {
		return fmt.Errorf("weights: shards of %d bytes; at most %d are accepted", opts.ShardBytes, maxShardBytes)
	}
	if opts.ShardBytes == 0 {
		opts.ShardBytes = maxShardBytes
	}
	if err := Check(src); err != nil {
		return err
	}
	if err := MayWriteBundle(dir, opts.Replace); err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	temp, err := tempDir(dir, opts.Temp)
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }() // once renamed, there is nothing of that name
	if err := os.Chmod(temp, 0o755); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	p := &packer{
		ctx: ctx, src: src, dir: temp, cap: opts.ShardBytes, total: src.Bytes(), progress: progress,
		m: &Manifest{
			Format: bundleFormat, Version: bundleVersion, Config: *src.Config(),
			Files: []ManifestFileAt{}, Tensors: []ManifestTensor{}, Shards: []ManifestShard{},
			Recipe: Recipe{Source: src.Config().Name, Summary: opts.Summary, Notice: opts.Notice, Formats: map[string]int{}, Bytes: src.Bytes()},
		},
	}
	defer p.discard()
	if opts.Name != "" {
		p.m.Config.Name = opts.Name
	}
	if err := p.pack(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	return replaceDir(temp, dir)
}

// tempDir makes the folder to write in.
func tempDir(dir, temp string) (string, error) {
	if temp == "" {
		return os.MkdirTemp(filepath.Dir(dir), ".packing-*")
	}
	return temp, errors.Join(os.RemoveAll(temp), os.MkdirAll(temp, 0o755))
}

// MayWriteBundle says whether WriteBundle would take the directory: it refuses to replace what is no bundle, or a bundle without leave.
func MayWriteBundle(dir string, replace bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if !replace {
		return fmt.Errorf("weights: %s exists already", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err != nil {
		return fmt.Errorf("weights: %s is no bundle and will not be replaced", dir)
	}
	return nil
}

// replaceDir puts temp in the place of dir.
func replaceDir(temp, dir string) error {
	old := temp + "-old"
	err := os.Rename(dir, old)
	had := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weights: %w", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		if had {
			err = errors.Join(err, os.Rename(old, dir))
		}
		return fmt.Errorf("weights: %w", err)
	}
	if had {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("weights: %w", err)
		}
	}
	return nil
}

func (p *packer) pack() error {
	for _, name := range BundleFiles {
		raw, err := p.src.File(p.ctx, name)
		if err != nil {
			return err
		}
		if raw != nil {
			if err := p.addFile(name, raw); err != nil {
				return err
			}
		}
	}
	for _, s := range Tensors(p.src.Config()) {
		add := p.addMatrix
		if s.Vector {
			add = p.addVector
		}
		if err := add(s); err != nil {
			return err
		}
		p.m.Recipe.Weights += int64(s.Rows) * int64(s.K)
	}
	if err := p.finishShard(); err != nil {
		return err
	}
	raw, err := p.m.encode()
	if err != nil {
		return err
	}
	if _, err := ParseManifest(raw); err != nil {
		return fmt.Errorf("BUG: wrote a manifest that is refused: %w", err)
	}
	return p.write(ManifestFile, raw)
}

func (p *packer) write(name string, raw []byte) error {
	if err := os.WriteFile(filepath.Join(p.dir, name), raw, 0o644); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	return nil
}

func (p *packer) addFile(name string, raw []byte) error {
	if len(raw) > maxShardBytes {
		return fmt.Errorf("weights: %s has %d bytes, a bundle takes files of at most %d", name, len(raw), maxShardBytes)
	}
	file, sum := contentName(sha256.Sum256(raw))
	p.m.Files = append(p.m.Files, ManifestFileAt{Name: name, ManifestShard: ManifestShard{File: file, Size: int64(len(raw)), SHA256: sum}})
	return p.write(file, raw)
}

func (p *packer) addVector(s Shape) error {
	v, err := p.src.Vector(p.ctx, s.Name)
	if err != nil {
		return err
	}
	if len(v) != s.K {
		return fmt.Errorf("weights: tensor %q has %d elements, the configuration asks for %d", s.Name, len(v), s.K)
	}
	p.row = grow(p.row, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(p.row[4*i:], math.Float32bits(x))
	}
	if p.size > 0 && alignUp(p.size)+int64(len(p.row)) > p.cap {
		if err := p.finishShard(); err != nil {
			return err
		}
	}
	span, err := p.add(p.row)
	if err != nil {
		return err
	}
	p.m.Tensors = append(p.m.Tensors, ManifestTensor{
		Name: s.Name, Rows: 1, K: s.K, Format: quant.Format{Kind: quant.F32}.String(), Runs: []Run{{Rows: 1, Data: span}},
	})
	return nil
}

func (p *packer) addMatrix(s Shape) error {
	info, err := p.src.Info(s.Name)
	if err != nil {
		return err
	}
	f := info.Format
	t := ManifestTensor{Name: s.Name, Rows: s.Rows, K: s.K, Format: f.String()}
	if t.Order, err = p.addOrder(s); err != nil {
		return err
	}
	rowBytes := int64(f.RowBytes(s.K))
	both := rowBytes + int64(f.ScaleBytes(s.K))
	for lo := 0; lo < s.Rows; {
		// A run takes what is left of the shard, unless that is so little that it would only make a sliver.
		fits := (p.cap - p.size - 2*shardAlign) / both
		if fits < int64(s.Rows-lo) && fits*both < p.cap/16 && p.size > 0 {
			if err := p.finishShard(); err != nil {
				return err
			}
			fits = (p.cap - 2*shardAlign) / both
		}
		hi := int(min(int64(s.Rows), int64(lo)+max(1, fits)))
		run, err := p.addRun(s.Name, info, lo, hi)
		if err != nil {
			return err
		}
		t.Runs = append(t.Runs, run)
		lo = hi
	}
	p.m.Recipe.Formats[t.Format]++
	p.m.Tensors = append(p.m.Tensors, t)
	return nil
}

// addOrder writes the order of a matrix's columns where it is not their own. It lies before the rows, since a model asks for it
// first.
func (p *packer) addOrder(s Shape) (*Span, error) {
	order, err := p.src.Order(p.ctx, s.Name)
	if err != nil || order == nil {
		return nil, err
	}
	if len(order) != s.K {
		return nil, fmt.Errorf("weights: tensor %q: order of %d columns for %d", s.Name, len(order), s.K)
	}
	if err := checkOrder(order); err != nil {
		return nil, fmt.Errorf("weights: tensor %q: order: %w", s.Name, err)
	}
	p.row = grow(p.row, 4*len(order))
	for i, from := range order {
		binary.LittleEndian.PutUint32(p.row[4*i:], uint32(from))
	}
	if p.size > 0 && alignUp(p.size)+int64(len(p.row)) > p.cap {
		if err := p.finishShard(); err != nil {
			return nil, err
		}
	}
	span, err := p.add(p.row)
	return &span, err
}

// addRun writes rows lo to hi-1: all of their data, then all of their scales.
func (p *packer) addRun(name string, info Info, lo, hi int) (Run, error) {
	run := Run{Rows: hi - lo}
	p.scales = p.scales[:0]
	step := max(1, packPiece/info.Format.RowBytes(info.K))
	for at := lo; at < hi; at += step {
		rows, err := p.src.Rows(p.ctx, name, at, min(at+step, hi))
		if err != nil {
			return run, err
		}
		data, err := rows.Data.Load(p.row)
		if err != nil {
			return run, err
		}
		if rows.Data.Blob != nil {
			p.row = data // keep what was made for it
		}
		span, err := p.addPart(data, at > lo)
		if err != nil {
			return run, err
		}
		if at == lo {
			run.Data = span
		} else {
			run.Data.Size += span.Size
		}
		scales, err := rows.Scales.Load(nil)
		if err != nil {
			return run, err
		}
		p.scales = append(p.scales, scales...)
	}
	if len(p.scales) > 0 {
		span, err := p.add(p.scales)
		if err != nil {
			return run, err
		}
		run.Scales = &span
	}
	return run, nil
}

// add writes a segment at the next aligned place of the shard.
func (p *packer) add(raw []byte) (Span, error) { return p.addPart(raw, false) }

// addPart writes a segment, or more of the segment that was written last.
func (p *packer) addPart(raw []byte, more bool) (Span, error) {
	if err := p.ctx.Err(); err != nil {
		return Span{}, fmt.Errorf("weights: %w", err)
	}
	if p.file == nil {
		f, err := os.CreateTemp(p.dir, "shard-*")
		if err != nil {
			return Span{}, fmt.Errorf("weights: %w", err)
		}
		p.file, p.sum, p.size = f, sha256.New(), 0
		p.w = bufio.NewWriterSize(io.MultiWriter(f, p.sum), 1<<16)
	}
	if !more {
		pad := alignUp(p.size) - p.size
		if _, err := p.w.Write(make([]byte, pad)); err != nil {
			return Span{}, fmt.Errorf("weights: %w", err)
		}
		p.size += pad
	}
	span := Span{Shard: len(p.m.Shards), Offset: p.size, Size: int64(len(raw))}
	if _, err := p.w.Write(raw); err != nil {
		return Span{}, fmt.Errorf("weights: %w", err)
	}
	p.size += span.Size
	p.done += span.Size
	p.progress(p.done, p.total)
	return span, nil
}

func alignUp(n int64) int64 { return (n + shardAlign - 1) / shardAlign * shardAlign }

// finishShard closes the shard and gives it the name of its content.
func (p *packer) finishShard() error {
	if p.file == nil {
		return nil
	}
	name := p.file.Name()
	err := errors.Join(p.w.Flush(), p.file.Chmod(0o644), p.file.Close())
	p.file = nil
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	file, sum := contentName([sha256.Size]byte(p.sum.Sum(nil)))
	if err := os.Rename(name, filepath.Join(p.dir, file)); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	p.m.Shards = append(p.m.Shards, ManifestShard{File: file, Size: p.size, SHA256: sum})
	p.size = 0
	return nil
}

// discard closes a shard that an error left unfinished.
func (p *packer) discard() {
	if p.file != nil {
		drop(p.file)
	}
}
