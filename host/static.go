package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hashLimit is the size up to which a file's tag is the hash of its content. Larger ones are tagged by size and time.
const hashLimit = 64 << 20

// contentTypes are those of the page and of models, so that they do not depend on the machine's own table.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".wasm": "application/wasm", ".json": "application/json", ".map": "application/json",
	".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".webp": "image/webp", ".jpg": "image/jpeg",
	".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8", ".md": "text/markdown; charset=utf-8",
	".ts": "text/plain; charset=utf-8", ".wgsl": "text/plain; charset=utf-8", ".woff2": "font/woff2",
}

// encoding is a way in which a file may be compressed, beside it under a longer name.
type encoding struct{ name, suffix string }

// encodings are looked for in this order; the first wins where the client likes several equally.
var encodings = []encoding{{"br", ".br"}, {"gzip", ".gz"}}

// fileServer serves the files of a file system and remembers their tags. A name that begins with a dot is never served.
type fileServer struct {
	fsys fs.FS
	mu   sync.Mutex
	tags map[tagKey]string
}

type tagKey struct {
	name  string
	size  int64
	mtime time.Time
}

func newFileServer(fsys fs.FS) *fileServer {
	return &fileServer{fsys: fsys, tags: map[tagKey]string{}}
}

// serve answers with the file that the route's wildcard names.
func (f *fileServer) serve(w http.ResponseWriter, r *http.Request) {
	name := wildcard(r)
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	file, info := f.open(name)
	if file == nil && path.Ext(name) == "" { // pages are called without their ending too: /bench
		if file, info = f.open(name + ".html"); file != nil {
			name += ".html"
		}
	}
	if info != nil && info.IsDir() {
		// Relative, so that it is right under any prefix.
		w.Header().Set("Location", path.Base(name)+"/")
		w.WriteHeader(http.StatusMovedPermanently)
		_ = file.Close()
		return
	}
	if file == nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	defer func() { _ = file.Close() }()

	h := w.Header()
	if t := contentTypes[path.Ext(name)]; t != "" {
		h.Set("Content-Type", t)
	} else {
		h.Set("Content-Type", "application/octet-stream")
	}
	if hashedName(name) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache")
	}

	if packed, packedInfo, enc := f.negotiate(h, r, name); packed != nil {
		h.Set("Content-Encoding", enc.name)
		h.Set("Content-Length", strconv.FormatInt(packedInfo.Size(), 10)) // ServeContent leaves it out with an encoding
		_ = file.Close()
		file, info, name = packed, packedInfo, name+enc.suffix
	}
	content, err := f.prepare(h, file, info, name)
	if err != nil {
		for _, k := range []string{"Content-Encoding", "Content-Length", "Cache-Control", "Etag"} {
			h.Del(k)
		}
		http.Error(w, "500 the file cannot be read", http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", info.ModTime(), content)
}

// negotiate returns the compressed sibling of a file that the client likes best, or nil for the file itself. A range is
// always one of the file itself: that is what resumed and partial reads are about.
func (f *fileServer) negotiate(h http.Header, r *http.Request, name string) (best fs.File, info fs.FileInfo, enc encoding) {
	q := qualities(r.Header.Values("Accept-Encoding"))
	least := q["identity"] // 0 when the client does not say: then any encoding that it takes is better
	varies := false
	for _, e := range encodings {
		packed, packedInfo := f.open(name + e.suffix)
		if packed == nil {
			continue
		}
		varies = true
		v, ok := q[e.name]
		if !ok {
			v = q["*"]
		}
		if packedInfo.IsDir() || r.Header.Get("Range") != "" || v == 0 || v < least || best != nil && v == least {
			_ = packed.Close()
			continue
		}
		if best != nil {
			_ = best.Close()
		}
		best, info, enc, least = packed, packedInfo, e, v
	}
	if varies {
		h.Add("Vary", "Accept-Encoding")
	}
	return best, info, enc
}

// open returns nil where there is nothing that may be served.
func (f *fileServer) open(name string) (fs.File, fs.FileInfo) {
	if !fs.ValidPath(name) || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {
		return nil, nil
	}
	file, err := f.fsys.Open(name)
	if err != nil {
		return nil, nil
	}
	info, err := file.Stat()
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, nil
	}
	return file, info
}

// prepare sets the tag of a file and makes it seekable.
func (f *fileServer) prepare(h http.Header, file fs.File, info fs.FileInfo, name string) (io.ReadSeeker, error) {
	content, ok := file.(io.ReadSeeker)
	if !ok {
		if info.Size() > hashLimit {
			return nil, errors.New("too large to be served from a file system that cannot seek")
		}
		b, err := io.ReadAll(file)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	key := tagKey{name, info.Size(), info.ModTime()}
	f.mu.Lock()
	tag := f.tags[key]
	f.mu.Unlock()
	if tag == "" {
		sum := sha256.New()
		if info.Size() > hashLimit {
			_, _ = fmt.Fprintf(sum, "%s %d %d", name, info.Size(), info.ModTime().UnixNano())
		} else if _, err := io.Copy(sum, content); err != nil {
			return nil, err
		}
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		const tagBytes = 16
		tag = `"` + hex.EncodeToString(sum.Sum(nil)[:tagBytes]) + `"`
		f.mu.Lock()
		f.tags[key] = tag
		f.mu.Unlock()
	}
	h.Set("Etag", tag)
	return content, nil
}

// hashedName says whether a file's name holds the hash of its content, so that it never changes: a part of the name,
// between dots, dashes or underscores, of 8 or more hexadecimal digits with both letters and digits, or of 16 or more.
func hashedName(name string) bool {
	split := func(c rune) bool { return c == '.' || c == '-' || c == '_' }
	for _, part := range strings.FieldsFunc(path.Base(name), split) {
		const sure, likely = 16, 8
		if len(part) < likely || strings.Trim(part, "0123456789abcdef") != "" {
			continue
		}
		if len(part) >= sure || strings.ContainsAny(part, "abcdef") && strings.ContainsAny(part, "0123456789") {
			return true
		}
	}
	return false
}

// qualities reads Accept-Encoding.
func qualities(lines []string) map[string]float64 {
	q := map[string]float64{}
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			value := 1.0
			if k, v, ok := strings.Cut(strings.TrimSpace(params), "="); ok && strings.EqualFold(strings.TrimSpace(k), "q") {
				if f, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil && f >= 0 && f <= 1 {
					value = f
				} else {
					value = 0
				}
			}
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
				q[name] = value
			}
		}
	}
	return q
}
