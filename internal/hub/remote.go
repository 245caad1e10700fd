package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"time"
)

// remoteBlock is how much is fetched at a time of a file that is read where it is.
const remoteBlock = 1 << 20

// Remote is a model on the hub, of which single ranges are read where it is. That does to look at a model before it is
// downloaded. What is read is not checked against hashes, for those are of whole files.
type Remote struct {
	Format Format
	Parts  []string // the paths of the weights: for a .gguf all its parts, the first one first

	ctx    context.Context
	h      *Hub
	n      Name
	commit string
	files  map[string]File
}

// Remote looks at a model on the hub. ctx holds for all that is read of it.
func (h *Hub) Remote(ctx context.Context, n Name) (*Remote, error) {
	p, err := h.newPull(ctx, n, PullOptions{})
	if err != nil {
		return nil, err
	}
	r := &Remote{Format: p.c.format, ctx: ctx, h: h, n: n, commit: p.listing.Commit, files: fileMap(p.listing.Files)}
	for _, f := range p.c.weights {
		r.Parts = append(r.Parts, f.Path)
	}
	return r, nil
}

// Open opens a file of the repository. The file can be read at an offset.
func (r *Remote) Open(name string) (fs.File, error) {
	f, ok := r.files[name]
	if !ok || !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err := r.h.describe(r.ctx, r.n, r.commit, &f, nil); err != nil {
		return nil, err
	}
	return &remoteFile{r: r, f: f}, nil
}

// remoteFile is a file that is read by ranges. It is for one goroutine.
type remoteFile struct {
	r     *Remote
	f     File
	at    int64  // of Read
	block []byte // the one that was read last
	start int64  // its offset
}

// Size is the file's length in bytes.
func (f *remoteFile) Size() int64 { return f.f.Size }

func (f *remoteFile) Close() error { return nil }

func (f *remoteFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p[:min(int64(len(p)), f.f.Size-f.at)], f.at)
	f.at += int64(n)
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

func (f *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fs.ErrInvalid
	}
	done := 0
	for done < len(p) {
		at := off + int64(done)
		if at >= f.f.Size {
			return done, io.EOF
		}
		if at < f.start || at >= f.start+int64(len(f.block)) {
			if err := f.fetch(at / remoteBlock * remoteBlock); err != nil {
				return done, err
			}
		}
		done += copy(p[done:], f.block[at-f.start:])
	}
	return done, nil
}

// fetch reads the block at an offset.
func (f *remoteFile) fetch(at int64) error {
	end := min(at+remoteBlock, f.f.Size)
	err := f.r.h.retry(f.r.ctx, nil, func() (bool, error) {
		resp, err := f.r.h.send(f.r.ctx, request{
			method: http.MethodGet, url: f.r.h.fileURL(f.r.n.Repo, f.r.commit, f.f.Path),
			header: http.Header{"Accept-Encoding": {"identity"}, "Range": {fmt.Sprintf("bytes=%d-%d", at, end-1)}},
		})
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		host := resp.Request.URL.Host
		m := contentRange.FindStringSubmatch(resp.Header.Get("Content-Range"))
		whole := resp.StatusCode == http.StatusOK && at == 0 && end == f.f.Size && resp.ContentLength == f.f.Size
		if !whole && (resp.StatusCode != http.StatusPartialContent || m == nil || m[1] != strconv.FormatInt(at, 10)) {
			return false, fmt.Errorf("%s gives no parts of files; pull the model to look at it", host)
		}
		var block bytes.Buffer
		if n, err := io.Copy(&block, io.LimitReader(resp.Body, end-at)); err != nil || n != end-at {
			return false, &networkError{host, errors.Join(err, io.ErrUnexpectedEOF)}
		}
		f.block, f.start = block.Bytes(), at
		return false, nil
	})
	if err != nil {
		return f.r.h.explain(f.r.ctx, f.r.n, f.f.Path, err)
	}
	return nil
}

// Stat tells name and size.
func (f *remoteFile) Stat() (fs.FileInfo, error) { return remoteInfo{f.f}, nil }

type remoteInfo struct{ f File }

func (i remoteInfo) Name() string       { return path.Base(i.f.Path) }
func (i remoteInfo) Size() int64        { return i.f.Size }
func (i remoteInfo) Mode() fs.FileMode  { return 0o444 }
func (i remoteInfo) ModTime() time.Time { return time.Time{} }
func (i remoteInfo) IsDir() bool        { return false }
func (i remoteInfo) Sys() any           { return nil }
