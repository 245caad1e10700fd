package weights

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

// packed writes a bundle of src into a new folder.
func packed(t testing.TB, src Source, opts BundleOptions) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bundle")
	if err := WriteBundle(t.Context(), src, dir, opts, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openBundleTest(t testing.TB, store Store) Source {
	t.Helper()
	b, err := OpenBundle(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drop(b) })
	return b
}

func readManifest(t testing.TB, dir string) *Manifest {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestBundleRoundTrip packs with shards so small that tensors span many of them, and reads everything back.
func TestBundleRoundTrip(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"ernie", "ernie-bias-untied", "ernie-moe", "llama", "qwen2", "qwen3"} {
		for _, size := range []int64{0, 300_000, 20_000} {
			t.Run(fmt.Sprint(model, size), func(t *testing.T) {
				t.Parallel()
				src := openDirTest(t, goldens+model)
				dir := packed(t, src, BundleOptions{Name: "other", ShardBytes: size})
				b := openBundleTest(t, DirStore(dir))
				wantSameWeights(t, b, src)
				if b.Bytes() != src.Bytes() {
					t.Errorf("Bytes() = %d, want %d", b.Bytes(), src.Bytes())
				}
				want := *src.Config()
				want.Name = "other"
				if g, w := mustJSON(t, b.Config()), mustJSON(t, want); g != w {
					t.Errorf("config %s, want %s", g, w)
				}
				m := readManifest(t, dir)
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				if len(entries) != 1+len(m.Shards)+len(m.Files) {
					t.Errorf("%d files in the bundle, the manifest names %d shards and %d files", len(entries), len(m.Shards), len(m.Files))
				}
				for _, s := range m.Shards {
					raw, err := os.ReadFile(filepath.Join(dir, s.File))
					if err != nil {
						t.Fatal(err)
					}
					sum := sha256.Sum256(raw)
					if hex.EncodeToString(sum[:]) != s.SHA256 || int64(len(raw)) != s.Size || size > 0 && s.Size > size {
						t.Errorf("shard %+v has %d bytes and the hash %x", s, len(raw), sum)
					}
				}
				if size == 20_000 && len(m.Shards) < 20 {
					t.Errorf("only %d shards: nothing spans them", len(m.Shards))
				}
			})
		}
	}
}

// TestBundleSpansRuns reads, in one go, rows that lie in several shards; they must be those of the source.
func TestBundleSpansRuns(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	b := openBundleTest(t, DirStore(packed(t, src, BundleOptions{ShardBytes: 20_000})))
	const name = "model.embed_tokens.weight"
	for _, r := range [][2]int{{0, 640}, {70, 400}, {77, 79}, {639, 640}, {5, 5}} {
		got, _ := loadRows(t, b, name, r[0], r[1])
		want, _ := loadRows(t, src, name, r[0], r[1])
		if !slices.Equal(got, want) {
			t.Errorf("rows %v differ", r)
		}
	}
	if _, err := b.Rows(t.Context(), name, 600, 641); err == nil {
		t.Error("rows past the end are read")
	}
}

// TestBundleIsDeterministic packs twice.
func TestBundleIsDeterministic(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie-bias-untied")
	opts := BundleOptions{ShardBytes: 100_000, Summary: "as it is"}
	wantSameFiles(t, packed(t, src, opts), packed(t, src, opts))
}

func wantSameFiles(t testing.TB, got, want string) {
	t.Helper()
	g, err := os.ReadDir(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.ReadDir(want)
	if err != nil {
		t.Fatal(err)
	}
	if len(g) != len(w) {
		t.Fatalf("%d files, want %d", len(g), len(w))
	}
	for i := range w {
		a, err := os.ReadFile(filepath.Join(got, g[i].Name()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(want, w[i].Name()))
		if err != nil {
			t.Fatal(err)
		}
		if g[i].Name() != w[i].Name() || !bytes.Equal(a, b) {
			t.Errorf("%s and %s differ", g[i].Name(), w[i].Name())
		}
	}
}

func TestBundleOfABundle(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	first := packed(t, src, BundleOptions{ShardBytes: 50_000})
	again := packed(t, openBundleTest(t, DirStore(first)), BundleOptions{ShardBytes: 70_000})
	wantSameWeights(t, openBundleTest(t, DirStore(again)), src)
}

func TestBundleTakesFilesAlong(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	fsys["tokenizer.model"] = &fstest.MapFile{Data: []byte("tokens")}
	fsys["LICENSE"] = &fstest.MapFile{Data: []byte("free")}
	fsys["other.txt"] = &fstest.MapFile{Data: []byte("not taken")}
	src, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	b := openBundleTest(t, DirStore(packed(t, src, BundleOptions{})))
	for name, want := range map[string]string{"tokenizer.model": "tokens", "LICENSE": "free"} {
		if got, err := b.File(t.Context(), name); string(got) != want || err != nil {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"other.txt", "tokenizer.json", ManifestFile, "../x"} {
		if got, err := b.File(t.Context(), name); got != nil || err != nil {
			t.Errorf("%s is %q, %v; want nothing", name, got, err)
		}
	}
}

func TestWriteBundleReplacesOnlyBundles(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	dir := packed(t, src, BundleOptions{ShardBytes: 50_000})
	wantWords(t, WriteBundle(t.Context(), src, dir, BundleOptions{}, nil), dir, "exists already")
	before := readManifest(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := WriteBundle(ctx, src, dir, BundleOptions{Replace: true}, func(done, total int64) {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled packing: %v", err)
	}
	if m := readManifest(t, dir); len(m.Shards) != len(before.Shards) {
		t.Error("a cancelled packing changed the bundle")
	}
	var last, all int64
	if err := WriteBundle(t.Context(), src, dir, BundleOptions{Replace: true}, func(done, total int64) { last, all = done, total }); err != nil {
		t.Fatal(err)
	}
	if last != all || all != src.Bytes() {
		t.Errorf("progress ends at %d of %d", last, all)
	}
	if m := readManifest(t, dir); len(m.Shards) != 1 {
		t.Errorf("%d shards after replacing", len(m.Shards))
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantWords(t, WriteBundle(t.Context(), src, other, BundleOptions{Replace: true}, nil), "is no bundle")
	if err := WriteBundle(t.Context(), src, t.TempDir(), BundleOptions{}, nil); err != nil {
		t.Errorf("into an empty folder: %v", err)
	}
	wantWords(t, WriteBundle(t.Context(), src, filepath.Join(other, "x"), BundleOptions{ShardBytes: 1 << 26}, nil), "at most")
}

// countingStore counts the shards that are open, and can say that they are verified.
type countingStore struct {
	Store
	open, most, opened int
	verified           bool
}

type countedBlob struct {
	Blob
	s      *countingStore
	closed bool
}

func (s *countingStore) Shard(ctx context.Context, file string, size int64) (Blob, error) {
	b, err := s.Store.Shard(ctx, file, size)
	if err != nil {
		return nil, err
	}
	s.open++
	s.opened++
	s.most = max(s.most, s.open)
	return &countedBlob{Blob: b, s: s}, nil
}

func (b *countedBlob) Verified() bool { return b.s.verified }

func (b *countedBlob) ReadAt(p []byte, off int64) (int, error) {
	if b.closed {
		return 0, errors.New("read of a closed shard")
	}
	return b.Blob.ReadAt(p, off)
}

func (b *countedBlob) Close() error {
	if b.closed {
		return errors.New("closed twice")
	}
	b.closed = true
	b.s.open--
	return closeBlob(b.Blob)
}

// TestBundleOpensShardsOnce loads a model in the manifest's order: every shard is opened once, two at most at a time.
func TestBundleOpensShardsOnce(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	dir := packed(t, src, BundleOptions{ShardBytes: 50_000})
	store := &countingStore{Store: DirStore(dir)}
	b := openBundleTest(t, store)
	load := func() {
		for _, s := range Tensors(b.Config()) {
			if s.Vector {
				if _, err := b.Vector(t.Context(), s.Name); err != nil {
					t.Fatal(err)
				}
				continue
			}
			info, err := b.Info(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			for lo, hi := range Pieces(b, s.Name, info, 1<<20) {
				r, err := b.Rows(t.Context(), s.Name, lo, hi)
				if err != nil {
					t.Fatal(err)
				}
				if r.Data.Blob == nil {
					t.Fatalf("%s rows %d to %d were copied", s.Name, lo, hi)
				}
				if _, err := r.Data.Load(nil); err != nil { // the segment is still valid
					t.Fatal(err)
				}
			}
		}
	}
	load()
	shards := len(readManifest(t, dir).Shards)
	if store.opened != shards || store.most > 2 {
		t.Errorf("%d openings of %d shards, %d at a time", store.opened, shards, store.most)
	}
	load()
	for _, name := range []string{"model.norm.weight", "model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"} {
		if _, err := b.Rows(t.Context(), name, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil || store.open != 0 {
		t.Errorf("after Close %d shards are open, %v", store.open, err)
	}
}

// waitingStore opens the first shard only when the second has been asked for.
type waitingStore struct {
	*countingStore
	mu     sync.Mutex
	asked  map[string]bool
	second chan struct{}
	names  []string // of the shards
}

func (s *waitingStore) Concurrent() bool { return true }

func (s *waitingStore) Shard(ctx context.Context, file string, size int64) (Blob, error) {
	s.mu.Lock()
	if file == s.names[1] && !s.asked[file] {
		close(s.second)
	}
	s.asked[file] = true
	s.mu.Unlock()
	if file == s.names[0] {
		select {
		case <-s.second:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Shard(ctx, file, size)
}

// TestBundleChecksShardsAhead: the next shards are opened and checked while one is, those that nobody asks for are closed, and what
// is wrong with one is said when it is asked for.
func TestBundleChecksShardsAhead(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	dir := packed(t, src, BundleOptions{ShardBytes: 50_000})
	m := readManifest(t, dir)
	var names []string
	for _, s := range m.Shards {
		names = append(names, s.File)
	}
	open := func() (*bundle, *waitingStore) {
		s := &waitingStore{countingStore: &countingStore{Store: DirStore(dir)}, asked: map[string]bool{}, second: make(chan struct{}), names: names}
		b, err := OpenBundle(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return b.(*bundle), s
	}
	b, s := open()
	first := m.Tensors[0].Name
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := b.Rows(ctx, first, 0, 1); err != nil {
		t.Fatal(err) // the time is over when the second shard waits for the first
	}
	if len(b.ahead) != checkedAhead {
		t.Errorf("%d shards are checked ahead, want %d", len(b.ahead), checkedAhead)
	}
	if err := b.Close(); err != nil || len(s.asked) != 1+checkedAhead {
		t.Errorf("%d shards were asked for, %v", len(s.asked), err)
	}
	broken := filepath.Join(dir, names[2])
	raw, err := os.ReadFile(broken)
	if err != nil {
		t.Fatal(err)
	}
	raw[0] ^= 1
	if err := os.WriteFile(broken, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b, _ = open()
	defer b.Close()
	if _, err := b.Rows(t.Context(), first, 0, 1); err != nil {
		t.Errorf("a shard before the broken one: %v", err)
	}
	var fault *ShardError
	for _, tensor := range m.Tensors {
		if _, err := b.Rows(t.Context(), tensor.Name, 0, tensor.Rows); err != nil && !errors.As(err, &fault) {
			t.Fatal(err)
		}
	}
	if fault == nil || fault.File != names[2] {
		t.Errorf("%v, want an error about %s", fault, names[2])
	}
}

// TestBrokenShard changes one byte of a shard: the error names the file and both hashes, unless the store has checked.
func TestBrokenShard(t *testing.T) {
	t.Parallel()
	src := openDirTest(t, goldens+"ernie")
	dir := packed(t, src, BundleOptions{ShardBytes: 300_000})
	m := readManifest(t, dir)
	file := filepath.Join(dir, m.Shards[1].File)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	readAll := func(b Source) error {
		for _, s := range Tensors(b.Config()) {
			if _, err := b.Rows(t.Context(), s.Name, 0, s.Rows); err != nil {
				return err
			}
		}
		return nil
	}
	write := func(p []byte) {
		if err := os.WriteFile(file, p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw[1000] ^= 1
	write(raw)
	sum := sha256.Sum256(raw)
	err = readAll(openBundleTest(t, DirStore(dir)))
	wantWords(t, err, m.Shards[1].File, "sha256 is "+hex.EncodeToString(sum[:]), "states "+m.Shards[1].SHA256)
	var se *ShardError
	if !errors.As(err, &se) || se.File != m.Shards[1].File {
		t.Errorf("error %v is no ShardError of that file", err)
	}
	if err := readAll(openBundleTest(t, &countingStore{Store: DirStore(dir), verified: true})); err != nil {
		t.Errorf("a store that has checked is trusted: %v", err)
	}
	write(raw[:500])
	wantWords(t, readAll(openBundleTest(t, DirStore(dir))), m.Shards[1].File, "size is 500", fmt.Sprint(m.Shards[1].Size))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	wantWords(t, readAll(openBundleTest(t, DirStore(dir))), m.Shards[1].File, "o such file")
}

// TestHostileManifest changes one value of a right manifest at a time.
func TestHostileManifest(t *testing.T) {
	t.Parallel()
	fsys, _ := smallModel(t)
	fsys["tokenizer.model"] = &fstest.MapFile{Data: []byte("tokens")}
	src, err := OpenFS(fsys, "small")
	if err != nil {
		t.Fatal(err)
	}
	dir := packed(t, src, BundleOptions{})
	right, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	// path walks into the JSON: "tensors.0.runs.0.data.offset".
	set := func(path string, value any) []byte {
		var m any
		mustUnmarshal(t, right, &m)
		at := m
		keys := strings.Split(path, ".")
		for i, k := range keys {
			last := i == len(keys)-1
			switch v := at.(type) {
			case map[string]any:
				if last {
					v[k] = value
				}
				at = v[k]
			case []any:
				n := int(k[0] - '0')
				if last {
					v[n] = value
				}
				at = v[n]
			default:
				t.Fatalf("%s: nothing at %s", path, k)
			}
		}
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	big := json.Number("9223372036854775808")
	for _, c := range []struct {
		name  string
		raw   []byte
		wants string
	}{
		{"empty", nil, "broken JSON"},
		{"cut", right[:len(right)/2], "broken JSON"},
		{"deep", []byte(strings.Repeat(`{"a":`, 100000)), "broken JSON"},
		{"large", make([]byte, maxManifestBytes+1), "larger than"},
		{"format", set("format", "zip"), `format is "zip"`},
		{"version", set("version", 2), "version is 2; this program reads versions 0 to 1"},
		{"negative version", set("version", -1), "version is -1"},
		{"no version", set("version", nil), "version is missing"},
		{"config", set("config.head_dim", 17), "config: head_dim is 17"},
		{"architecture", set("config.architecture", "mamba"), `architecture "mamba" is not supported`},
		{"family", set("config.architecture", "qwen3"), "architecture qwen3 with norms of q and k: false, want true"},
		{"eos", set("config.eos", []int{-1}), "eos_token_id -1"},
		{"temperature", set("config.sampling.temperature", -3), "temperature is -3"},
		{"size of 2^63", set("shards.0.size", big), "does not fit"},
		{"size over the limit", set("shards.0.size", maxShardBytes+1), "shard 0: size is 33554433"},
		{"negative size", set("shards.0.size", -1), "shard 0: size is -1"},
		{"path", set("shards.0.file", "../../etc/passwd"), `shard 0: file is "../../etc/passwd"`},
		{"hash", set("shards.0.sha256", "abc"), "sha256 is"},
		{"capitals", set("shards.0.sha256", strings.Repeat("A", 64)), "lower-case"},
		{"file name", set("files.0.name", "../tokenizer.model"), "not a file's name"},
		{"file twice", set("files", []any{fileEntry("a"), fileEntry("a")}), `file "a" stands there twice`},
		{"file size", set("files.0.size", 1<<40), "tokenizer.model"},
		{"tensor twice", set("tensors.1.name", "model.embed_tokens.weight"), "stands there twice"},
		{"unknown format", set("tensors.0.format", "q9g32"), `unknown weight format "q9g32"`},
		{"group", set("tensors.0.format", "q4g128"), "not whole groups"},
		{"rows", set("tensors.0.rows", 39), "run 0 has 40 rows; 39 of 39 are left"},
		{"more rows", set("tensors.0.rows", 41), "the runs have 40 rows, the tensor has 41"},
		{"2^62 rows", set("tensors.0.rows", 1<<62), "shape"},
		{"negative k", set("tensors.0.k", -8), "shape"},
		{"k", set("tensors.0.k", 40), "size is 2560, want 3200"},
		{"run rows", set("tensors.0.runs.0.rows", 1<<40), "rows"},
		{"no rows", set("tensors.0.runs.0.rows", 0), "run 0 has 0 rows"},
		{"no runs", set("tensors.0.runs", []any{}), "the runs have 0 rows"},
		{"shard", set("tensors.0.runs.0.data.shard", 7), "shard 7 of 1"},
		{"negative shard", set("tensors.0.runs.0.data.shard", -1), "shard -1 of 1"},
		{"offset", set("tensors.0.runs.0.data.offset", 1<<62), "bytes at 4611686018427387904 of shard 0"},
		{"negative offset", set("tensors.0.runs.0.data.offset", -16), "bytes at -16"},
		{"odd offset", set("tensors.0.runs.0.data.offset", 2), "no multiple of 4"},
		{"size", set("tensors.0.runs.0.data.size", 2564), "size is 2564, want 2560"},
		{"overlap", set("tensors.1.runs.0.data.offset", 0), "overlap"},
		{"scales", set("tensors.0.runs.0.scales", map[string]any{"shard": 0, "offset": 0, "size": 4}), "takes 0 bytes of scales"},
		{"no scales", set("tensors.0.format", "q8g8"), "bytes of scales"},
		{"size of an order", set("tensors.0.order", map[string]any{"shard": 0, "offset": 0, "size": 132}), "order: size is 132, want 128"},
		{"order among the rows", set("tensors.0.order", map[string]any{"shard": 0, "offset": 0, "size": 128}), "overlap"},
		{"order of 2^63", set("tensors.0.order", map[string]any{"shard": 0, "offset": 0, "size": big}), "does not fit"},
		{"order elsewhere", set("tensors.0.order", map[string]any{"shard": 1, "offset": 0, "size": 128}), "order: shard 1 of 1"},
		{"tensor missing", set("tensors.0.name", "other"), "model.embed_tokens.weight"},
		{"no shards", set("shards", []any{}), "shard 0 of 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenBundle(t.Context(), FSStore(fstest.MapFS{ManifestFile: {Data: c.raw}}))
			wantWords(t, err, ManifestFile, c.wants)
		})
	}
	_, err = OpenBundle(t.Context(), DirStore(t.TempDir()))
	wantWords(t, err, ManifestFile)
}

func fileEntry(name string) map[string]any {
	sum := strings.Repeat("0", 64)
	return map[string]any{"name": name, "file": sum + ".bin", "size": 1, "sha256": sum}
}

func FuzzManifest(f *testing.F) {
	fsys, _ := smallModel(f)
	src, err := OpenFS(fsys, "small")
	if err != nil {
		f.Fatal(err)
	}
	dir := packed(f, src, BundleOptions{ShardBytes: 4096})
	raw, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"format":"pagelight-bundle","version":0}`))
	dir = packed(f, orderedSource{src}, BundleOptions{})
	if raw, err = os.ReadFile(filepath.Join(dir, ManifestFile)); err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	store := DirStore(dir)
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := OpenBundle(t.Context(), manifestStore{store, raw})
		if err != nil {
			return
		}
		defer drop(b)
		for _, s := range Tensors(b.Config()) {
			if int64(s.Rows)*int64(s.K) > 1<<22 {
				continue
			}
			if order, err := b.Order(t.Context(), s.Name); err == nil && order != nil && len(order) != s.K {
				t.Fatalf("%s: order of %d columns for %d", s.Name, len(order), s.K)
			}
			r, err := b.Rows(t.Context(), s.Name, 0, s.Rows)
			if err != nil {
				continue
			}
			if _, err := r.Data.Load(nil); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Scales.Load(nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// manifestStore is a store with another manifest.
type manifestStore struct {
	Store
	raw []byte
}

func (s manifestStore) Manifest(context.Context) ([]byte, error) { return s.raw, nil }
