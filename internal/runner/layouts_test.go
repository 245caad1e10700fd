package runner

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/cpu"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
	"github.com/pagelight/pagelight/internal/weights/checkpointtest"
)

// logitsOf computes the logits of every position of a prompt, with f32 keys and values.
func logitsOf(t *testing.T, dev gpu.Device, src weights.Source, ids []int32) [][]float32 {
	t.Helper()
	r, err := Open(context.Background(), dev, src, Config{
		KV: quant.KVF32, Budget: 1 << 30, MaxModelLen: 512, MaxTokens: 48, MaxLogits: 16, MaxSeqs: 1, NumTokens: src.Config().VocabSize,
		Progress: func(string, int64, int64, string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows, _ := run(t, r, goldenCase{Name: "prompt", InputIDs: ids, Greedy: []int32{0}}, 1)
	return rows
}

// wantLogits compares logits, relative to the largest of their row.
func wantLogits(t *testing.T, got, want [][]float32, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows of logits, want %d", len(got), len(want))
	}
	worst := 0.0
	for i, row := range got {
		most, diff := 0.0, 0.0
		for j, v := range row {
			most = max(most, math.Abs(float64(want[i][j])))
			if d := math.Abs(float64(v) - float64(want[i][j])); !(d <= diff) {
				diff = d
			}
		}
		if worst = max(worst, diff/most); math.IsNaN(diff) {
			t.Fatalf("row %d has a NaN", i)
		}
	}
	if worst > tol {
		t.Errorf("logits differ by %.2g of the row's largest magnitude, at most %g allowed", worst, tol)
	}
}

func openLayout(t *testing.T, src weights.Source, l checkpointtest.Layout, keep func(string, checkpointtest.Weights)) weights.Source {
	t.Helper()
	fsys, err := checkpointtest.Model(t.Context(), src, l, keep)
	if err != nil {
		t.Fatal(err)
	}
	got, err := weights.OpenFS(fsys, l.Method)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// checkLossless runs a model whose weights four bits hold as it is and in 4 bits: quantized here, as AWQ and as GPTQ, in groups of
// 32, 64 and 128. All have to give the logits of bf16.
func checkLossless(t *testing.T, dev gpu.Device, src weights.Source, ids []int32) {
	want := logitsOf(t, dev, src, ids)
	for _, group := range []int{32, 64, 128} {
		own := weights.Quantized(src, weights.PolicyGroups(quant.Q4, group, nil))
		t.Run(fmt.Sprintf("own/%d", group), func(t *testing.T) {
			wantLogits(t, logitsOf(t, dev, own, ids), want, 2e-4)
		})
		for _, method := range []string{"awq", "gptq"} {
			t.Run(fmt.Sprintf("%s/%d", method, group), func(t *testing.T) {
				l := checkpointtest.Layout{Method: method, Options: checkpointtest.Options{Bits: 4, Group: group}}
				got := openLayout(t, src, l, nil)
				wantSameCodes(t, got, own)
				wantLogits(t, logitsOf(t, dev, got, ids), want, 2e-4)
			})
		}
	}
}

// wantSameCodes fails unless the linear layers have the same codes and scales.
func wantSameCodes(t *testing.T, got, want weights.Source) {
	t.Helper()
	compared := 0
	for _, s := range weights.Tensors(got.Config()) {
		if !strings.HasSuffix(s.Name, "_proj.weight") {
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
		if !bytes.Equal(g.Data.Bytes, w.Data.Bytes) || !bytes.Equal(g.Scales.Bytes, w.Scales.Bytes) {
			t.Errorf("%s differs from what is quantized here", s.Name)
		}
		compared++
	}
	if compared != 7*got.Config().NumLayers {
		t.Errorf("%d matrices are compared", compared)
	}
}

func openCPU(t *testing.T) gpu.Device {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

// TestLosslessLayouts runs one layer of the model of full size with the first words of its vocabulary.
func TestLosslessLayouts(t *testing.T) {
	full, err := weights.OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		t.Fatal(err)
	}
	checkLossless(t, openCPU(t), checkpointtest.Shorter(full, 1, 256), []int32{3, 200, 17, 100})
}

// TestFullShapeLayouts is the same with the whole model, on the GPU.
func TestFullShapeLayouts(t *testing.T) {
	if os.Getenv("PAGELIGHT_FULL") == "" {
		t.Skipf("SKIPPED: %s runs with make test-full", t.Name())
	}
	full, err := weights.OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		t.Fatal(err)
	}
	dev := gputest.Open(t)
	defer dev.Close()
	var ids []int32
	for i := range int32(17) {
		ids = append(ids, 3+i*6007%103421)
	}
	checkLossless(t, dev, full, ids)
}

// widened is a model of floats whose linear layers are what a quantized one stands for.
type widened struct {
	weights.Source
	matrices map[string]checkpointtest.Weights
	buf      []byte
}

func (w *widened) Info(name string) (weights.Info, error) {
	info, err := w.Source.Info(name)
	if w.matrices[name] != nil {
		info.Format = quant.Format{Kind: quant.F32}
	}
	return info, err
}

func (w *widened) Rows(ctx context.Context, name string, lo, hi int) (weights.Rows, error) {
	m := w.matrices[name]
	if m == nil {
		return w.Source.Rows(ctx, name, lo, hi)
	}
	w.buf = w.buf[:0]
	for row := lo; row < hi; row++ {
		info, err := w.Source.Info(name)
		if err != nil {
			return weights.Rows{}, err
		}
		for col := range info.K {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, math.Float32bits(m.At(row, col)))
		}
	}
	return weights.Rows{Data: weights.Segment{Bytes: w.buf}}, nil
}

// TestLayoutsGiveLogits runs models in other tools' layouts and in f32 with the same weights, on the processor and the GPU.
func TestLayoutsGiveLogits(t *testing.T) {
	src, err := weights.OpenDir(goldens + "/ernie-bias-untied")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ids := []int32{5, 400, 33, 2, 77, 78, 79, 500, 11}
	for _, l := range []checkpointtest.Layout{
		{Method: "gptq", Options: checkpointtest.Options{Bits: 4, Group: 64, Spread: true}},
		{Method: "gptq_v2", Options: checkpointtest.Options{Bits: 8, Group: 32, Sym: true, Spread: true}},
		{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 4, Group: 16, Sym: true, Spread: true}},
		{Method: "compressed-tensors", Options: checkpointtest.Options{Bits: 8, Group: 64}},
		{Method: "int-quantized", Options: checkpointtest.Options{Bits: 8, Sym: true}},
		{Method: "gptq", Options: checkpointtest.Options{Bits: 3, Group: 64, Spread: true}},
		{Method: "fp8", Options: checkpointtest.Options{Bits: 8, Group: 128}},
	} {
		for _, device := range []string{"cpu", "gpu"} {
			t.Run(fmt.Sprintf("%s/%d bits/group %d/%s", l.Method, l.Bits, l.Group, device), func(t *testing.T) {
				dev := devices(t)[device]()
				defer dev.Close()
				matrices := map[string]checkpointtest.Weights{}
				got := openLayout(t, src, l, func(name string, m checkpointtest.Weights) { matrices[name] = m })
				want := logitsOf(t, dev, &widened{Source: src, matrices: matrices}, ids)
				wantLogits(t, logitsOf(t, dev, got, ids), want, 2e-5)
			})
		}
	}
}
