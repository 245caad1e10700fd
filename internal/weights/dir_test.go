package weights

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

// goldens are tiny random checkpoints beside the model code.
const goldens = "../model/testdata/"

// fixtures is the folder of larger test data; the test is skipped when there is none.
func fixtures(t testing.TB, name string) string {
	t.Helper()
	root := os.Getenv("PAGELIGHT_FIXTURES")
	if root == "" {
		t.Skip("SKIPPED: " + name + " needs PAGELIGHT_FIXTURES")
	}
	return filepath.Join(root, name)
}

func openDirTest(t testing.TB, dir string) Source {
	t.Helper()
	src, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drop(src) })
	return src
}

func TestOpenDirReadsConfig(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie-bias-untied")
	got := *src.Config()
	if len(got.EOS) != 1 || got.EOS[0] != 2 {
		t.Errorf("EOS = %v, want [2]", got.EOS)
	}
	got.EOS = nil
	got.Sampling = Sampling{}
	want := Config{
		Architecture: "ernie4_5", Name: "ernie-bias-untied",
		HiddenSize: 192, IntermediateSize: 320, NumLayers: 2, NumHeads: 6, NumKVHeads: 2, HeadDim: 64, VocabSize: 515,
		MaxPositions: 2048, RMSNormEps: 1e-6, RopeTheta: 10000, RopeFrequenciesBF16: true, UseBias: true, BOS: 1,
	}
	if g, w := mustJSON(t, got), mustJSON(t, want); g != w {
		t.Errorf("config\n%s\nwant\n%s", g, w)
	}
	if src.Has("lm_head.bias") || !src.Has("lm_head.weight") {
		t.Error("the LM head has a weight and no bias")
	}
}

// TestDirRowsAreTheFilesBytes reads a tensor in pieces and compares with a plain read of the file at the place that the
// header, parsed here once more by hand, gives.
func TestDirRowsAreTheFilesBytes(t *testing.T) {
	t.Parallel()
	dir := goldens + "ernie"
	src := openDirTest(t, dir)
	raw, err := os.ReadFile(dir + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	var head map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	n := 8 + int(binary.LittleEndian.Uint64(raw))
	mustUnmarshal(t, raw[8:n], &head)
	for _, shape := range Tensors(src.Config()) {
		o := head[shape.Name].Offsets
		want := raw[n+o[0] : n+o[1]]
		info, err := src.Info(shape.Name)
		if err != nil {
			t.Fatal(err)
		}
		if info != (Info{shape.Rows, shape.K, quant.Format{Kind: quant.BF16}}) {
			t.Fatalf("%s: info %+v", shape.Name, info)
		}
		var got []byte
		for lo, hi := range Pieces(src, shape.Name, info, 5000) {
			r, err := src.Rows(t.Context(), shape.Name, lo, hi)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Data.Bytes...)
		}
		if string(got) != string(want) {
			t.Fatalf("%s: rows differ from the file", shape.Name)
		}
		if shape.Vector {
			v, err := src.Vector(t.Context(), shape.Name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range v {
				if w := uint32(want[2*i])<<16 | uint32(want[2*i+1])<<24; math.Float32bits(v[i]) != w {
					t.Fatalf("%s[%d] = %v, want bits %#x", shape.Name, i, v[i], w)
				}
			}
		}
	}
	if want := int64(len(raw)-n) + 2*128*7; src.Bytes() != want { // 7 norms of 128 are f32 on the device
		t.Errorf("Bytes() = %d, want %d", src.Bytes(), want)
	}
}

func TestDirMissingTensorWrapsErrNoTensor(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	_, err := src.Info("lm_head.weight")
	if !errors.Is(err, ErrNoTensor) {
		t.Fatalf("error %v", err)
	}
	wantWords(t, err, "model.safetensors", "lm_head.weight")
	if f, err := src.File(t.Context(), "tokenizer.model"); f != nil || err != nil {
		t.Errorf("a missing file gives %v, %v", f, err)
	}
	if _, err := src.File(t.Context(), "../config.json"); err == nil {
		t.Error("a path outside the folder is read")
	}
	if _, err := src.Rows(t.Context(), "model.norm.weight", 0, 2); err == nil {
		t.Error("rows past the end are read")
	}
}

// TestDirWithShards reads a real sharded checkpoint.
func TestDirWithShards(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, fixtures(t, "models/ernie-tiny"))
	c := src.Config()
	if len(c.EOS) != 2 || c.EOS[0] != 4 || c.EOS[1] != 2 {
		t.Errorf("EOS = %v, want [4 2]: the union of both files", c.EOS)
	}
	if c.Sampling.DoSample == nil || *c.Sampling.DoSample || c.Sampling.MaxNewTokens == nil || *c.Sampling.MaxNewTokens != 256 {
		t.Errorf("sampling defaults %s", mustJSON(t, c.Sampling))
	}
	weights := 0
	for _, s := range Tensors(c) {
		weights += s.Rows * s.K
		info, err := src.Info(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		for lo, hi := range Pieces(src, s.Name, info, 1<<20) {
			if _, err := src.Rows(t.Context(), s.Name, lo, hi); err != nil {
				t.Fatal(err)
			}
		}
	}
	if weights != 15735168 { // as the model card says
		t.Errorf("%d weights, want 15735168", weights)
	}
	if f, err := src.File(t.Context(), "tokenizer.model"); len(f) != 116177 || err != nil {
		t.Errorf("tokenizer.model: %d bytes, %v", len(f), err)
	}
}
