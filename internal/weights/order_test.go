package weights

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
)

// orderedSource has a model's matrices of o_proj with their columns in reverse.
type orderedSource struct{ Source }

func (s orderedSource) Order(_ context.Context, name string) ([]int32, error) {
	if !strings.HasSuffix(name, "o_proj.weight") {
		return nil, nil
	}
	info, err := s.Info(name)
	order := make([]int32, info.K)
	for i := range order {
		order[i] = int32(info.K - 1 - i)
	}
	return order, err
}

const ordered = "model.layers.0.self_attn.o_proj.weight"

// TestBundleKeepsOrder packs a model with an order, opens it, and packs what was opened again.
func TestBundleKeepsOrder(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	plain, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	src := orderedSource{plain}
	want, err := src.Order(t.Context(), ordered)
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range []int64{0, 700} {
		dir := packed(t, src, BundleOptions{ShardBytes: shard})
		b := openBundleTest(t, DirStore(dir))
		for _, s := range Tensors(b.Config()) {
			got, err := b.Order(t.Context(), s.Name)
			if err != nil {
				t.Fatal(err)
			}
			if s.Name == ordered && !slices.Equal(got, want) || s.Name != ordered && got != nil {
				t.Errorf("order of %s is %v", s.Name, got)
			}
		}
		wantSameWeights(t, b, plain)
		wantSameFiles(t, packed(t, b, BundleOptions{ShardBytes: shard}), dir)
	}
}

// TestBundleRefusesWhatIsNoPermutation changes the order in the shard, with the hash that then is right.
func TestBundleRefusesWhatIsNoPermutation(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	plain, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	dir := packed(t, orderedSource{plain}, BundleOptions{})
	m := readManifest(t, dir)
	var at Span
	for _, mt := range m.Tensors {
		if mt.Name == ordered {
			at = *mt.Order
		}
	}
	shard, err := os.ReadFile(filepath.Join(dir, m.Shards[at.Shard].File))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value uint32
		says  string
	}{{32, "column 1 belongs to input 32 of 32"}, {1 << 31, "column 1 belongs to input 2147483648 of 32"}, {31, "two columns belong to input 31, the second is column 1"}} {
		binary.LittleEndian.PutUint32(shard[at.Offset+4:], c.value)
		file, sum := contentName(sha256.Sum256(shard))
		m.Shards[at.Shard].File, m.Shards[at.Shard].SHA256 = file, sum
		raw, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		to := t.TempDir()
		for name, content := range map[string][]byte{ManifestFile: raw, file: shard} {
			if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		_, err = openBundleTest(t, DirStore(to)).Order(t.Context(), ordered)
		wantWords(t, err, file, ordered, c.says)
	}
}

// TestBundleOfVersion0 opens a manifest that an earlier program wrote.
func TestBundleOfVersion0(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	src, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	dir := packed(t, src, BundleOptions{})
	at := filepath.Join(dir, ManifestFile)
	raw, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(raw), `"version": 1`, `"version": 0`, 1)
	if old == string(raw) {
		t.Fatal("the manifest does not state its version")
	}
	if err := os.WriteFile(at, []byte(old), 0o644); err != nil {
		t.Fatal(err)
	}
	wantSameWeights(t, openBundleTest(t, DirStore(dir)), src)
}

// TestDocumentNamesEveryFormat: docs/bundle.md has every format that a bundle may hold.
func TestDocumentNamesEveryFormat(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/bundle.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range quant.Formats() {
		name := f.String()
		if all := regexp.MustCompile(`g\d+$`).ReplaceAllString(name, "gN"); !strings.Contains(string(raw), "`"+name+"`") && !strings.Contains(string(raw), "`"+all+"`") {
			t.Errorf("docs/bundle.md does not name %s", name)
		}
	}
}
