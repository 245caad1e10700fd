package weights

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/pagelight/pagelight/internal/quant"
)

func toWords(raw []byte) []uint32 {
	out := make([]uint32, len(raw)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return out
}

// TestQuantizedDecodesToTheWeights reads every matrix in each format and compares with the source's values.
func TestQuantizedDecodesToTheWeights(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie-bias-untied")
	for _, c := range []struct {
		policy Policy
		most   float64 // root mean square error relative to that of the weights
	}{
		{PolicyNone, 0},
		{PolicyQ8(nil), 0.01},
		{PolicyQ4(nil), 0.12},
		{func(string, Info) quant.Format { return quant.Format{Kind: quant.F32} }, 0},
		{func(string, Info) quant.Format { return quant.Format{Kind: quant.F16} }, 0.001},
	} {
		q := Quantized(src, c.policy)
		if err := Check(q); err != nil {
			t.Fatal(err)
		}
		var total int64
		for _, s := range Tensors(src.Config()) {
			if s.Vector {
				g, err := q.Vector(t.Context(), s.Name)
				if err != nil {
					t.Fatal(err)
				}
				if w, err := src.Vector(t.Context(), s.Name); err != nil || !slices.Equal(g, w) {
					t.Fatalf("%s differs, %v", s.Name, err)
				}
				total += 4 * int64(s.K)
				continue
			}
			info, err := q.Info(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			f := info.Format
			var sum, all float64
			got, want := make([]float32, s.K), make([]float32, s.K)
			for lo, hi := range Pieces(q, s.Name, info, 2000) {
				if f.Group != 0 && lo > 0 && hi < s.Rows { // quantizing is slow: the first and the last piece will do
					total += int64(hi-lo) * int64(f.RowBytes(s.K)+f.ScaleBytes(s.K))
					continue
				}
				data, scales := loadRows(t, q, s.Name, lo, hi)
				raw, _ := loadRows(t, src, s.Name, lo, hi)
				if len(data) != (hi-lo)*f.RowBytes(s.K) || len(scales) != (hi-lo)*f.ScaleBytes(s.K) {
					t.Fatalf("%s as %v: %d bytes and %d of scales", s.Name, f, len(data), len(scales))
				}
				total += int64(len(data) + len(scales))
				for r := range hi - lo {
					quant.Decode(f, toWords(data[r*f.RowBytes(s.K):]), toWords(scales[r*f.ScaleBytes(s.K):]), s.K, got)
					decodeFloats(quant.BF16, raw[2*r*s.K:], want)
					for i := range want {
						sum += math.Pow(float64(got[i]-want[i]), 2)
						all += math.Pow(float64(want[i]), 2)
					}
				}
			}
			if e := math.Sqrt(sum / all); e > c.most {
				t.Errorf("%s as %v: relative error %v, want at most %v", s.Name, f, e, c.most)
			}
		}
		if total != q.Bytes() {
			t.Errorf("Bytes() = %d, the weights take %d", q.Bytes(), total)
		}
	}
}

// TestPolicySaysWhereGroupsAreSmaller: rows of 192 weights are no multiple of 128.
func TestPolicySaysWhereGroupsAreSmaller(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie-bias-untied")
	heard := map[string]string{}
	q := Quantized(src, PolicyGroups(quant.Q4, 128, func(name string, f quant.Format) { heard[name] += f.String() }))
	for _, s := range Tensors(src.Config()) {
		if s.Vector {
			continue
		}
		info, err := q.Info(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := map[int]string{192: "q4g64", 320: "q4g64", 384: "q4g128"}[s.K]
		if info.Format.String() != want {
			t.Errorf("%s with rows of %d is %v, want %s", s.Name, s.K, info.Format, want)
		}
		if want == "q4g128" {
			want = ""
		}
		if heard[s.Name] != want {
			t.Errorf("%s: heard %q, want %q, once", s.Name, heard[s.Name], want)
		}
	}
}

func TestQuantizedRefuses(t *testing.T) {
	t.Parallel()
	fsys, tensors := smallModel(t)
	const name = "model.embed_tokens.weight"
	src, err := OpenFS(fsys, "some")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Quantized(src, func(string, Info) quant.Format { return quant.Format{Kind: quant.Q4, Group: 64} }).Info(name)
	wantWords(t, err, name, "rows of 32")
	q4 := Quantized(src, PolicyQ4(nil))
	_, err = Quantized(q4, func(string, Info) quant.Format { return quant.Format{Kind: quant.BF16} }).Info(name)
	wantWords(t, err, name, "is stored as q4g32 and cannot become bf16")
	// What is packed stays packed.
	wantSameWeights(t, Quantized(q4, PolicyQ8(nil)), q4)

	for i, d := range tensors {
		if d.name == name {
			binary.LittleEndian.PutUint16(tensors[i].data[2*(32*5+3):], 0x7F00) // 1.7e38, finite in bf16
		}
	}
	fsys["model.safetensors"] = &fstest.MapFile{Data: makeSafetensors(tensors)}
	if src, err = OpenFS(fsys, "some"); err != nil {
		t.Fatal(err)
	}
	_, err = Quantized(src, func(string, Info) quant.Format { return quant.Format{Kind: quant.F16} }).Rows(t.Context(), name, 2, 30)
	wantWords(t, err, "some/model.safetensors", name, "row 5", "weight 3")
}

// TestQuantizedBundle packs quantized weights, and packs the bundle again.
func TestQuantizedBundle(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	plain, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	src := Quantized(plain, PolicyQ4(nil))
	dir := packed(t, src, BundleOptions{ShardBytes: 500})
	b := openBundleTest(t, DirStore(dir))
	wantSameWeights(t, b, src)
	const name = "model.embed_tokens.weight"
	if runs := readManifest(t, dir).Tensors[0].Runs; len(runs) < 2 {
		t.Fatalf("%s lies in one shard: %+v", name, runs)
	}
	data, scales := loadRows(t, b, name, 3, 38)
	wantData, wantScales := loadRows(t, src, name, 3, 38)
	if !slices.Equal(data, wantData) || !slices.Equal(scales, wantScales) {
		t.Error("rows that span shards differ")
	}
	wantSameWeights(t, openBundleTest(t, DirStore(packed(t, b, BundleOptions{}))), src)
}

// TestSyntheticPackedIsWhatTheQuantizerFinds compares the codes that the rule gives with those that the quantizer finds
// in the bf16 values, bit for bit.
func TestSyntheticPackedIsWhatTheQuantizerFinds(t *testing.T) {
	t.Parallel()
	src, err := OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []int{32, 64, 128} {
		policy := PolicyGroups(quant.Q4, group, nil)
		direct := Quantized(src, policy)
		plain := Quantized(struct{ Source }{src}, policy) // hides that the source can pack
		for _, name := range []string{
			"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.7.self_attn.o_proj.weight",
			"model.layers.17.mlp.down_proj.weight",
		} {
			gd, gs := loadRows(t, direct, name, 100, 140)
			wd, ws := loadRows(t, plain, name, 100, 140)
			if !slices.Equal(gd, wd) {
				t.Errorf("%s group %d: codes differ", name, group)
			}
			if !slices.Equal(gs, ws) {
				t.Errorf("%s group %d: scales differ", name, group)
			}
		}
	}
}

func BenchmarkSyntheticQ4(b *testing.B) {
	src, err := OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		b.Fatal(err)
	}
	benchmarkRows(b, Quantized(src, PolicyQ4(nil)))
}

func BenchmarkQuantizeQ4(b *testing.B) {
	benchmarkRows(b, Quantized(openDirTest(b, fixtures(b, "models/ernie-tiny")), PolicyQ4(nil)))
}

func BenchmarkQuantizeQ8(b *testing.B) {
	benchmarkRows(b, Quantized(openDirTest(b, fixtures(b, "models/ernie-tiny")), PolicyQ8(nil)))
}

// benchmarkRows reports bytes of bf16 that become something else in a second.
func benchmarkRows(b *testing.B, src Source) {
	const name, rows = "model.embed_tokens.weight", 4096
	b.SetBytes(2 * rows * int64(src.Config().HiddenSize))
	for b.Loop() {
		if _, err := src.Rows(b.Context(), name, 0, rows); err != nil {
			b.Fatal(err)
		}
	}
}
