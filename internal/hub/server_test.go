package hub

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testRepo   = "org/name"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
)

// fakeHub speaks the hub's protocol: a list of files by the API, small files from the hub itself, large ones (LFS) through a
// redirect to a storage host. Its fields change what it does; they are set before the first request.
type fakeHub struct {
	*httptest.Server
	storage *httptest.Server // another origin

	commit string
	files  map[string][]byte
	lfs    map[string]bool // files that lie at the storage host
	token  string          // that requests must carry; empty: none

	// api, resolve and store, when set, may answer in place of the server; true when they did.
	api, resolve, store func(w http.ResponseWriter, r *http.Request) bool
	noSizes             bool // the list has paths only, as some mirrors'
	noRange             bool // the storage host ignores Range
	prefix              string

	mu       sync.Mutex
	requests []string // method and path
	leaked   []string // requests at the storage host that carried the token
	sent     map[string]int64
}

func newFakeHub(t testing.TB, files map[string][]byte) *fakeHub {
	t.Helper()
	f := &fakeHub{commit: testCommit, files: files, lfs: map[string]bool{}, sent: map[string]int64{}}
	for name := range files {
		if strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".bin") {
			f.lfs[name] = true
		}
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	f.storage = httptest.NewServer(http.HandlerFunc(f.serveStorage))
	t.Cleanup(f.Close)
	t.Cleanup(f.storage.Close)
	return f
}

// hub is a Hub for the server, with a cache of its own, that never waits.
func (f *fakeHub) hub(t testing.TB) *Hub {
	t.Helper()
	return &Hub{Cache: filepath.Join(t.TempDir(), "hub"), Endpoint: f.URL + f.prefix, UserAgent: "test", Wait: func(time.Duration) {}}
}

func (f *fakeHub) serve(w http.ResponseWriter, r *http.Request) {
	f.note(r)
	path := strings.TrimPrefix(r.URL.Path, f.prefix)
	switch {
	case f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token:
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.Header().Set("X-Error-Message", "Access to model org/name is restricted.")
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasPrefix(path, "/api/models/"):
		if f.api == nil || !f.api(w, r) {
			f.list(w, r)
		}
	default:
		if f.resolve == nil || !f.resolve(w, r) {
			f.file(w, r)
		}
	}
}

func (f *fakeHub) list(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), f.prefix+"/api/models/"+testRepo)
	rev, hasRev := strings.CutPrefix(rest, "/revision/")
	rev, _ = url.PathUnescape(rev)
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "RepoNotFound")
		return
	case hasRev && rev != "main" && rev != f.commit && rev != "refs/pr/1":
		fail(w, http.StatusNotFound, "RevisionNotFound")
		return
	}
	type lfs struct {
		SHA256      string `json:"sha256"`
		Size        int    `json:"size"`
		PointerSize int    `json:"pointerSize"`
	}
	type sibling struct {
		Path   string `json:"rfilename"`
		Size   *int   `json:"size,omitempty"`
		BlobID string `json:"blobId,omitempty"`
		LFS    *lfs   `json:"lfs,omitempty"`
	}
	var siblings []sibling
	for name, content := range f.files {
		s := sibling{Path: name}
		if size := len(content); !f.noSizes && r.URL.Query().Get("blobs") == "true" {
			s.Size, s.BlobID = &size, gitHash(content)
			if f.lfs[name] {
				s.LFS = &lfs{sha256Of(content), size, 130}
			}
		}
		siblings = append(siblings, s)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"id": testRepo, "sha": f.commit, "gated": false, "siblings": siblings})
}

func (f *fakeHub) file(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, f.prefix+"/"+testRepo+"/resolve/"+f.commit+"/")
	content, there := f.files[name]
	if !ok || !there {
		fail(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	w.Header().Set("X-Repo-Commit", f.commit)
	if !f.lfs[name] {
		w.Header().Set("Etag", strconv.Quote(gitHash(content)))
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		f.content(w, r, name, content)
		return
	}
	w.Header().Set("X-Linked-Etag", strconv.Quote(sha256Of(content)))
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
	w.Header().Set("Etag", `"of-the-pointer"`)
	http.Redirect(w, r, f.storage.URL+"/storage/"+name+"?Signature=secret", http.StatusFound)
}

func (f *fakeHub) serveStorage(w http.ResponseWriter, r *http.Request) {
	f.note(r)
	if r.Header.Get("Authorization") != "" {
		f.mu.Lock()
		f.leaked = append(f.leaked, r.URL.Path)
		f.mu.Unlock()
	}
	if f.store != nil && f.store(w, r) {
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/storage/")
	content, ok := f.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Etag", `"storage-has-its-own"`)
	w.Header().Set("Content-Type", "binary/octet-stream")
	if f.noRange {
		r.Header.Del("Range")
	}
	f.content(w, r, name, content)
}

// content serves a file and counts its bytes.
func (f *fakeHub) content(w http.ResponseWriter, r *http.Request, name string, content []byte) {
	http.ServeContent(&countingWriter{w, f, name}, r, "", time.Time{}, bytes.NewReader(content))
}

type countingWriter struct {
	http.ResponseWriter
	f    *fakeHub
	name string
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.f.mu.Lock()
	c.f.sent[c.name] += int64(len(p))
	c.f.mu.Unlock()
	return c.ResponseWriter.Write(p)
}

// bytesOf is how many bytes of a file were sent.
func (f *fakeHub) bytesOf(name string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[name]
}

func (f *fakeHub) note(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
}

// count is the number of requests whose text contains a word.
func (f *fakeHub) count(word string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if strings.Contains(r, word) {
			n++
		}
	}
	return n
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":"%s"}`, code)
}

func sha256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func gitHash(b []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(sum[:])
}

// noise is n bytes that repeat nowhere soon.
func noise(n int, seed uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed >> 24)
	}
	return b
}

// checkpoint is a repository with a model in one file, and copies of it that nobody wants here.
func checkpoint() map[string][]byte {
	return map[string][]byte{
		"config.json": []byte(`{"model_type":"ernie4_5"}`), "tokenizer.model": noise(5000, 1), "tokenizer_config.json": []byte("{}"),
		"model.safetensors": noise(3<<20, 2), "pytorch_model.bin": noise(3<<20, 3), "onnx/model.onnx": noise(100, 4),
		"README.md": []byte("---\nlicense: apache-2.0\n---\n# A model"), ".gitattributes": []byte("*.bin filter=lfs"),
	}
}
