package weights

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

// TestGGUFIsTheSameModel: a checkpoint and the GGUF file made of it give the same configuration and the same weights.
func TestGGUFIsTheSameModel(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	want, err := OpenFS(fsys, "some")
	if err != nil {
		t.Fatal(err)
	}
	got := smallGGUF(t, "ernie4_5").open(t)
	if g, w := mustJSON(t, got.Config()), mustJSON(t, want.Config()); g != w {
		t.Errorf("configuration\n%s\nwant\n%s", g, w)
	}
	wantSameWeights(t, got, want)
	if got.Bytes() != want.Bytes() {
		t.Errorf("%d bytes on the device, want %d", got.Bytes(), want.Bytes())
	}
}

func TestGGUFName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		expert   int
	}{
		{"model.embed_tokens.weight", "token_embd.weight", -1},
		{"model.norm.weight", "output_norm.weight", -1},
		{"lm_head.weight", "output.weight", -1},
		{"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", -1},
		{"model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias", -1},
		{"model.layers.3.self_attn.k_norm.weight", "blk.3.attn_k_norm.weight", -1},
		{"model.layers.3.mlp.gate.weight", "blk.3.ffn_gate_inp.weight", -1},
		{"model.layers.3.mlp.gate_proj.weight", "blk.3.ffn_gate.weight", -1},
		{"model.layers.3.mlp.moe_statics.e_score_correction_bias", "blk.3.exp_probs_b.bias", -1},
		{"model.layers.3.mlp.experts.17.down_proj.weight", "blk.3.ffn_down_exps.weight", 17},
		{"model.layers.3.mlp.shared_experts.up_proj.weight", "blk.3.ffn_up_shexp.weight", -1},
	} {
		if to, expert, ok := ggufName(c.from); to != c.to || expert != c.expert || !ok {
			t.Errorf("%s is %s, %d, %v, want %s, %d", c.from, to, expert, ok, c.to, c.expert)
		}
	}
	for _, name := range []string{
		"", "model", "model.norm", "model.norm.scales", "norm.weight", "model.layers.0.model.norm.weight", "model.layers.0.lm_head.weight",
		"input_layernorm.weight", "model.layers.x.input_layernorm.weight", "model.layers.01.input_layernorm.weight",
		"model.layers.-1.input_layernorm.weight", "model.layers.0.mlp.experts.gate_proj.weight", "model.layers.0.mlp.experts.#.gate_proj.weight",
		"model.layers.0.mlp.experts.-1.gate_proj.weight", "model.layers.0", "mlp.moe_statics.e_score_correction_bias",
	} {
		if to, _, ok := ggufName(name); ok {
			t.Errorf("%q is taken for %s", name, to)
		}
	}
}

// smallMoEGGUF has two layers, the second with three experts of 16 and a shared one of 24.
func smallMoEGGUF(t testing.TB) ggufMaker {
	const arch = "ernie4_5-moe"
	m := smallGGUF(t, arch).
		with(arch+".block_count", uint32(2)).
		with(arch+".expert_count", uint32(3)).
		with(arch+".expert_used_count", uint32(2)).
		with(arch+".expert_feed_forward_length", uint32(16)).
		with(arch+".expert_shared_count", uint32(1)).
		with(arch+".expert_shared_feed_forward_length", uint32(64)). // as llama.cpp writes it: not what the tensors are
		with(arch+".leading_dense_block_count", uint32(1)).
		with(arch+".interleave_moe_layer_step", uint32(1))
	for _, e := range slices.Clone(m.tensors) {
		if rest, ok := strings.CutPrefix(e.name, "blk.0."); ok && (rest == "ffn_norm.weight" || !strings.HasPrefix(rest, "ffn_")) {
			e.name = "blk.1." + rest
			m = m.add(e)
		}
	}
	return m.add(
		smallTensor("blk.1.ffn_gate_inp.weight", ggmlF32, 32, 3),
		smallTensor("blk.1.exp_probs_b.bias", ggmlF32, 3),
		smallTensor("blk.1.ffn_gate_exps.weight", ggmlBF16, 32, 16, 3),
		smallTensor("blk.1.ffn_up_exps.weight", ggmlBF16, 32, 16, 3),
		smallTensor("blk.1.ffn_down_exps.weight", ggmlBF16, 16, 32, 3),
		smallTensor("blk.1.ffn_gate_shexp.weight", ggmlBF16, 32, 24),
		smallTensor("blk.1.ffn_up_shexp.weight", ggmlBF16, 32, 24),
		smallTensor("blk.1.ffn_down_shexp.weight", ggmlBF16, 24, 32),
	)
}

// TestGGUFExperts: the matrices of experts, stacked in one tensor, are tensors of their own.
func TestGGUFExperts(t *testing.T) {
	t.Parallel()
	m := smallMoEGGUF(t)
	src := m.open(t)
	want := MoE{NumExperts: 3, TopK: 2, ExpertSize: 16, SharedExpertSize: 24, NormMin: 1e-12, FirstLayer: 1, LastLayer: 1, Interval: 1}
	if got := src.Config().MoE; *got != want || src.Config().Architecture != "ernie4_5_moe" {
		t.Errorf("%+v of %s, want %+v", *got, src.Config().Architecture, want)
	}
	stack := func(name string) []byte {
		for _, e := range m.tensors {
			if e.name == name {
				return e.data
			}
		}
		t.Fatalf("no tensor %s", name)
		return nil
	}
	for _, c := range []struct {
		part, stack string
		rows, k     int
	}{{"gate_proj", "blk.1.ffn_gate_exps.weight", 16, 32}, {"up_proj", "blk.1.ffn_up_exps.weight", 16, 32}, {"down_proj", "blk.1.ffn_down_exps.weight", 32, 16}} {
		for e := range 3 {
			name := fmt.Sprintf("model.layers.1.mlp.experts.%d.%s.weight", e, c.part)
			info, err := src.Info(name)
			if err != nil || info != (Info{Rows: c.rows, K: c.k, Format: quant.Format{Kind: quant.BF16}}) {
				t.Fatalf("%s: %+v, %v", name, info, err)
			}
			data, _ := loadRows(t, src, name, 5, 9)
			at := (e*c.rows + 5) * c.k * 2
			if !slices.Equal(data, stack(c.stack)[at:at+4*c.k*2]) {
				t.Errorf("%s: rows 5 to 8 are not those of expert %d in %s", name, e, c.stack)
			}
		}
	}
	if src.Has("model.layers.1.mlp.experts.3.gate_proj.weight") {
		t.Error("there is a fourth expert")
	}
	m.edit("blk.1.ffn_up_exps.weight", func(e *ggufEntry) { e.dims = []uint64{32, 48} }).
		refused(t, "blk.1.ffn_up_exps.weight", "[48 32]", "want a stack of more than 0 matrices")
	m.edit("blk.1.ffn_up_exps.weight", func(e *ggufEntry) { e.dims[2], e.data = 2, e.data[:2048] }).
		refused(t, "blk.1.ffn_up_exps.weight", "[2 16 32]", "want a stack of more than 2 matrices")
}

// TestGGUFInParts: a model that was split opens from its parts, in any order, and from the path of any of them.
func TestGGUFInParts(t *testing.T) {
	t.Parallel()
	whole := smallGGUF(t, "ernie4_5")
	want := whole.open(t)
	n := len(whole.tensors)
	part := func(no int, tensors []ggufEntry) ggufMaker {
		m := ggufMaker{tensors: tensors}
		if no == 0 {
			m.kv = whole.kv
		}
		return m.with("split.no", uint16(no)).with("split.count", uint16(3)).with("split.tensors.count", int32(n))
	}
	parts := []ggufMaker{part(0, nil), part(1, whole.tensors[:4]), part(2, whole.tensors[4:])}
	blobs := func(order ...int) (out []Blob) {
		for _, i := range order {
			out = append(out, memBlob(parts[i].file()))
		}
		return out
	}
	got, err := OpenGGUF(t.Context(), "some.gguf", blobs(2, 0, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	wantSameWeights(t, got, want)

	dir := t.TempDir()
	for i, m := range parts {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("some-%05d-of-00003.gguf", i+1)), m.file(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err = OpenGGUFFile(filepath.Join(dir, "some-00002-of-00003.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	wantSameWeights(t, got, want)
	if got.Config().Name != "some" {
		t.Errorf("called %q, want some", got.Config().Name)
	}
	if path, err := FindGGUF(dir); err != nil || path != filepath.Join(dir, "some-00001-of-00003.gguf") {
		t.Errorf("the model in the folder is %q, %v", path, err)
	}
	if err := os.Remove(filepath.Join(dir, "some-00003-of-00003.gguf")); err != nil {
		t.Fatal(err)
	}
	_, err = OpenGGUFFile(filepath.Join(dir, "some-00001-of-00003.gguf"))
	wantWords(t, err, "some-00003-of-00003.gguf", "is missing", "all 3 parts")

	open := func(order ...int) error {
		_, err := OpenGGUF(t.Context(), "some.gguf", blobs(order...)...)
		return err
	}
	wantWords(t, open(1), "some.gguf", "part 2 of 3", "NAME-00001-of-00003.gguf")
	wantWords(t, open(0, 1), "part 1 of 3")
	wantWords(t, open(0, 1, 1), "part 2 of 3", "as another one does")
	wantWords(t, open(), "no file")
	parts[2].tensors = whole.tensors[3:]
	wantWords(t, open(0, 1, 2), "stands in some.gguf (file 2 of 3) and in some.gguf (file 3 of 3)")
	parts[2].tensors = whole.tensors[5:]
	wantWords(t, open(0, 1, 2), fmt.Sprintf("split.tensors.count is %d, but the parts have %d tensors", n, n-1))
}

// closingBlob says when it was closed.
type closingBlob struct {
	memBlob
	closed int
}

func (b *closingBlob) Close() error {
	b.closed++
	return nil
}

func TestGGUFClosesItsBlobs(t *testing.T) {
	t.Parallel()
	good := &closingBlob{memBlob: smallGGUF(t, "ernie4_5").file()}
	src, err := OpenGGUF(t.Context(), "some.gguf", good)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Close(); err != nil || good.closed != 1 {
		t.Errorf("closed %d times, %v", good.closed, err)
	}
	bad := &closingBlob{memBlob: memBlob("GGUF")}
	if _, err := OpenGGUF(t.Context(), "some.gguf", bad); err == nil || bad.closed != 1 {
		t.Errorf("a file that is refused: %v, closed %d times", err, bad.closed)
	}
}

// TestGGUFRowsOfBlocks: rows in the middle of a matrix, read alone, are what they are in the whole.
func TestGGUFRowsOfBlocks(t *testing.T) {
	t.Parallel()
	src, err := OpenGGUFFile("testdata/gguf/ernie-s-q4_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	const name = "model.layers.1.mlp.down_proj.weight"
	info, err := src.Info(name)
	if err != nil || info != (Info{Rows: 64, K: 128, Format: quant.Format{Kind: quant.Q4, Group: 32}}) {
		t.Fatalf("%+v, %v", info, err)
	}
	data, scales := loadRows(t, src, name, 0, 64)
	for _, r := range [][2]int{{0, 1}, {17, 40}, {63, 64}, {64, 64}} {
		d, s := loadRows(t, src, name, r[0], r[1])
		if !slices.Equal(d, data[r[0]*64:r[1]*64]) || !slices.Equal(s, scales[r[0]*16:r[1]*16]) {
			t.Errorf("rows %d to %d differ from the whole", r[0], r[1]-1)
		}
	}
	for _, r := range [][2]int{{-1, 1}, {2, 1}, {0, 65}} {
		if _, err := src.Rows(t.Context(), name, r[0], r[1]); err == nil {
			t.Errorf("rows %v: no error", r)
		}
	}
	_, err = src.Vector(t.Context(), name)
	wantWords(t, err, "ernie-s-q4_0.gguf", name, "want a vector")
	_, err = src.Info("model.layers.2.mlp.down_proj.weight")
	wantWords(t, err, "ernie-s-q4_0.gguf", `"model.layers.2.mlp.down_proj.weight (blk.2.ffn_down.weight)"`, "no such tensor")
}

// TestGGUFAsBundle: packing a file changes nothing, whatever types it holds.
func TestGGUFAsBundle(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/gguf/*.gguf")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if dir := os.Getenv("PAGELIGHT_FIXTURES"); dir != "" {
		more, _ := filepath.Glob(filepath.Join(dir, "gguf", "*.gguf")) // the pattern is right
		files = append(files, more...)
	}
	for _, file := range files {
		src, err := OpenGGUFFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "bundle")
		if err := WriteBundle(t.Context(), src, dir, BundleOptions{ShardBytes: 300 << 10}, nil); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		bundle, err := OpenBundle(t.Context(), DirStore(dir))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got, want := mustJSON(t, bundle.Config()), mustJSON(t, src.Config()); got != want {
			t.Errorf("%s: configuration\n%s\nwant\n%s", file, got, want)
		}
		wantSameWeights(t, bundle, src)
		for _, name := range BundleFiles {
			got, err := bundle.File(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := src.File(t.Context(), name); !slices.Equal(got, want) {
				t.Errorf("%s: %s differs", file, name)
			}
		}
		if err := bundle.Close(); err != nil {
			t.Error(err)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}
