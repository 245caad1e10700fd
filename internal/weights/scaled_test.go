package weights

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

func TestScaled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	fsys, _ := smallModel(t)
	src, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	const matrix, norm = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"
	info, err := src.Info(matrix)
	if err != nil {
		t.Fatal(err)
	}
	rows, columns := make([]float32, info.Rows), make([]float32, info.K)
	for i := range rows {
		rows[i] = float32(i + 1)
	}
	for i := range columns {
		columns[i] = 1 / float32(i+1)
	}
	s := Scaled(src, Scaling{Rows: map[string][]float32{matrix: rows, norm: columns}, Columns: map[string][]float32{matrix: columns}})
	if got, err := s.Info(matrix); err != nil || got.Format.Kind != quant.F32 {
		t.Errorf("the matrix is %v, error %v", got.Format, err)
	}
	want, err := Floats(ctx, src, matrix, 0, info.Rows)
	if err != nil {
		t.Fatal(err)
	}
	const lo, hi = 3, 7
	got, err := s.Rows(ctx, matrix, lo, hi)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data.Bytes) != 4*(hi-lo)*info.K {
		t.Fatalf("%d bytes", len(got.Data.Bytes))
	}
	for i := range (hi - lo) * info.K {
		r, c := lo+i/info.K, i%info.K
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got.Data.Bytes[4*i:])); v != want[r*info.K+c]*rows[r]*columns[c] {
			t.Fatalf("row %d, column %d: %v, want %v", r, c, v, want[r*info.K+c]*rows[r]*columns[c])
		}
	}
	before, err := src.Vector(ctx, norm)
	if err != nil {
		t.Fatal(err)
	}
	after, err := s.Vector(ctx, norm)
	if err != nil {
		t.Fatal(err)
	}
	for i := range after {
		if after[i] != before[i]*columns[i] {
			t.Fatalf("element %d: %v, want %v", i, after[i], before[i]*columns[i])
		}
	}
	if s.Bytes() <= src.Bytes() {
		t.Errorf("%d bytes, %d before: the matrix is f32 now", s.Bytes(), src.Bytes())
	}

	// What does not fit is refused.
	_, err = Scaled(src, Scaling{Columns: map[string][]float32{matrix: columns[1:]}}).Rows(ctx, matrix, 0, 1)
	wantWords(t, err, matrix, "do not fit")
	_, err = Scaled(src, Scaling{Rows: map[string][]float32{norm: columns[1:]}}).Vector(ctx, norm)
	wantWords(t, err, norm, "do not fit")
}

// Floats decodes quantized matrices as their format says.
func TestFloats(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	src, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	const name = "model.embed_tokens.weight"
	packed := Quantized(src, PolicyQ8(nil))
	info, err := packed.Info(name)
	if err != nil {
		t.Fatal(err)
	}
	data, scales := loadRows(t, packed, name, 2, 6)
	got, err := Floats(context.Background(), packed, name, 2, 6)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, info.K)
	for r := range 4 {
		quant.Decode(info.Format, toWords(data[r*info.Format.RowBytes(info.K):]), toWords(scales[r*info.Format.ScaleBytes(info.K):]), info.K, want)
		for i, v := range want {
			if got[r*info.K+i] != v {
				t.Fatalf("row %d, column %d: %v, want %v", r+2, i, got[r*info.K+i], v)
			}
		}
	}
	if _, err := Floats(context.Background(), src, "no.such.tensor", 0, 1); err == nil {
		t.Error("a tensor that is not there was read")
	}
}
