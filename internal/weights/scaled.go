package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pagelight/pagelight/internal/quant"
)

// Floats reads the rows lo to hi-1 of a matrix as f32, [hi-lo, K], whatever their format.
func Floats(ctx context.Context, src Source, name string, lo, hi int) ([]float32, error) {
	info, err := src.Info(name)
	if err != nil {
		return nil, err
	}
	rows, err := src.Rows(ctx, name, lo, hi)
	if err != nil {
		return nil, err
	}
	var words [2][]uint32
	for i, s := range [...]Segment{rows.Data, rows.Scales} {
		raw, err := s.Load(nil)
		if err != nil {
			return nil, fmt.Errorf("weights: tensor %q: %w", name, err)
		}
		words[i] = make([]uint32, len(raw)/4)
		for j := range words[i] {
			words[i][j] = binary.LittleEndian.Uint32(raw[4*j:])
		}
	}
	out := make([]float32, (hi-lo)*info.K)
	data, scales := info.Format.RowBytes(info.K)/4, info.Format.ScaleBytes(info.K)/4
	return out, eachRow(ctx, hi-lo, func(row int) {
		quant.Decode(info.Format, words[0][row*data:], words[1][row*scales:], info.K, out[row*info.K:(row+1)*info.K])
	})
}

// Scaling multiplies parts of tensors, by name: the rows of matrices and the elements of vectors, and the columns of matrices.
type Scaling struct {
	Rows, Columns map[string][]float32
}

// scaled is a source some of whose tensors are multiplied while they are read.
type scaled struct {
	Source
	by Scaling
}

// Scaled multiplies tensors of a checkpoint. Matrices that it touches are f32 from then on.
func Scaled(src Source, by Scaling) Source { return &scaled{Source: src, by: by} }

func (s *scaled) touches(name string) bool {
	return s.by.Rows[name] != nil || s.by.Columns[name] != nil
}

// Info describes a tensor as it will be read.
func (s *scaled) Info(name string) (Info, error) {
	info, err := s.Source.Info(name)
	if err != nil || !s.touches(name) {
		return info, err
	}
	info.Format = quant.Format{Kind: quant.F32}
	return info, nil
}

// Rows reads rows and multiplies them.
func (s *scaled) Rows(ctx context.Context, name string, lo, hi int) (Rows, error) {
	if !s.touches(name) {
		return s.Source.Rows(ctx, name, lo, hi)
	}
	info, err := s.Info(name)
	if err != nil {
		return Rows{}, err
	}
	w, err := Floats(ctx, s.Source, name, lo, hi)
	if err != nil {
		return Rows{}, err
	}
	k, byRow, byColumn := info.K, s.by.Rows[name], s.by.Columns[name]
	if byRow != nil && len(byRow) != info.Rows || byColumn != nil && len(byColumn) != k {
		return Rows{}, fmt.Errorf("weights: tensor %q has %d rows and %d columns; %d and %d factors do not fit", name, info.Rows, k, len(byRow), len(byColumn))
	}
	raw := make([]byte, 4*len(w))
	for i, v := range w {
		if byRow != nil {
			v *= byRow[lo+i/k]
		}
		if byColumn != nil {
			v *= byColumn[i%k]
		}
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
	}
	return Rows{Data: Segment{Bytes: raw}}, nil
}

// Vector reads a vector and multiplies it.
func (s *scaled) Vector(ctx context.Context, name string) ([]float32, error) {
	v, err := s.Source.Vector(ctx, name)
	by := s.by.Rows[name]
	if err != nil || by == nil {
		return v, err
	}
	if len(by) != len(v) {
		return nil, fmt.Errorf("weights: tensor %q has %d elements; %d factors do not fit", name, len(v), len(by))
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = x * by[i]
	}
	return out, nil
}

// Bytes is the size as read.
func (s *scaled) Bytes() int64 { return deviceBytes(s) }

func (s *scaled) where(name string) string {
	if l, ok := s.Source.(interface{ where(name string) string }); ok {
		return l.where(name)
	}
	return s.Config().Name
}
