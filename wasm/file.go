//go:build js && wasm

package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall/js"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
	"github.com/pagelight/pagelight/internal/weights"
)

// fileBlob is a JavaScript Blob, such as a file that the user has picked, in the table of fetch.js. It is read by ranges: only what
// is asked for comes into memory.
type fileBlob struct {
	files js.Value
	id    int
	size  int64
}

// fileRead is how much is read at a time: it lies in JavaScript's memory and in Go's for a moment.
const fileRead = 4 << 20

func (f *fetcher) fileBlob(id int) (*fileBlob, error) {
	size := f.files.Call("size", id).Float()
	if size < 0 {
		return nil, fmt.Errorf("no file has the number %d", id)
	}
	return &fileBlob{f.files, id, int64(size)}, nil
}

func (b *fileBlob) Size() int64 { return b.size }

// ReadAt copies bytes into p, as io.ReaderAt.
func (b *fileBlob) ReadAt(p []byte, off int64) (int, error) {
	total := 0
	for total < len(p) && off < b.size {
		n := int(min(int64(len(p)-total), b.size-off, fileRead))
		got := b.files.Call("read", b.id, float64(off), n)
		if got.Type() == js.TypeString {
			return total, fmt.Errorf("the browser cannot read the file: %s", got.String())
		}
		n = js.CopyBytesToGo(p[total:total+n], got)
		if n == 0 {
			break // a file that became shorter
		}
		total, off = total+n, off+int64(n)
	}
	if total < len(p) {
		return total, io.EOF
	}
	return total, nil
}

func (b *fileBlob) Close() error {
	b.files.Call("release", b.id)
	return nil
}

// openGGUF opens a model in GGUF files: those that the page has passed, or the one at an address with the other parts beside it.
func (w *worker) openGGUF(ctx context.Context, f loadFields, report *reporter) (weights.Source, error) {
	name := f.Model.Name
	var parts []weights.Blob
	var err error
	switch {
	case len(f.Model.Files) > 0:
		if name == "" {
			name = w.fetch.files.Call("name", f.Model.Files[0]).String()
		}
		parts, err = w.fetch.passed(f.Model.Files)
	case f.Model.URL == "":
		return nil, openai.NewError(400, openai.CodeInvalidValue, "model", "'model' of kind gguf must have a url or files")
	default:
		address, _, _ := strings.Cut(f.Model.URL, "?")
		if name == "" {
			name = path.Base(address)
		}
		parts, err = w.fetch.parts(ctx, f.Model.URL, func(done, total int64, name string) {
			report.progress(engine.Progress{Phase: engine.PhaseDownload, Done: done, Total: total, Name: name})
		})
	}
	if err != nil {
		return nil, err
	}
	src, err := weights.OpenGGUF(ctx, name, parts...)
	if err != nil && ctx.Err() == nil {
		e := openai.NewError(502, codeBrokenFile, "", err.Error())
		e.Detail.File = name
		return nil, e
	}
	return src, err
}

// passed are files from the page.
func (f *fetcher) passed(ids []int) (parts []weights.Blob, err error) {
	for _, id := range ids {
		b, err := f.fileBlob(id)
		if err != nil {
			release(parts)
			return nil, openai.NewError(400, openai.CodeInvalidValue, "model.files", "'model.files' must be a list of files")
		}
		parts = append(parts, b)
	}
	return parts, nil
}

// parts fetches a GGUF file and all other parts of the model that it belongs to, one after the other.
func (f *fetcher) parts(ctx context.Context, url string, progress func(done, total int64, name string)) (parts []weights.Blob, err error) {
	address, query, _ := strings.Cut(url, "?")
	at := strings.LastIndexByte(address, '/') + 1
	names, err := weights.GGUFParts(address[at:])
	if err != nil {
		return nil, &missingError{address[at:], err.Error()}
	}
	if query != "" {
		query = "?" + query
	}
	var done int64
	for _, name := range names {
		total := int64(-1)
		g := f.startFile(address[:at]+name+query, name, func(bytes int64) { total = bytes }, func(bytes int64) {
			progress(done+bytes, max(done+total, done+bytes), name)
		})
		if _, err := g.wait(ctx); err != nil {
			release(parts)
			return nil, err
		}
		parts = append(parts, g.stored)
		done += g.stored.size
	}
	return parts, nil
}

// release lets go of files that no source owns yet.
func release(parts []weights.Blob) {
	for _, p := range parts {
		_ = p.(*fileBlob).Close() // never fails
	}
}
