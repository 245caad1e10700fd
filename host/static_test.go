package host

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestStaticFiles(t *testing.T) {
	t.Parallel()
	models := fstest.MapFS{"index.json": {Data: []byte(`{"models":[]}`)}, "builtin/0a1b2c3d4e5f60718293.bin": {Data: []byte("0123456789")}}
	s, _ := newTestServer(t, Config{Static: testFiles(), Models: models})
	get := func(method, path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://localhost"+path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	tag := func(path string, header ...string) string { return get("GET", path, header...).Header().Get("Etag") }
	const immutable, check = "public, max-age=31536000, immutable", "no-cache"
	for _, c := range []struct {
		name, method, path string
		header             []string
		status             int
		body               string
		want               []string // header lines; an empty value means none
	}{
		{"page", "GET", "/", nil, 200, "<!doctype html>page", []string{"Content-Type", "text/html; charset=utf-8", "Cache-Control", check, "Vary", "", "Content-Length", "19", "X-Content-Type-Options", "nosniff"}},
		{"head", "HEAD", "/", nil, 200, "", []string{"Content-Length", "19", "Content-Type", "text/html; charset=utf-8"}},
		{"folder", "GET", "/dist/", nil, 200, "dist", nil},
		{"folder without slash", "GET", "/dist", nil, 301, "", []string{"Location", "dist/"}},
		{"folder without index", "GET", "/empty/", nil, 404, "404 page not found\n", nil},
		{"plain for who takes nothing", "GET", "/app.js", nil, 200, "console.log('plain')", []string{"Content-Encoding", "", "Vary", "Accept-Encoding", "Content-Length", "20", "Content-Type", "text/javascript; charset=utf-8"}},
		{"brotli", "GET", "/app.js", []string{"Accept-Encoding", "gzip, deflate, br, zstd"}, 200, "js in brotli", []string{"Content-Encoding", "br", "Vary", "Accept-Encoding", "Content-Length", "12", "Content-Type", "text/javascript; charset=utf-8"}},
		{"brotli, head", "HEAD", "/app.js", []string{"Accept-Encoding", "br"}, 200, "", []string{"Content-Encoding", "br", "Content-Length", "12"}},
		{"gzip", "GET", "/app.js", []string{"Accept-Encoding", "gzip"}, 200, "js in gzip", []string{"Content-Encoding", "gzip"}},
		{"gzip preferred", "GET", "/app.js", []string{"Accept-Encoding", "br;q=0.5, gzip;q=0.8"}, 200, "js in gzip", []string{"Content-Encoding", "gzip"}},
		{"brotli preferred", "GET", "/app.js", []string{"Accept-Encoding", "gzip;q=0.7,br;q=0.8"}, 200, "js in brotli", []string{"Content-Encoding", "br"}},
		{"brotli refused", "GET", "/app.js", []string{"Accept-Encoding", "br;q=0, gzip"}, 200, "js in gzip", []string{"Content-Encoding", "gzip"}},
		{"all refused", "GET", "/app.js", []string{"Accept-Encoding", "br; q=0.0, gzip;q=0"}, 200, "console.log('plain')", []string{"Content-Encoding", ""}},
		{"any", "GET", "/app.js", []string{"Accept-Encoding", "*"}, 200, "js in brotli", []string{"Content-Encoding", "br"}},
		{"any but brotli", "GET", "/app.js", []string{"Accept-Encoding", "*;q=0.5, BR;Q=0"}, 200, "js in gzip", []string{"Content-Encoding", "gzip"}},
		{"plain preferred", "GET", "/app.js", []string{"Accept-Encoding", "br;q=0.5, identity"}, 200, "console.log('plain')", []string{"Content-Encoding", ""}},
		{"broken quality", "GET", "/app.js", []string{"Accept-Encoding", "br;q=x, gzip;q=2"}, 200, "console.log('plain')", []string{"Content-Encoding", ""}},
		{"no brotli sibling", "GET", "/dist/engine.wasm", []string{"Accept-Encoding", "br, gzip"}, 200, "wasm in gzip", []string{"Content-Encoding", "gzip", "Content-Type", "application/wasm"}},
		{"no sibling", "GET", "/style.css", []string{"Accept-Encoding", "br, gzip"}, 200, "a{}", []string{"Content-Encoding", "", "Vary", ""}},
		{"sibling by its own name", "GET", "/app.js.br", []string{"Accept-Encoding", "br"}, 200, "js in brotli", []string{"Content-Encoding", "", "Content-Type", "application/octet-stream"}},
		{"no type", "GET", "/README", nil, 200, "read me", []string{"Content-Type", "application/octet-stream"}},
		{"escaped name", "GET", "/odd%20name.txt", nil, 200, "odd", nil},
		{"hashed name", "GET", "/app.3fa94c1b.js", nil, 200, "hashed", []string{"Cache-Control", immutable}},
		{"shard", "GET", "/models/builtin/0a1b2c3d4e5f60718293.bin", nil, 200, "0123456789", []string{"Cache-Control", immutable, "Content-Type", "application/octet-stream"}},
		{"models index", "GET", "/models/index.json", nil, 200, `{"models":[]}`, []string{"Cache-Control", check, "Content-Type", "application/json"}},
		{"range", "GET", "/models/builtin/0a1b2c3d4e5f60718293.bin", []string{"Range", "bytes=2-4"}, 206, "234", []string{"Content-Range", "bytes 2-4/10", "Content-Length", "3"}},
		{"range to the end", "GET", "/models/builtin/0a1b2c3d4e5f60718293.bin", []string{"Range", "bytes=8-"}, 206, "89", []string{"Content-Range", "bytes 8-9/10"}},
		{"last bytes", "GET", "/models/builtin/0a1b2c3d4e5f60718293.bin", []string{"Range", "bytes=-1"}, 206, "9", nil},
		{"range beyond", "GET", "/models/builtin/0a1b2c3d4e5f60718293.bin", []string{"Range", "bytes=10-"}, 416, "invalid range: failed to overlap\n", []string{"Content-Range", "bytes */10", "Cache-Control", ""}},
		{"range of the plain file", "GET", "/app.js", []string{"Range", "bytes=0-6", "Accept-Encoding", "br"}, 206, "console", []string{"Content-Encoding", "", "Content-Range", "bytes 0-6/20"}},
		{"range, head", "HEAD", "/app.js", []string{"Range", "bytes=0-6"}, 206, "", []string{"Content-Length", "7"}},
		{"if-range holds", "GET", "/app.js", []string{"Range", "bytes=0-6", "If-Range", tag("/app.js")}, 206, "console", nil},
		{"if-range of another version", "GET", "/app.js", []string{"Range", "bytes=0-6", "If-Range", `"old"`}, 200, "console.log('plain')", nil},
		{"if-range of the packed one", "GET", "/app.js", []string{"Range", "bytes=0-6", "If-Range", tag("/app.js", "Accept-Encoding", "br")}, 200, "console.log('plain')", nil},
		{"if-none-match", "GET", "/app.js", []string{"If-None-Match", tag("/app.js")}, 304, "", []string{"Etag", tag("/app.js"), "Content-Type", "", "Content-Length", "", "Vary", "Accept-Encoding"}},
		{"if-none-match, weak list", "GET", "/app.js", []string{"If-None-Match", `"x", W/` + tag("/app.js")}, 304, "", nil},
		{"if-none-match of another", "GET", "/app.js", []string{"If-None-Match", tag("/style.css")}, 200, "console.log('plain')", nil},
		{"if-none-match, packed", "GET", "/app.js", []string{"If-None-Match", tag("/app.js", "Accept-Encoding", "br"), "Accept-Encoding", "br"}, 304, "", nil},
		{"if-none-match, plain for packed", "GET", "/app.js", []string{"If-None-Match", tag("/app.js"), "Accept-Encoding", "br"}, 200, "js in brotli", nil},
		{"dot file", "GET", "/.env", nil, 404, "404 page not found\n", nil},
		{"dot file within", "GET", "/dist/.gitkeep", nil, 404, "404 page not found\n", nil},
		{"up", "GET", "/dist/../app.js", nil, 404, "404 page not found\n", nil},
		{"escaped up", "GET", "/models/..%2findex.html", nil, 404, "404 page not found\n", nil},
		{"twice slash", "GET", "//etc/passwd", nil, 404, "404 page not found\n", nil},
		{"none", "GET", "/none", nil, 404, "404 page not found\n", []string{"Cache-Control", "", "Etag", ""}},
		{"post", "POST", "/app.js", nil, 405, `{"error":{"message":"method POST is not allowed here, only GET, HEAD","type":"invalid_request_error","param":null,"code":"method_not_allowed"}}` + "\n", []string{"Allow", "GET, HEAD"}},
	} {
		w := get(c.method, c.path, c.header...)
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%s: got %d %q, want %d %q", c.name, w.Code, w.Body, c.status, c.body)
		}
		for i := 0; i < len(c.want); i += 2 {
			if got := w.Header().Get(c.want[i]); got != c.want[i+1] {
				t.Errorf("%s: %s is %q, want %q", c.name, c.want[i], got, c.want[i+1])
			}
		}
		if w.Header().Get("Content-Security-Policy") != contentSecurityPolicy {
			t.Errorf("%s: no policy", c.name)
		}
	}
	if policy := get("GET", "/some/where/worker.js").Header().Get("Content-Security-Policy"); !strings.Contains(policy, "connect-src 'self' https: http:;") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the worker's policy is %q: it cannot fetch from an address that the reader types", policy)
	}
	tags := map[string]bool{tag("/app.js"): true, tag("/app.js", "Accept-Encoding", "br"): true, tag("/app.js", "Accept-Encoding", "gzip"): true, tag("/style.css"): true}
	if len(tags) != 4 || tags[""] {
		t.Errorf("tags %v", tags)
	}
}

func TestTagFollowsTheContent(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"a.txt": {Data: []byte("one"), ModTime: time.Unix(1, 0)}}
	s, _ := newTestServer(t, Config{Static: files})
	tag := func() string {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/a.txt", nil))
		return w.Header().Get("Etag")
	}
	first := tag()
	if first != tag() || len(first) < 10 {
		t.Errorf("tag %q", first)
	}
	files["a.txt"] = &fstest.MapFile{Data: []byte("two"), ModTime: time.Unix(2, 0)}
	if tag() == first {
		t.Error("the tag of another content is the same")
	}
}

// streamOnly is a file system whose files cannot seek, as those of a zip archive.
type streamOnly struct{ fs.FS }

func (f streamOnly) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return struct{ fs.File }{file}, nil
}

func TestFilesThatCannotSeek(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{Static: streamOnly{testFiles()}})
	r := httptest.NewRequest(http.MethodGet, "http://localhost/app.js", nil)
	r.Header.Set("Range", "bytes=8-10")
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != 206 || w.Body.String() != "log" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestHashedNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"app.3fa94c1b.js": true, "shard-0a1b2c3d4e5f6071.bin": true, "1234567890123456.bin": true, "d/" + strings.Repeat("ab", 32): true, "x_deadbeef1.bin": true,
		"app.js": false, "model-00001-of-00002.bin": false, "a.20240101.js": false, "facade.js": false, "defaced.bin": false, "decade12.d/plain.js": false, "0A1B2C3D.bin": false,
	} {
		if got := hashedName(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
