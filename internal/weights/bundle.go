package weights

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/pagelight/pagelight/internal/quant"
)

// ShardError says that a file of a bundle is not what the manifest states: cut short, or changed. Only that file has to
// be fetched again.
type ShardError struct {
	File  string // its name in the bundle
	What  string // "size" or "sha256"
	Want  string // what the manifest states
	Found string
}

// Error names the file, what was expected and what was found.
func (e *ShardError) Error() string {
	return fmt.Sprintf("weights: %s: %s is %s, the manifest states %s", e.File, e.What, e.Found, e.Want)
}

// maxOpenShards bounds the shards that are open at a time. Loading in the manifest's order needs two.
const maxOpenShards = 3

// checkedAhead is how many shards after the one asked for are opened and checked meanwhile, where the store says that it can open
// several at a time: hashing is slower than a disk, and takes one processor a shard.
const checkedAhead = 3

// checking is a shard that is being opened and checked.
type checking struct {
	done chan struct{} // closed when what follows is set
	blob Blob          // nil with an error
	err  error
}

// bundle is a Source that reads a Store.
type bundle struct {
	store   Store
	m       *Manifest
	tensors map[string]*ManifestTensor
	open    []openShard       // the least recently used first
	spare   []openShard       // no longer wanted; a segment given out may still point into them until the next call
	ahead   map[int]*checking // shards that nobody has asked for yet
	asked   []bool            // by shard
	left    []int64           // bytes of each shard that have not been read; at 0 it is released
	buf     [2][]byte         // data and scales that had to be put together from several runs
}

type openShard struct {
	index int
	blob  Blob
}

// OpenBundle opens a packed model. It reads and checks the manifest; shards are opened when their rows are read, checked
// against their sha256, and released when all of their rows have been read.
func OpenBundle(ctx context.Context, store Store) (Source, error) {
	raw, err := store.Manifest(ctx)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", ManifestFile, err)
	}
	m, err := ParseManifest(raw)
	if err != nil {
		return nil, err
	}
	b := &bundle{store: store, m: m, tensors: map[string]*ManifestTensor{}, left: make([]int64, len(m.Shards)), ahead: map[int]*checking{}, asked: make([]bool, len(m.Shards))}
	for i := range m.Tensors {
		b.tensors[m.Tensors[i].Name] = &m.Tensors[i]
	}
	if err := Check(b); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bundle) Config() *Config { return &b.m.Config }

func (b *bundle) Has(name string) bool {
	_, ok := b.tensors[name]
	return ok
}

func (b *bundle) where(string) string { return ManifestFile }

func (b *bundle) tensor(name string) (*ManifestTensor, error) {
	t, ok := b.tensors[name]
	if !ok {
		return nil, fmt.Errorf("weights: %s: tensor %q: %w", ManifestFile, name, ErrNoTensor)
	}
	return t, nil
}

func (b *bundle) Info(name string) (Info, error) {
	t, err := b.tensor(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Rows: t.Rows, K: t.K, Format: t.format}, nil
}

// run is the index of the run that a row is in.
func (t *ManifestTensor) run(row int) int {
	return sort.SearchInts(t.first, row+1) - 1
}

func (b *bundle) runEnd(name string, lo int) int {
	t := b.tensors[name]
	i := t.run(lo)
	return t.first[i] + t.Runs[i].Rows
}

// Rows gives segments of the shards' blobs; only rows that span several runs are put together in memory.
func (b *bundle) Rows(ctx context.Context, name string, lo, hi int) (Rows, error) {
	b.release()
	t, err := b.tensor(name)
	if err != nil {
		return Rows{}, err
	}
	if err := checkRange(name, lo, hi, t.Rows); err != nil {
		return Rows{}, err
	}
	if lo == hi {
		return Rows{}, nil
	}
	first, last := t.run(lo), t.run(hi-1)
	rowBytes, scaleBytes := int64(t.format.RowBytes(t.K)), int64(t.format.ScaleBytes(t.K))
	var out Rows
	if first == last {
		r, at := &t.Runs[first], int64(lo-t.first[first])
		if out.Data, err = b.segment(ctx, name, r.Data, at*rowBytes, int64(hi-lo)*rowBytes); err == nil && r.Scales != nil {
			out.Scales, err = b.segment(ctx, name, *r.Scales, at*scaleBytes, int64(hi-lo)*scaleBytes)
		}
		return out, err
	}
	b.buf[0], b.buf[1] = grow(b.buf[0], 0), grow(b.buf[1], 0)
	for i := first; i <= last; i++ {
		b.release() // what the run before gave is copied
		r := &t.Runs[i]
		from, to := int64(max(lo-t.first[i], 0)), int64(min(hi-t.first[i], r.Rows))
		if err := b.join(ctx, name, 0, r.Data, from*rowBytes, (to-from)*rowBytes); err != nil {
			return Rows{}, err
		}
		if r.Scales != nil {
			if err := b.join(ctx, name, 1, *r.Scales, from*scaleBytes, (to-from)*scaleBytes); err != nil {
				return Rows{}, err
			}
		}
	}
	out.Data.Bytes = b.buf[0]
	if scaleBytes > 0 {
		out.Scales.Bytes = b.buf[1]
	}
	return out, nil
}

// join appends a part of a span to one of the buffers.
func (b *bundle) join(ctx context.Context, name string, which int, s Span, off, size int64) error {
	seg, err := b.segment(ctx, name, s, off, size)
	if err != nil {
		return err
	}
	buf := b.buf[which]
	at := len(buf)
	buf = slices.Grow(buf, int(size))[:at+int(size)]
	b.buf[which] = buf
	if err := readAt(seg.Blob, buf[at:], seg.Offset); err != nil {
		return fmt.Errorf("weights: %s: tensor %q: %w", b.m.Shards[s.Shard].File, name, err)
	}
	return nil
}

// segment opens the shard of a span and gives a part of the span.
func (b *bundle) segment(ctx context.Context, name string, s Span, off, size int64) (Segment, error) {
	blob, err := b.shard(ctx, s.Shard)
	if err != nil {
		return Segment{}, fmt.Errorf("%w (tensor %q)", err, name)
	}
	if b.left[s.Shard] -= size; b.left[s.Shard] <= 0 {
		b.retire(s.Shard)
	}
	return Segment{Blob: blob, Offset: s.Offset + off, Size: size}, nil
}

// shard is the open blob of a shard.
func (b *bundle) shard(ctx context.Context, index int) (Blob, error) {
	for i, s := range b.open {
		if s.index == index {
			b.open = append(slices.Delete(b.open, i, i+1), s)
			return s.blob, nil
		}
	}
	for _, s := range b.spare { // its last rows were given out a moment ago
		if s.index == index {
			return s.blob, nil
		}
	}
	blob, err := b.awaited(ctx, index)
	if err != nil {
		return nil, err
	}
	if len(b.open) == maxOpenShards {
		b.retire(b.open[0].index)
	}
	b.open = append(b.open, openShard{index, blob})
	b.left[index] = 0
	for _, t := range b.m.Tensors {
		for _, r := range t.Runs {
			if r.Data.Shard == index {
				b.left[index] += r.Data.Size
			}
			if r.Scales != nil && r.Scales.Shard == index {
				b.left[index] += r.Scales.Size
			}
		}
		if t.Order != nil && t.Order.Shard == index {
			b.left[index] += t.Order.Size
		}
	}
	return blob, nil
}

// awaited opens and checks a shard, and begins to do so with those that come next.
func (b *bundle) awaited(ctx context.Context, index int) (Blob, error) {
	again := b.asked[index]
	b.asked[index] = true
	if s, ok := b.store.(interface{ Concurrent() bool }); !ok || !s.Concurrent() || again {
		return b.fetch(ctx, b.m.Shards[index])
	}
	for next := index; next < min(index+1+checkedAhead, len(b.m.Shards)); next++ {
		if b.ahead[next] == nil && (next == index || !b.asked[next]) {
			b.ahead[next] = b.check(ctx, next)
		}
	}
	c := b.ahead[index]
	delete(b.ahead, index)
	<-c.done // soon, should ctx end
	if c.err != nil && ctx.Err() == nil && (errors.Is(c.err, context.Canceled) || errors.Is(c.err, context.DeadlineExceeded)) {
		return b.fetch(ctx, b.m.Shards[index]) // the call that began it was given up, this one was not
	}
	return c.blob, c.err
}

func (b *bundle) check(ctx context.Context, index int) *checking {
	c := &checking{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.blob, c.err = b.fetch(ctx, b.m.Shards[index])
	}()
	return c
}

// retire takes a shard out of use; the next call closes it.
func (b *bundle) retire(index int) {
	for i, s := range b.open {
		if s.index == index {
			b.open = slices.Delete(b.open, i, i+1)
			b.spare = append(b.spare, s)
			return
		}
	}
}

// release closes the shards that were taken out of use by the calls before.
func (b *bundle) release() {
	for _, s := range b.spare {
		drop(s.blob)
	}
	b.spare = b.spare[:0]
}

func closeBlob(blob Blob) error {
	if c, ok := blob.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// fetch opens a file of the bundle and checks it.
func (b *bundle) fetch(ctx context.Context, s ManifestShard) (Blob, error) {
	blob, err := b.store.Shard(ctx, s.File, s.Size)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", s.File, err)
	}
	if err := verify(ctx, blob, s); err != nil {
		drop(blob)
		return nil, err
	}
	return blob, nil
}

// verify compares a blob's size, and its hash unless the store has done that, with the manifest.
func verify(ctx context.Context, blob Blob, s ManifestShard) error {
	if blob.Size() != s.Size {
		return &ShardError{File: s.File, What: "size", Want: fmt.Sprint(s.Size), Found: fmt.Sprint(blob.Size())}
	}
	if v, ok := blob.(interface{ Verified() bool }); ok && v.Verified() {
		return nil
	}
	sum := sha256.New()
	buf := make([]byte, min(s.Size, 1<<20))
	for at := int64(0); at < s.Size; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("weights: %s: %w", s.File, err)
		}
		part := buf[:min(int64(len(buf)), s.Size-at)]
		if err := readAt(blob, part, at); err != nil {
			return fmt.Errorf("weights: %s: %w", s.File, err)
		}
		sum.Write(part)
		at += int64(len(part))
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != s.SHA256 {
		return &ShardError{File: s.File, What: "sha256", Want: s.SHA256, Found: found}
	}
	return nil
}

func (b *bundle) Vector(ctx context.Context, name string) ([]float32, error) {
	t, err := b.tensor(name)
	if err != nil {
		return nil, err
	}
	if t.Rows != 1 || t.format.Kind > quant.BF16 {
		return nil, fmt.Errorf("weights: %s: tensor %q is a %s matrix [%d %d], want a vector", ManifestFile, name, t.Format, t.Rows, t.K)
	}
	r, err := b.Rows(ctx, name, 0, 1)
	if err != nil {
		return nil, err
	}
	raw, err := r.Data.Load(nil)
	if err != nil {
		return nil, fmt.Errorf("weights: tensor %q: %w", name, err)
	}
	if i := firstNonFinite(t.format.Kind, raw); i >= 0 {
		return nil, fmt.Errorf("weights: %s: tensor %q: element %d is NaN or infinite", b.m.Shards[t.Runs[0].Data.Shard].File, name, i)
	}
	out := make([]float32, t.K)
	decodeFloats(t.format.Kind, raw, out)
	return out, nil
}

// Order reads the order of a tensor's columns and checks that it is one.
func (b *bundle) Order(ctx context.Context, name string) ([]int32, error) {
	b.release()
	t, err := b.tensor(name)
	if err != nil || t.Order == nil {
		return nil, err
	}
	seg, err := b.segment(ctx, name, *t.Order, 0, t.Order.Size)
	if err != nil {
		return nil, err
	}
	where := b.m.Shards[t.Order.Shard].File
	raw, err := seg.Load(nil)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: tensor %q: %w", where, name, err)
	}
	order := make([]int32, t.K)
	for i := range order {
		order[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	if err := checkOrder(order); err != nil {
		return nil, fmt.Errorf("weights: %s: tensor %q: order: %w", where, name, err)
	}
	return order, nil
}

func (b *bundle) File(ctx context.Context, name string) ([]byte, error) {
	for _, f := range b.m.Files {
		if f.Name != name {
			continue
		}
		blob, err := b.fetch(ctx, f.ManifestShard)
		if err != nil {
			return nil, fmt.Errorf("%w (%s)", err, name)
		}
		defer drop(blob)
		raw := make([]byte, f.Size)
		if err := readAt(blob, raw, 0); err != nil {
			return nil, fmt.Errorf("weights: %s (%s): %w", f.File, name, err)
		}
		return raw, nil
	}
	return nil, nil
}

func (b *bundle) Bytes() int64 { return deviceBytes(b) }

func (b *bundle) Close() error {
	var errs []error
	for _, s := range slices.Concat(b.spare, b.open) {
		errs = append(errs, closeBlob(s.blob))
	}
	for _, c := range b.ahead {
		if <-c.done; c.blob != nil {
			errs = append(errs, closeBlob(c.blob))
		}
	}
	b.spare, b.open, b.ahead = nil, nil, nil
	return errors.Join(errs...)
}
