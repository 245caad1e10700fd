package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/pagelight/pagelight/internal/quant"
)

// Policy chooses the format of a matrix from its name and how it is stored. Vectors are always f32.
type Policy = func(name string, info Info) quant.Format

// defaultGroup is how many weights share a scale unless a matrix needs fewer.
const defaultGroup = 32

// PolicyNone leaves everything as it is stored.
func PolicyNone(_ string, info Info) quant.Format { return info.Format }

// PolicyQ8 stores every matrix, the embedding too, in 8 bits with groups of 32, see PolicyGroups.
func PolicyQ8(note func(name string, f quant.Format)) Policy {
	return PolicyGroups(quant.Q8, defaultGroup, note)
}

// PolicyQ4 stores every matrix, the embedding too, in 4 bits with groups of 32, see PolicyGroups.
func PolicyQ4(note func(name string, f quant.Format)) Policy {
	return PolicyGroups(quant.Q4, defaultGroup, note)
}

// PolicyGroups stores every matrix as kind with the given group, or the largest smaller one that divides its rows; note,
// which may be nil, then hears of it. What is quantized already stays as it is.
func PolicyGroups(kind quant.Kind, group int, note func(name string, f quant.Format)) Policy {
	return func(name string, info Info) quant.Format {
		if info.Format.Group != 0 {
			return info.Format
		}
		f := quant.Format{Kind: kind, Group: quant.FitGroup(info.K, group)}
		if f.Group != group && note != nil {
			note(name, f)
		}
		return f
	}
}

// quantized is a source whose matrices are converted while they are read.
type quantized struct {
	Source
	formats map[string]quant.Format // of the matrices
	raw     []byte                  // rows as the source stores them, when they lie in a blob
	data    []byte
	scales  []byte
}

// Quantized converts the matrices of a source while their rows are read, on all processors. f is asked once for each
// matrix, but for the routers of experts: those stay as they are, since a small error there sends a token elsewhere. Only f32, f16 and bf16 can be converted; asking for anything else gives an error when the tensor is used.
func Quantized(src Source, f func(name string, info Info) quant.Format) Source {
	q := &quantized{Source: src, formats: map[string]quant.Format{}}
	for _, s := range Tensors(src.Config()) {
		if s.Vector || s.Router {
			continue
		}
		if info, err := src.Info(s.Name); err == nil {
			q.formats[s.Name] = f(s.Name, info)
		}
	}
	return q
}

// Info describes a tensor as it will be read.
func (q *quantized) Info(name string) (Info, error) {
	info, _, err := q.info(name)
	return info, err
}

// info describes a tensor as it will be read, and says how it is stored.
func (q *quantized) info(name string) (Info, quant.Format, error) {
	info, err := q.Source.Info(name)
	stored := info.Format
	want, ok := q.formats[name]
	if err != nil || !ok || want == stored {
		return info, stored, err
	}
	if stored.Group != 0 {
		return info, stored, fmt.Errorf("weights: tensor %q is stored as %v and cannot become %v", name, stored, want)
	}
	if err := want.Check(info.K); err != nil {
		return info, stored, fmt.Errorf("weights: tensor %q: %w", name, err)
	}
	info.Format = want
	return info, stored, nil
}

func (q *quantized) where(name string) string {
	if l, ok := q.Source.(interface{ where(name string) string }); ok {
		return l.where(name)
	}
	return q.Config().Name
}

func (q *quantized) runEnd(name string, lo int) int {
	if r, ok := q.Source.(runner); ok {
		return r.runEnd(name, lo)
	}
	return math.MaxInt
}

func (q *quantized) Bytes() int64 { return deviceBytes(q) }

// BytesAs is what the weights of a source would take on the device if f were to choose their formats, whatever was chosen
// for it before. f is asked about matrices as they are stored.
func BytesAs(src Source, f Policy) int64 {
	if q, ok := src.(*quantized); ok {
		src = q.Source
	}
	return Quantized(src, f).Bytes()
}

// Rows reads rows and converts them.
func (q *quantized) Rows(ctx context.Context, name string, lo, hi int) (Rows, error) {
	info, stored, err := q.info(name)
	if err != nil {
		return Rows{}, err
	}
	if info.Format == stored {
		return q.Source.Rows(ctx, name, lo, hi)
	}
	if p, ok := q.Source.(interface {
		packed(ctx context.Context, name string, f quant.Format, lo, hi int) (Rows, bool, error)
	}); ok {
		if rows, ok, err := p.packed(ctx, name, info.Format, lo, hi); ok {
			return rows, err
		}
	}
	rows, err := q.Source.Rows(ctx, name, lo, hi)
	if err != nil {
		return Rows{}, err
	}
	raw, err := rows.Data.Load(q.raw)
	if err != nil {
		return Rows{}, fmt.Errorf("weights: %s: tensor %q: %w", q.where(name), name, err)
	}
	if rows.Data.Blob != nil {
		q.raw = raw
	}
	f, k := info.Format, info.K
	q.data, q.scales = grow(q.data, (hi-lo)*f.RowBytes(k)), grow(q.scales, (hi-lo)*f.ScaleBytes(k))
	var bad firstError
	err = eachRow(ctx, hi-lo, func(row int) {
		values := make([]float32, k)
		decodeFloats(stored.Kind, raw[row*stored.RowBytes(k):], values)
		data := q.data[row*f.RowBytes(k):][:f.RowBytes(k)]
		if err := convert(f, values, data, q.scales[row*f.ScaleBytes(k):][:f.ScaleBytes(k)]); err != nil {
			bad.set(row, err)
		}
	})
	if err == nil {
		err = bad.wrap(lo)
	}
	if err != nil {
		return Rows{}, fmt.Errorf("weights: %s: tensor %q: %w", q.where(name), name, err)
	}
	out := Rows{Data: Segment{Bytes: q.data}}
	if f.Group != 0 {
		out.Scales.Bytes = q.scales
	}
	return out, nil
}

// convert writes one row in another format.
func convert(f quant.Format, values []float32, data, scales []byte) error {
	d, s, err := quant.Quantize(f, values, len(values))
	if err != nil {
		return err
	}
	putWords(data, d)
	putWords(scales, s)
	return nil
}

func putWords(dst []byte, words []uint32) {
	for i, w := range words {
		binary.LittleEndian.PutUint32(dst[4*i:], w)
	}
}

// firstError keeps the error of the lowest row, so that the same file always gives the same error.
type firstError struct {
	mu  sync.Mutex
	row int
	err error
}

func (f *firstError) set(row int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || row < f.row {
		f.row, f.err = row, err
	}
}

func (f *firstError) wrap(lo int) error {
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("converting row %d: %w", lo+f.row, f.err)
}
