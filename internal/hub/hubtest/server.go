// Package hubtest is a server that speaks the protocol of the Hugging Face hub, for tests.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The one repository of a server, and its commit.
const (
	Repo   = "org/name"
	Commit = "0123456789abcdef0123456789abcdef01234567"
)

// Server speaks the hub's protocol: a list of files by the API, small files from the hub itself, large ones (LFS) through a
// redirect to a storage host. Its fields change what it does; they are set before the first request.
type Server struct {
	*httptest.Server
	Storage *httptest.Server // another origin

	At     string // the commit
	Files  map[string][]byte
	LFS    map[string]bool // files that lie at the storage host
	Token  string          // that requests must carry; empty: none
	Prefix string          // path in front of all others, as some mirrors have

	// API, Resolve and Store, when set, may answer in place of the server; true when they did.
	API, Resolve, Store func(w http.ResponseWriter, r *http.Request) bool
	NoSizes             bool // the list has paths only, as some mirrors'
	NoRange             bool // the storage host ignores Range

	active   sync.WaitGroup // requests under way
	mu       sync.Mutex
	requests []string // method and path
	leaked   []string // requests at the storage host that carried the token
	sent     map[string]int64
}

// New starts a server with the given files in its repository.
func New(t testing.TB, files map[string][]byte) *Server {
	t.Helper()
	f := &Server{At: Commit, Files: files, LFS: map[string]bool{}, sent: map[string]int64{}}
	for name := range files {
		if strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".gguf") || strings.HasSuffix(name, ".bin") {
			f.LFS[name] = true
		}
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	f.Storage = httptest.NewServer(http.HandlerFunc(f.serveStorage))
	t.Cleanup(f.Close)
	t.Cleanup(f.Storage.Close)
	return f
}

func (f *Server) serve(w http.ResponseWriter, r *http.Request) {
	f.active.Add(1)
	defer f.active.Done()
	f.note(r)
	path := strings.TrimPrefix(r.URL.Path, f.Prefix)
	switch {
	case f.Token != "" && r.Header.Get("Authorization") != "Bearer "+f.Token:
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.Header().Set("X-Error-Message", "Access to model org/name is restricted.")
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasPrefix(path, "/api/models/"):
		if f.API == nil || !f.API(w, r) {
			f.list(w, r)
		}
	default:
		if f.Resolve == nil || !f.Resolve(w, r) {
			f.file(w, r)
		}
	}
}

func (f *Server) list(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), f.Prefix+"/api/models/"+Repo)
	rev, hasRev := strings.CutPrefix(rest, "/revision/")
	rev, _ = url.PathUnescape(rev)
	switch {
	case !ok:
		Fail(w, http.StatusNotFound, "RepoNotFound")
		return
	case hasRev && rev != "main" && rev != f.At && rev != "refs/pr/1":
		Fail(w, http.StatusNotFound, "RevisionNotFound")
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
	for name, content := range f.Files {
		s := sibling{Path: name}
		if size := len(content); !f.NoSizes && r.URL.Query().Get("blobs") == "true" {
			s.Size, s.BlobID = &size, GitHash(content)
			if f.LFS[name] {
				s.LFS = &lfs{SHA256(content), size, 130}
			}
		}
		siblings = append(siblings, s)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"id": Repo, "sha": f.At, "gated": false, "siblings": siblings})
}

func (f *Server) file(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, f.Prefix+"/"+Repo+"/resolve/")
	rev, name, _ := strings.Cut(rest, "/")
	ok = ok && (rev == f.At || rev == "main")
	content, there := f.Files[name]
	if !ok || !there {
		Fail(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	w.Header().Set("X-Repo-Commit", f.At)
	if !f.LFS[name] {
		w.Header().Set("Etag", strconv.Quote(GitHash(content)))
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		f.content(w, r, name, content)
		return
	}
	w.Header().Set("X-Linked-Etag", strconv.Quote(SHA256(content)))
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
	w.Header().Set("Etag", `"of-the-pointer"`)
	http.Redirect(w, r, f.Storage.URL+"/storage/"+name+"?Signature=secret", http.StatusFound)
}

func (f *Server) serveStorage(w http.ResponseWriter, r *http.Request) {
	f.active.Add(1)
	defer f.active.Done()
	f.note(r)
	if r.Header.Get("Authorization") != "" {
		f.mu.Lock()
		f.leaked = append(f.leaked, r.URL.Path)
		f.mu.Unlock()
	}
	if f.Store != nil && f.Store(w, r) {
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/storage/")
	content, ok := f.Files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Etag", `"storage-has-its-own"`)
	w.Header().Set("Content-Type", "binary/octet-stream")
	if f.NoRange {
		r.Header.Del("Range")
	}
	f.content(w, r, name, content)
}

// content serves a file and counts its bytes.
func (f *Server) content(w http.ResponseWriter, r *http.Request, name string, content []byte) {
	http.ServeContent(&countingWriter{w, f, name}, r, "", time.Time{}, bytes.NewReader(content))
}

type countingWriter struct {
	http.ResponseWriter
	f    *Server
	name string
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.f.mu.Lock()
	c.f.sent[c.name] += int64(len(p))
	c.f.mu.Unlock()
	return c.ResponseWriter.Write(p)
}

// BytesOf is how many bytes of a file were sent.
func (f *Server) BytesOf(name string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[name]
}

func (f *Server) note(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
}

// Count is the number of requests whose text contains a word.
func (f *Server) Count(word string) int {
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

// Leaked are the paths of requests at the storage host that carried a token.
func (f *Server) Leaked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leaked
}

// Forget sets the counts of requests and bytes to nothing, once no request is under way.
func (f *Server) Forget() {
	f.active.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent, f.requests = map[string]int64{}, nil
}

// Fail answers with one of the hub's errors.
func Fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":"%s"}`, code)
}

// SHA256 is the hash of a large file.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// GitHash is the hash of a small file.
func GitHash(b []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(sum[:])
}

// Noise is n bytes that repeat nowhere soon.
func Noise(n int, seed uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed >> 24)
	}
	return b
}

// FilesOf are the files in the root of a file system.
func FilesOf(t testing.TB, fsys fs.FS) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := fs.Glob(fsys, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if files[name], err = fs.ReadFile(fsys, name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// Checkpoint is a repository with a model in one file, and copies of it that nobody wants here.
func Checkpoint() map[string][]byte {
	return map[string][]byte{
		"config.json": []byte(`{"model_type":"ernie4_5"}`), "tokenizer.model": Noise(5000, 1), "tokenizer_config.json": []byte("{}"),
		"model.safetensors": Noise(3<<20, 2), "pytorch_model.bin": Noise(3<<20, 3), "onnx/model.onnx": Noise(100, 4),
		"README.md": []byte("---\nlicense: apache-2.0\n---\n# A model"), ".gitattributes": []byte("*.bin filter=lfs"),
	}
}
