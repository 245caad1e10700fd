package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

// hubOf is a Hub for a server, with a cache of its own, that never waits.
func hubOf(t testing.TB, f *hubtest.Server) *Hub {
	t.Helper()
	return &Hub{Cache: filepath.Join(t.TempDir(), "hub"), Endpoint: f.URL + f.Prefix, UserAgent: "test", Wait: func(time.Duration) {}}
}

func mustPull(t testing.TB, h *Hub, model string) *Pulled {
	t.Helper()
	p, err := h.Pull(t.Context(), mustName(t, model), PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustName(t testing.TB, model string) Name {
	t.Helper()
	n, err := ParseName(model)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkSnapshot compares the files of a folder with what they should hold.
func checkSnapshot(t testing.TB, dir string, want map[string][]byte) {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			found = append(found, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(found, names) {
		t.Errorf("files %q, want %q", found, names)
	}
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, len(got), len(content))
		}
	}
}

// only is some of the files.
func only(files map[string][]byte, names ...string) map[string][]byte {
	out := map[string][]byte{}
	for _, n := range names {
		out[n] = files[n]
	}
	return out
}

var wanted = []string{"README.md", "config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json"}

func TestPullTakesWhatTheEngineNeedsInTheLayoutOfTheCache(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	p := mustPull(t, h, "hf:org/name")
	repo := filepath.Join(h.Cache, "models--org--name")
	if p.Path != filepath.Join(repo, "snapshots", hubtest.Commit) || p.Format != FormatSafetensors || p.Commit != hubtest.Commit {
		t.Errorf("%+v", p)
	}
	checkSnapshot(t, p.Path, only(f.Files, wanted...))
	if ref, err := os.ReadFile(filepath.Join(repo, "refs", "main")); err != nil || string(ref) != hubtest.Commit {
		t.Errorf("refs/main: %q, %v", ref, err)
	}
	for name, etag := range map[string]string{
		"model.safetensors": hubtest.SHA256(f.Files["model.safetensors"]), "config.json": hubtest.GitHash(f.Files["config.json"]),
	} {
		if to, err := os.Readlink(filepath.Join(p.Path, name)); err != nil || to != filepath.Join("..", "..", "blobs", etag) {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(repo, "blobs", "*"+incomplete)); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
	asked := f.Count("")
	again := mustPull(t, h, "hf:org/name")
	if len(again.Fetched) != 0 || f.Count("") != asked+1 {
		t.Errorf("a second pull fetched %v with %d requests", again.Fetched, f.Count("")-asked)
	}
	m, err := h.Find(mustName(t, "hf:org/name"))
	if err != nil || m != p.Model {
		t.Errorf("Find: %+v, %v; pulled %+v", m, err, p.Model)
	}
	if m, err := h.Find(mustName(t, "hf:org/name@"+hubtest.Commit)); err != nil || m != p.Model {
		t.Errorf("Find by commit: %+v, %v", m, err)
	}
}

func TestPullOfShardsFollowsTheIndex(t *testing.T) {
	t.Parallel()
	files := hubtest.Checkpoint()
	delete(files, "model.safetensors")
	files["a/part-1.safetensors"], files["part-2.safetensors"], files["unused.safetensors"] = hubtest.Noise(100, 5), hubtest.Noise(200, 6), hubtest.Noise(300, 7)
	files["model.safetensors.index.json"] = []byte(`{"weight_map":{"x":"a/part-1.safetensors","y":"part-2.safetensors","z":"part-2.safetensors"}}`)
	f := hubtest.New(t, files)
	h := hubOf(t, f)
	p := mustPull(t, h, "hf:org/name")
	names := append(slices.DeleteFunc(slices.Clone(wanted), func(n string) bool { return n == "model.safetensors" }),
		"a/part-1.safetensors", "part-2.safetensors", "model.safetensors.index.json")
	checkSnapshot(t, p.Path, only(files, names...))
	if len(p.Fetched) != len(names) {
		t.Errorf("fetched %d files, want %d", len(p.Fetched), len(names))
	}
	if _, err := h.Find(mustName(t, "hf:org/name")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(p.Path, "part-2.safetensors")); err != nil {
		t.Fatal(err)
	}
	var missing *NotCachedError
	if _, err := h.Find(mustName(t, "hf:org/name")); !errors.As(err, &missing) || !strings.Contains(err.Error(), "part-2.safetensors is missing") ||
		!strings.Contains(err.Error(), "pagelight pull hf:org/name") {
		t.Errorf("a missing shard: %v", err)
	}
}

// TestInterruptedPullGoesOn: bytes are counted at the storage host.
func TestInterruptedPullGoesOn(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	size := int64(len(f.Files["model.safetensors"]))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := &recorder{advance: func(file File, have int64) {
		if file.Path == "model.safetensors" && have > size/2 {
			stop()
		}
	}}
	if _, err := h.Pull(ctx, mustName(t, "hf:org/name"), PullOptions{Watcher: w}); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := h.Find(mustName(t, "hf:org/name")); err == nil {
		t.Error("half a model was found")
	}
	part := h.blob(hubtest.Repo, hubtest.SHA256(f.Files["model.safetensors"])) + incomplete
	st, err := os.Stat(part)
	if err != nil || st.Size() <= size/2 {
		t.Fatalf("left over: %v, %v", st, err)
	}
	f.Forget()
	p := mustPull(t, h, "hf:org/name")
	checkSnapshot(t, p.Path, only(f.Files, wanted...))
	if got := f.BytesOf("model.safetensors"); got != size-st.Size() {
		t.Errorf("the second pull was sent %d bytes, want %d", got, size-st.Size())
	}
	if len(p.Fetched) != 1 {
		t.Errorf("fetched again: %v", p.Fetched)
	}
}

// TestDroppedConnectionsAreTakenUp: the storage host ends each connection after a third of the file.
func TestDroppedConnectionsAreTakenUp(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	content := f.Files["model.safetensors"]
	f.Store = func(w http.ResponseWriter, r *http.Request) bool {
		at := int64(0)
		if v := r.Header.Get("Range"); v != "" {
			at, _ = strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(v, "bytes="), "-"), 10, 64)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(content)-1, len(content)))
			w.WriteHeader(http.StatusPartialContent)
		}
		end := min(at+int64(len(content))/3, int64(len(content)))
		_, _ = w.Write(content[at:end])
		if end < int64(len(content)) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		return true
	}
	w := &recorder{}
	h := hubOf(t, f)
	p, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{Watcher: w})
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, p.Path, only(f.Files, wanted...))
	if n := f.Count("/storage/"); n < 3 || n > 5 {
		t.Errorf("%d connections to the storage host", n)
	}
	if !strings.Contains(w.notes(), "trying again in 1s") {
		t.Errorf("notes %q", w.notes())
	}
}

func TestServerThatIgnoresRangesRestartsTheFile(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	f.NoRange = true
	h := hubOf(t, f)
	content := f.Files["model.safetensors"]
	part := h.blob(hubtest.Repo, hubtest.SHA256(content)) + incomplete
	writeFile(t, part, content[:1<<20])
	w := &recorder{}
	p, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{Watcher: w})
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, p.Path, only(f.Files, wanted...))
	if !strings.Contains(w.notes(), "cannot resume") || f.BytesOf("model.safetensors") != int64(len(content)) {
		t.Errorf("notes %q, %d bytes", w.notes(), f.BytesOf("model.safetensors"))
	}
}

// TestDamagedBeginningIsFetchedAnew: what an earlier run left may be wrong, as on file systems without locks.
func TestDamagedBeginningIsFetchedAnew(t *testing.T) {
	t.Parallel()
	for name, left := range map[string][]byte{
		"wrong": bytes.Repeat([]byte{7}, 1<<20), "as long as the file": bytes.Repeat([]byte{7}, 3<<20), "too long": bytes.Repeat([]byte{7}, 4<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := hubtest.New(t, hubtest.Checkpoint())
			h := hubOf(t, f)
			writeFile(t, h.blob(hubtest.Repo, hubtest.SHA256(f.Files["model.safetensors"]))+incomplete, left)
			checkSnapshot(t, mustPull(t, h, "hf:org/name").Path, only(f.Files, wanted...))
		})
	}
}

func TestWrongHashesAreRefused(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"sha256 of LFS": "model.safetensors", "sha1 of git": "config.json"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := hubtest.New(t, hubtest.Checkpoint())
			h := hubOf(t, f)
			bad := bytes.Clone(f.Files[file])
			bad[len(bad)/2] ^= 1
			lie := func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/"+file) {
					return false
				}
				_, _ = w.Write(bad)
				return true
			}
			if f.LFS[file] {
				f.Store = lie
			} else {
				f.Resolve = lie
			}
			_, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{})
			var wrong *HashError
			if !errors.As(err, &wrong) || wrong.File.Path != file {
				t.Fatalf("got %v", err)
			}
			if _, err := os.Stat(h.pointer(hubtest.Repo, hubtest.Commit, file)); err == nil {
				t.Error("the damaged file is in the snapshot")
			}
			if st, err := os.Stat(h.blob(hubtest.Repo, wrong.File.Etag) + incomplete); err != nil || st.Size() != 0 {
				t.Errorf("of the damaged file remains %v, %v", st, err)
			}
			if _, err := h.Find(mustName(t, "hf:org/name")); err == nil {
				t.Error("Find gave a damaged model")
			}
		})
	}
}

func TestVerifyReplacesDamagedFiles(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	mustPull(t, h, "hf:org/name")
	blob := h.blob(hubtest.Repo, hubtest.SHA256(f.Files["model.safetensors"]))
	bad := bytes.Clone(f.Files["model.safetensors"])
	bad[5] ^= 1
	writeFile(t, blob, bad)
	p, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Fetched) != 1 || p.Fetched[0].Path != "model.safetensors" {
		t.Errorf("fetched %v", p.Fetched)
	}
	checkSnapshot(t, p.Path, only(f.Files, wanted...))
}

// TestConcurrentPulls share one cache: nothing is damaged, and no file is downloaded twice.
func TestConcurrentPulls(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			other := &Hub{Cache: h.Cache, Endpoint: h.Endpoint, UserAgent: "test", Wait: h.Wait} // as another process
			if _, err := other.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	checkSnapshot(t, h.snapshot(hubtest.Repo, hubtest.Commit), only(f.Files, wanted...))
	for _, name := range wanted {
		if got, want := f.BytesOf(name), int64(len(f.Files[name])); got != want {
			t.Errorf("%s: %d bytes were sent, want %d", name, got, want)
		}
	}
}

// TestWithoutSymlinks: files lie in the snapshots themselves.
func TestWithoutSymlinks(t *testing.T) {
	t.Parallel()
	files := hubtest.Checkpoint()
	files["LICENSE"] = files["README.md"] // one blob for two names
	f := hubtest.New(t, files)
	h := hubOf(t, f)
	h.NoSymlinks = true
	p := mustPull(t, h, "hf:org/name")
	checkSnapshot(t, p.Path, only(files, append([]string{"LICENSE"}, wanted...)...))
	if st, err := os.Lstat(filepath.Join(p.Path, "model.safetensors")); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v, %v", st, err)
	}
	if again := mustPull(t, h, "hf:org/name"); len(again.Fetched) != 0 {
		t.Errorf("fetched again: %v", again.Fetched)
	}
}

func TestNewCommitSharesBlobs(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	old := mustPull(t, h, "hf:org/name").Path
	f.At = strings.Repeat("ab", 20)
	f.Files["config.json"] = []byte(`{"model_type":"llama"}`)
	before := f.BytesOf("model.safetensors")
	p := mustPull(t, h, "hf:org/name")
	if p.Path == old || f.BytesOf("model.safetensors") != before {
		t.Errorf("%s, then %s; weights were sent again: %v", old, p.Path, f.BytesOf("model.safetensors") != before)
	}
	if m, err := h.Find(mustName(t, "hf:org/name")); err != nil || m.Path != p.Path {
		t.Errorf("main is %+v, %v", m, err)
	}
	if m, err := h.Find(mustName(t, "hf:org/name@"+hubtest.Commit)); err != nil || m.Path != old {
		t.Errorf("the old commit is %+v, %v", m, err)
	}
}

func TestRevisionsWithSlashes(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	mustPull(t, h, "hf:org/name@refs/pr/1")
	if f.Count("/api/models/org/name/revision/refs/pr/1") != 1 {
		t.Error("the slashes of the revision were not escaped")
	}
	if _, err := h.Find(mustName(t, "hf:org/name@refs/pr/1")); err != nil {
		t.Error(err)
	}
	var missing *NotCachedError
	if _, err := h.Find(mustName(t, "hf:org/name")); !errors.As(err, &missing) {
		t.Errorf("main: %v", err)
	}
}

// TestStalledConnection: a host that falls silent is asked again.
func TestStalledConnection(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	content := f.Files["model.safetensors"]
	var once sync.Once
	f.Store = func(w http.ResponseWriter, r *http.Request) (done bool) {
		once.Do(func() {
			done = true
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			_, _ = w.Write(content[:1000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		return done
	}
	h := hubOf(t, f)
	h.Stall = 200 * time.Millisecond
	w := &recorder{}
	if _, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{Watcher: w}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.notes(), errStalled.Error()) {
		t.Errorf("notes %q", w.notes())
	}
}

func TestFullDiskIsToldBeforeTheDownload(t *testing.T) {
	t.Parallel()
	if _, ok := freeSpace(t.TempDir()); !ok {
		t.Skip("SKIPPED: this system does not tell how much space is free")
	}
	f := hubtest.New(t, hubtest.Checkpoint())
	f.API = func(w http.ResponseWriter, _ *http.Request) bool {
		fmt.Fprintf(w, `{"sha":%q,"siblings":[{"rfilename":"config.json","size":1,"blobId":%q},
			{"rfilename":"model.safetensors","size":1,"lfs":{"sha256":%q,"size":4611686018427387904}}]}`,
			hubtest.Commit, strings.Repeat("a", 40), strings.Repeat("b", 64))
		return true
	}
	f.Resolve = func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("x")); return true }
	f.Files["config.json"] = []byte("x")
	h := hubOf(t, f)
	_, err := h.Pull(t.Context(), mustName(t, "hf:org/name:model.safetensors"), PullOptions{})
	if err == nil || !strings.Contains(err.Error(), "model.safetensors needs 4.295e+09 GiB more, and "+h.Cache+" has ") {
		t.Errorf("got %v", err)
	}
}

func TestFullDiskIsToldPlainly(t *testing.T) {
	t.Parallel()
	d := &download{h: &Hub{Cache: "/cache"}, f: File{Path: "model.safetensors", Size: 3 << 30}}
	err := d.diskError(&fs.PathError{Op: "write", Path: "/cache/x", Err: syscall.ENOSPC})
	if got, want := err.Error(), "no space is left on the disk of /cache; model.safetensors needs 3 GiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// recorder is a Watcher that keeps notes.
type recorder struct {
	advance func(File, int64)
	mu      sync.Mutex
	lines   []string
	planned int64
	ended   int
}

func (r *recorder) Plan(files []File) {
	for _, f := range files {
		r.planned += f.Size
	}
}
func (r *recorder) Begin(f File, have int64) { r.Advance(f, have) }
func (r *recorder) Advance(f File, have int64) {
	if r.advance != nil {
		r.advance(f, have)
	}
}

func (r *recorder) End(File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
}

func (r *recorder) Note(f File, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, f.Path+": "+text)
}

func (r *recorder) notes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}
