package weights_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
	"github.com/pagelight/pagelight/internal/weights/checkpointtest"
)

// layouts are the tools' layouts with all of their settings.
func layouts() []checkpointtest.Layout {
	var out []checkpointtest.Layout
	add := func(method string, bits, group int, sym, spread bool) {
		out = append(out, checkpointtest.Layout{Method: method, Options: checkpointtest.Options{Bits: bits, Group: group, Sym: sym, Spread: spread}})
	}
	for _, group := range []int{0, 32, 128} {
		add("awq", 4, group, false, false)
		add("compressed-tensors", 4, group, false, false)
		add("compressed-tensors", 8, group, true, false)
		add("int-quantized", 8, group, true, false)
		add("int-quantized", 8, group, false, false)
		for _, method := range []string{"gptq", "gptq_v2"} {
			add(method, 4, group, false, false)
			add(method, 8, group, true, false)
		}
	}
	add("awq", 4, 64, true, false)
	add("gptq", 2, 64, false, false)
	add("gptq", 2, 32, true, true)
	add("gptq", 3, 64, false, false)
	add("gptq_v2", 3, 128, false, false)
	add("gptq", 3, 64, false, true)
	add("fp8", 8, 32, true, false)
	add("fp8", 8, 64, true, false)
	add("fp8", 8, 128, true, false)
	add("gptq", 4, 64, true, false)
	add("gptq", 4, 64, false, true)
	add("gptq", 8, 64, false, true)
	add("gptq_v2", 4, 32, true, true)
	add("compressed-tensors", 4, 64, true, false)
	add("compressed-tensors", 4, 64, true, true)
	add("compressed-tensors", 8, 32, false, true)
	return out
}

func layoutName(l checkpointtest.Layout) string {
	return fmt.Sprintf("%s/%d bits/group %d/sym %v/spread %v", l.Method, l.Bits, l.Group, l.Sym, l.Spread)
}

func openFS(t testing.TB, fsys fstest.MapFS) weights.Source {
	t.Helper()
	src, err := weights.OpenFS(fsys, "some")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// decoded reads a matrix by runs of rows and gives its weights [rows, k] by input, as the formats' definition says.
func decoded(t testing.TB, src weights.Source, name string, step int) []float32 {
	t.Helper()
	info, err := src.Info(name)
	if err != nil {
		t.Fatal(err)
	}
	order, err := src.Order(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, info.Rows*info.K)
	for lo := 0; lo < info.Rows; lo += step {
		hi := min(lo+step, info.Rows)
		rows, err := src.Rows(t.Context(), name, lo, hi)
		if err != nil {
			t.Fatal(err)
		}
		data, err := rows.Data.Load(nil)
		if err != nil {
			t.Fatal(err)
		}
		scales, err := rows.Scales.Load(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) != (hi-lo)*info.Format.RowBytes(info.K) || len(scales) != (hi-lo)*info.Format.ScaleBytes(info.K) {
			t.Fatalf("%s: rows %d to %d have %d bytes and %d of scales", name, lo, hi, len(data), len(scales))
		}
		for i := range (hi - lo) * info.K {
			row, col := i/info.K, i%info.K
			at := col
			if order != nil {
				at = int(order[col])
			}
			word := binary.LittleEndian.Uint32(scales[4*(i/info.Format.Group):])
			out[(lo+row)*info.K+at] = weightOf(info.Format.Kind, data, i, word)
		}
	}
	return out
}

// weightOf is the weight with index i among the codes.
func weightOf(kind quant.Kind, data []byte, i int, scale uint32) float32 {
	s, z := quant.UnpackScale(scale)
	switch kind {
	case quant.Q4:
		return (float32(data[i/2]>>(i%2*4)&15) - z) * s
	case quant.Q8:
		return (float32(data[i]) - z) * s
	case quant.Q2:
		return (float32(data[i/4]>>(i%4*2)&3) - z) * s
	case quant.Q3:
		run, at := data[i/32*12:], i%32
		return (float32(run[at/4]>>(at%4*2)&3+run[8+at/8]>>(at%8)&1*4) - z) * s
	case quant.F8:
		return checkpointtest.E4M3(data[i]) * math.Float32frombits(scale)
	}
	panic("BUG: unexpected kind")
}

func wantEqual(t testing.TB, name string, got []float32, want func(i int) float32) {
	t.Helper()
	for i, v := range got {
		if w := want(i); v != w {
			t.Fatalf("%s: weight %d is %v, want %v", name, i, v, w)
		}
	}
}

// wantMatrix reads a matrix by runs of rows and compares it.
func wantMatrix(t testing.TB, src weights.Source, name string, want checkpointtest.Weights, step int) {
	t.Helper()
	got := decoded(t, src, name, step)
	info, err := src.Info(name)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, name, got, func(i int) float32 { return want.At(i/info.K, i%info.K) })
}

// TestLayoutsGiveTheirWeights reads models in each layout, in pieces of all kinds, and compares every weight with what the
// layout's writer meant.
func TestLayoutsGiveTheirWeights(t *testing.T) {
	t.Parallel()
	for _, l := range layouts() {
		t.Run(layoutName(l), func(t *testing.T) {
			model := "ernie-bias-untied"
			if l.Group == 128 {
				model = "ernie" // the other one's rows of 192 and 320 are no whole groups then
			}
			floats, err := weights.OpenDir("../model/testdata/" + model)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]checkpointtest.Weights{}
			fsys, err := checkpointtest.Model(t.Context(), floats, l, func(name string, m checkpointtest.Weights) { want[name] = m })
			if err != nil {
				t.Fatal(err)
			}
			src := openFS(t, fsys)
			step := 1 << 20
			for i, name := range slices.Sorted(maps.Keys(want)) {
				if i%2 == 1 {
					weights.SetStripBytes(src, 32*40)
					step = 7 + 30*i
				}
				wantMatrix(t, src, name, want[name], step)
				order, err := src.Order(t.Context(), name)
				if err != nil || (order != nil) != (l.Spread && l.Group > 0) {
					t.Fatalf("%s: order of %d columns, %v", name, len(order), err)
				}
			}
			if spread := l.Spread && l.Group > 0; src.Config().Reordered != spread {
				t.Errorf("reordered is %v, want %v", !spread, spread)
			}
			wantSameFloats(t, src, floats, want)
		})
	}
}

// wantSameFloats fails unless what is not quantized is as in the model that was.
func wantSameFloats(t testing.TB, got, want weights.Source, quantized map[string]checkpointtest.Weights) {
	t.Helper()
	for _, s := range weights.Tensors(want.Config()) {
		if quantized[s.Name] != nil {
			continue
		}
		g, err := got.Rows(t.Context(), s.Name, 0, s.Rows)
		if err != nil {
			t.Fatal(err)
		}
		w, err := want.Rows(t.Context(), s.Name, 0, s.Rows)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(g.Data.Bytes, w.Data.Bytes) {
			t.Errorf("%s differs", s.Name)
		}
	}
}

// TestBundleOfACheckpoint packs quantized checkpoints and compares what the bundles hold.
func TestBundleOfACheckpoint(t *testing.T) {
	t.Parallel()
	floats, err := weights.OpenDir("../model/testdata/ernie")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []checkpointtest.Layout{
		{Method: "awq", Options: checkpointtest.Options{Bits: 4, Group: 128}},
		{Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 64, Spread: true}},
		{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 8, Group: 32, Spread: true}},
	} {
		t.Run(layoutName(l), func(t *testing.T) {
			want := map[string]checkpointtest.Weights{}
			fsys, err := checkpointtest.Model(t.Context(), floats, l, func(name string, m checkpointtest.Weights) { want[name] = m })
			if err != nil {
				t.Fatal(err)
			}
			src := openFS(t, fsys)
			dir := filepath.Join(t.TempDir(), "bundle")
			if err := weights.WriteBundle(t.Context(), src, dir, weights.BundleOptions{ShardBytes: 100_000}, nil); err != nil {
				t.Fatal(err)
			}
			got, err := weights.OpenBundle(t.Context(), weights.DirStore(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := got.Close(); err != nil {
					t.Error(err)
				}
			}()
			if got.Config().Reordered != l.Spread || got.Bytes() != src.Bytes() {
				t.Errorf("reordered %v, %d bytes; want %v, %d", got.Config().Reordered, got.Bytes(), l.Spread, src.Bytes())
			}
			for name, m := range want {
				wantMatrix(t, got, name, m, 100)
			}
		})
	}
}
