//go:build js && wasm

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall/js"
	"time"
)

// pieceBytes is how much of a file comes into the Go heap at once.
const pieceBytes = 4 << 20

// fileError says that a file, one that was picked or one at an address, could not be read.
type fileError struct {
	file, kind, message string // kind is one of static/ranges.js
}

func (e *fileError) Error() string {
	what := map[string]string{
		"missing":     "is not there",
		"refused":     "the server does not give it to this page",
		"no_ranges":   "the server sends whole files only, and a model is read in pieces (HTTP ranges); download it and open it from there",
		"unreachable": "there is no answer, or none that a page of another site may read (CORS)",
		"changed":     "was changed, moved or replaced since it was opened",
	}[e.kind]
	if what == "" {
		what = "the network failed"
	}
	return fmt.Sprintf("%s: %s: %s", e.file, what, e.message)
}

// Is makes a file that is not there one that may be left out.
func (e *fileError) Is(target error) bool { return target == fs.ErrNotExist && e.kind == "missing" }

// code is for the wire.
func (e *fileError) code() string {
	switch e.kind {
	case "missing", "refused", "changed":
		return "file_" + e.kind
	case "no_ranges", "unreachable":
		return e.kind
	}
	return "network_failed"
}

// ranges is the Go side of static/ranges.js. It lives as long as the worker.
type ranges struct {
	lib js.Value

	mu     sync.Mutex
	last   int
	owners map[int]*files
}

func newRanges() (*ranges, error) {
	lib := js.Global().Get("pagelightRanges")
	if lib.Type() != js.TypeObject {
		return nil, errors.New("ranges.js is not loaded")
	}
	r := &ranges{lib: lib, owners: map[int]*files{}}
	lib.Call("listen", js.FuncOf(func(_ js.Value, args []js.Value) any {
		r.mu.Lock()
		f := r.owners[args[0].Int()]
		r.mu.Unlock()
		if f != nil {
			f.event(args[1])
		}
		return nil
	}))
	return r, nil
}

// files is a file system of files that the page was given or that lie at addresses. It cannot list itself. It is for the
// goroutine that loads a model, and its files can be read until close.
type files struct {
	ctx      context.Context
	r        *ranges
	owner    int
	at       string                  // what to call the whole in errors
	ref      func(name string) any   // a token or an address; nil for a file that is not there
	progress func(done, total int64) // runs in callbacks
	opened   map[string]*openedFile  // each is opened once
	mu       sync.Mutex              // guards what follows
	done     int64                   // bytes that have come from addresses
	total    int64                   // of those that were opened
	unkept   bool                    // something is not there for next time
}

type openedFile struct {
	number int // in ranges.js
	size   int64
}

// newFiles makes a file system whose files ref knows.
func (r *ranges) newFiles(ctx context.Context, at string, ref func(name string) any, progress func(done, total int64)) *files {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	f := &files{ctx: ctx, r: r, owner: r.last, at: at, ref: ref, progress: progress, opened: map[string]*openedFile{}}
	r.owners[f.owner] = f
	return f
}

// event runs inside a JavaScript callback and must not block.
func (f *files) event(bytes js.Value) {
	f.mu.Lock()
	if bytes.IsNull() {
		f.unkept = true
		f.mu.Unlock()
		return
	}
	f.done += int64(bytes.Float())
	done, total := f.done, max(f.done, f.total)
	f.mu.Unlock()
	f.progress(done, total)
}

// complete says whether everything has come that is to come.
func (f *files) complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done >= f.total
}

// kept says whether everything that came from addresses is there for next time, as far as is known.
func (f *files) kept() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.unkept
}

// close ends what is under way.
func (f *files) close() {
	f.r.mu.Lock()
	delete(f.r.owners, f.owner)
	f.r.mu.Unlock()
	f.r.lib.Call("close", f.owner)
}

// unnamed is what files adds to a name that does not say what the file is, and takes off again in errors.
const unnamed = ".gguf"

// Open implements fs.FS.
func (f *files) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	shown := name
	if name == f.at+unnamed {
		shown = f.at
	}
	o := f.opened[name]
	if o == nil {
		ref := f.ref(name)
		if ref == nil {
			return fail(fs.ErrNotExist)
		}
		pair, err := await(f.ctx, f.r.lib.Call("open", f.owner, ref), shown)
		if err != nil {
			return fail(err)
		}
		o = &openedFile{number: pair.Index(0).Int(), size: int64(pair.Index(1).Float())}
		f.opened[name] = o
		if _, address := ref.(string); address {
			f.mu.Lock()
			f.total += o.size
			f.mu.Unlock()
		}
	}
	return &file{openedFile: o, f: f, name: shown}, nil
}

// file is an open file. Closing it leaves it to the files that it belongs to.
type file struct {
	*openedFile
	f    *files
	name string
	at   int64 // where Read goes on
}

// ReadAt implements io.ReaderAt.
func (o *file) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fs.ErrInvalid
	}
	total := 0
	for total < len(p) && off < o.size {
		n := int(min(int64(len(p)-total), o.size-off, pieceBytes))
		bytes, err := await(o.f.ctx, o.f.r.lib.Call("read", o.number, float64(off), n), o.name)
		if err != nil {
			return total, err
		}
		js.CopyBytesToGo(p[total:total+n], bytes)
		total, off = total+n, off+int64(n)
	}
	if total < len(p) {
		return total, io.EOF
	}
	return total, nil
}

// Read implements fs.File.
func (o *file) Read(p []byte) (int, error) {
	n, err := o.ReadAt(p, o.at)
	o.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (o *file) Close() error               { return nil }
func (o *file) Stat() (fs.FileInfo, error) { return fileInfo{o.name, o.size}, nil }

type fileInfo struct {
	name string
	size int64
}

func (i fileInfo) Name() string     { return i.name }
func (i fileInfo) Size() int64      { return i.size }
func (fileInfo) Mode() fs.FileMode  { return 0o444 }
func (fileInfo) ModTime() time.Time { return time.Time{} }
func (fileInfo) IsDir() bool        { return false }
func (fileInfo) Sys() any           { return nil }

// await waits for a promise of ranges.js about a file.
func await(ctx context.Context, promise js.Value, file string) (js.Value, error) {
	type outcome struct {
		value js.Value
		err   error
	}
	settled := make(chan outcome, 1)
	var good, bad js.Func
	settle := func(o outcome) any {
		good.Release()
		bad.Release()
		settled <- o
		return nil
	}
	good = js.FuncOf(func(_ js.Value, args []js.Value) any { return settle(outcome{value: args[0]}) })
	bad = js.FuncOf(func(_ js.Value, args []js.Value) any {
		kind, message := args[0].Get("kind"), args[0].Get("message")
		return settle(outcome{err: &fileError{file, text(kind), text(message)}})
	})
	promise.Call("then", good, bad)
	select {
	case o := <-settled:
		return o.value, o.err
	case <-ctx.Done():
		return js.Undefined(), ctx.Err()
	}
}

// text is a JavaScript string, "" for what is none.
func text(v js.Value) string {
	if v.Type() != js.TypeString {
		return ""
	}
	return v.String()
}
