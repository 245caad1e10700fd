package model

import (
	"context"
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// pieceBytes is how much of a matrix is read and uploaded at a time.
const pieceBytes = 8 << 20

// loader puts a source's tensors on a device.
type loader struct {
	dev     gpu.Device
	src     weights.Source
	cfg     *weights.Config
	scratch []byte
	loaded  int64 // bytes on the device so far
	formats map[quant.Format]int64
	buffers []gpu.Buffer
	report  func(done int64, name string)
	pending []func(ctx context.Context) error // what fills buffers that have been made, in the order of the source
}

// later has fill called by Weights.Upload. Of models with an order of columns everything is filled at once: what a source says of
// orders lies among the weights, which are to be read once and in order.
func (l *loader) later(ctx context.Context, fill func(ctx context.Context) error) error {
	if l.cfg.Reordered {
		return fill(ctx)
	}
	l.pending = append(l.pending, fill)
	return nil
}

// run is a stretch of rows of one tensor inside a part.
type run struct {
	name   string
	lo, hi int // rows of the tensor
}

// part is a kernels.Part that is still to be filled.
type part struct {
	kernels.Part
	runs []run
}

// matrix loads the named matrices, which share K, stacked one below the other. The stack is cut into parts where the
// format changes and where a part would exceed what one binding of the device can show.
func (l *loader) matrix(ctx context.Context, names ...string) (kernels.Weight, error) {
	return l.stack(ctx, 1, names...)
}

// stack is matrix with parts that are cut at multiples of every rows only.
func (l *loader) stack(ctx context.Context, every int, names ...string) (kernels.Weight, error) {
	var w kernels.Weight
	var parts []*part
	limit := min(l.dev.Limits().MaxStorageBinding, l.dev.Limits().MaxBufferSize)
	for _, name := range names {
		info, err := l.src.Info(name)
		if err != nil {
			return w, err
		}
		if w.K != 0 && info.K != w.K {
			return w, fmt.Errorf("model: %s has %d columns, %s has %d", name, info.K, names[0], w.K)
		}
		w.K = info.K
		bytes := int64(every) * int64(max(info.Format.RowBytes(info.K), info.Format.ScaleBytes(info.K)))
		if bytes > limit {
			return w, fmt.Errorf("model: %d rows of %s have %d bytes, a binding of this device shows %d", every, name, bytes, limit)
		}
		perPart := int(limit/bytes) * every
		for lo := 0; lo < info.Rows; {
			p := last(parts)
			if p == nil || p.Format != info.Format || p.Rows == perPart {
				p = &part{Part: kernels.Part{Row0: w.Rows, Format: info.Format}}
				parts = append(parts, p)
			}
			n := min(info.Rows-lo, perPart-p.Rows)
			p.runs = append(p.runs, run{name, lo, lo + n})
			p.Rows += n
			w.Rows += n
			lo += n
		}
	}
	for _, p := range parts {
		if err := l.allocate(p, w.K); err != nil {
			return w, err
		}
		w.Parts = append(w.Parts, p.Part)
		if err := l.later(ctx, func(ctx context.Context) error { return l.fill(ctx, p, w.K) }); err != nil {
			return w, err
		}
	}
	return w, nil
}

func last(parts []*part) *part {
	if len(parts) == 0 {
		return nil
	}
	return parts[len(parts)-1]
}

// allocate makes a part's buffers.
func (l *loader) allocate(p *part, k int) (err error) {
	rowBytes, scaleBytes := p.Format.RowBytes(k), p.Format.ScaleBytes(k)
	padded := (int64(p.Rows)*int64(rowBytes) + 15) &^ 15 // kernels read 16 bytes at a time
	if p.Data, err = l.buffer(p.runs[0].name, padded); err != nil {
		return err
	}
	if scaleBytes > 0 {
		if p.Scales, err = l.buffer(p.runs[0].name+" scales", int64(p.Rows)*int64(scaleBytes)); err != nil {
			return err
		}
	}
	l.formats[p.Format] += int64(p.Rows) * int64(rowBytes+scaleBytes)
	return nil
}

// fill uploads a part's rows.
func (l *loader) fill(ctx context.Context, p *part, k int) error {
	rowBytes, scaleBytes := p.Format.RowBytes(k), p.Format.ScaleBytes(k)
	row := 0 // of the part
	for _, r := range p.runs {
		info, err := l.src.Info(r.name)
		if err != nil {
			return err
		}
		for lo, hi := range weights.Pieces(l.src, r.name, info, pieceBytes) {
			lo, hi = max(lo, r.lo), min(hi, r.hi)
			if lo >= hi {
				continue
			}
			rows, err := l.src.Rows(ctx, r.name, lo, hi)
			if err != nil {
				return err
			}
			if err := l.upload(p.Data, row*rowBytes, rows.Data, (hi-lo)*rowBytes, r.name); err != nil {
				return err
			}
			if scaleBytes > 0 {
				if err := l.upload(p.Scales, row*scaleBytes, rows.Scales, (hi-lo)*scaleBytes, r.name); err != nil {
					return err
				}
			}
			row += hi - lo
			l.loaded += int64((hi - lo) * (rowBytes + scaleBytes))
			l.report(l.loaded, r.name)
		}
	}
	return nil
}

// upload copies the want bytes of a segment into dst, past the Go heap where the device knows the segment's blob.
func (l *loader) upload(dst gpu.Buffer, offset int, seg weights.Segment, want int, name string) (err error) {
	if seg.Len() != int64(want) {
		return fmt.Errorf("model: BUG: source gave %d bytes of %s where %d were asked for", seg.Len(), name, want)
	}
	if bw, ok := l.dev.(gpu.BlobWriter); ok && seg.Blob != nil {
		if handled, err := bw.WriteBlob(dst, int64(offset), seg.Blob, seg.Offset, seg.Size); handled || err != nil {
			return err
		}
	}
	data, err := seg.Load(l.scratch)
	if err != nil {
		return fmt.Errorf("model: %s: %w", name, err)
	}
	if seg.Blob != nil {
		l.scratch = data
	}
	return l.dev.WriteBuffer(dst, int64(offset), data)
}

// vector loads a norm weight or the stacked biases of several matrices as f32. A name that the source lacks is an error.
func (l *loader) vector(ctx context.Context, names ...string) (gpu.Buffer, error) {
	size := 0
	for _, name := range names {
		info, err := l.src.Info(name)
		if err != nil {
			return nil, err
		}
		size += info.K
	}
	buf, err := l.buffer(names[0], int64(4*size))
	if err != nil {
		return nil, err
	}
	return buf, l.later(ctx, func(ctx context.Context) error {
		var all []float32
		for _, name := range names {
			v, err := l.src.Vector(ctx, name)
			if err != nil {
				return err
			}
			all = append(all, v...)
		}
		if len(all) != size {
			return fmt.Errorf("model: BUG: source gave %d values of %s where it had announced %d", len(all), names[0], size)
		}
		l.loaded += int64(4 * size)
		return l.dev.WriteBuffer(buf, 0, gpu.Bytes(all))
	})
}

func (l *loader) buffer(label string, size int64) (gpu.Buffer, error) {
	b, err := l.dev.NewBuffer(label, size, gpu.UsageStorage|gpu.UsageCopyDst)
	if err == nil {
		l.buffers = append(l.buffers, b)
	}
	return b, err
}
