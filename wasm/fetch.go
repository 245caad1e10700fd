//go:build js && wasm

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall/js"

	"github.com/pagelight/pagelight/internal/gpu/webgpujs"
	"github.com/pagelight/pagelight/internal/weights"
)

// missingError says that a file of a model is not there.
type missingError struct{ file, message string }

func (e *missingError) Error() string { return e.file + ": " + e.message }

// fetcher is the Go side of static/fetch.js. It lives as long as the worker.
type fetcher struct {
	get js.Value
	on  js.Func

	mu     sync.Mutex
	last   int
	wanted map[int]*fetching
	unkept int // files that the browser's cache did not take
}

// fetching is a file on its way.
type fetching struct {
	file     string
	size     int64 // stated, or -1
	hash     string
	progress func(bytes int64)
	handle   js.Value
	done     chan struct{} // closed when what follows is set
	blob     *webgpujs.Blob
	err      error
}

func newFetcher() (*fetcher, error) {
	lib := js.Global().Get("pagelightFetch")
	if lib.Type() != js.TypeObject {
		return nil, errors.New("fetch.js is not loaded")
	}
	f := &fetcher{get: lib.Get("get"), wanted: map[int]*fetching{}}
	f.on = js.FuncOf(func(_ js.Value, args []js.Value) any {
		f.event(args[0].Int(), args[1].String(), args[2:])
		return nil
	})
	return f, nil
}

// numUnkept is how many files the browser's cache did not take so far.
func (f *fetcher) numUnkept() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unkept
}

// event runs inside a JavaScript callback and must not block.
func (f *fetcher) event(token int, what string, args []js.Value) {
	f.mu.Lock()
	g := f.wanted[token]
	if what == "kept" && !args[0].Bool() {
		f.unkept++
	}
	if what == "done" || what == "failed" {
		delete(f.wanted, token)
	}
	f.mu.Unlock()
	if g == nil {
		return
	}
	switch what {
	case "progress":
		g.progress(int64(args[0].Float()))
	case "done":
		g.blob, g.err = webgpujs.NewBlob(args[0], args[1].Bool())
		close(g.done)
	case "failed":
		g.err = g.failure(args[0].String(), args[1].String())
		close(g.done)
	}
}

func (g *fetching) failure(kind, message string) error {
	switch kind {
	case "missing":
		return &missingError{g.file, message}
	case "size":
		return &weights.ShardError{File: g.file, What: "size", Want: fmt.Sprint(g.size), Found: message}
	case "sha256":
		return &weights.ShardError{File: g.file, What: "sha256", Want: g.hash, Found: message}
	case "memory":
		return fmt.Errorf("%s: the browser gives no memory: %s", g.file, message)
	}
	return fmt.Errorf("%s: the network failed: %s", g.file, message)
}

// start begins to fetch. size is -1 and hash "" where they are not known. progress runs inside callbacks.
func (f *fetcher) start(url, file string, size int64, hash string, progress func(bytes int64)) *fetching {
	f.mu.Lock()
	f.last++
	token := f.last
	g := &fetching{file: file, size: size, hash: hash, progress: progress, done: make(chan struct{})}
	f.wanted[token] = g
	f.mu.Unlock()
	g.handle = f.get.Invoke(token, url, float64(size), hash, f.on)
	return g
}

// abort gives a file up. It is harmless when it has come.
func (g *fetching) abort() {
	g.handle.Call("abort")
	select {
	case <-g.done:
		if g.blob != nil {
			_ = g.blob.Close() // never fails
		}
	default:
	}
}

// wait gives the blob, which the caller closes.
func (g *fetching) wait(ctx context.Context) (*webgpujs.Blob, error) {
	select {
	case <-g.done:
		return g.blob, g.err
	case <-ctx.Done():
		g.abort()
		return nil, ctx.Err()
	}
}

// ahead is how many shards are fetched before they are asked for.
const ahead = 2

// urlStore is a bundle below an address. It fetches shards a little ahead of their use; each lies in an ArrayBuffer until
// the bundle has uploaded it.
type urlStore struct {
	f        *fetcher
	base     string // with a final slash
	progress func(done, total int64, name string)

	manifest *weights.Manifest
	total    int64
	unkept   int // what f had of it before
	mu       sync.Mutex
	bytes    map[string]int64     // that have come, by file
	coming   map[string]*fetching // that nobody has asked for yet
}

func newURLStore(f *fetcher, base string, progress func(done, total int64, name string)) *urlStore {
	if base != "" && base[len(base)-1] != '/' {
		base += "/"
	}
	return &urlStore{f: f, base: base, progress: progress, unkept: f.numUnkept(), bytes: map[string]int64{}, coming: map[string]*fetching{}}
}

// Manifest fetches manifest.json.
func (s *urlStore) Manifest(ctx context.Context) ([]byte, error) {
	blob, err := s.f.start(s.base+weights.ManifestFile, weights.ManifestFile, -1, "", func(int64) {}).wait(ctx)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	raw := make([]byte, blob.Size())
	if _, err := blob.ReadAt(raw, 0); err != nil {
		return nil, err
	}
	if s.manifest, err = weights.ParseManifest(raw); err != nil {
		return nil, &missingError{weights.ManifestFile, err.Error()}
	}
	for _, shard := range s.manifest.Shards {
		s.total += shard.Size
	}
	for _, file := range s.manifest.Files {
		s.total += file.Size
	}
	return raw, nil
}

// Shard gives a file of the bundle and begins to fetch those that will be asked for next.
func (s *urlStore) Shard(ctx context.Context, file string, size int64) (weights.Blob, error) {
	s.mu.Lock()
	g := s.coming[file]
	delete(s.coming, file)
	s.mu.Unlock()
	if g == nil {
		g = s.fetch(file, size)
	}
	s.prefetch(file)
	blob, err := g.wait(ctx)
	if err != nil {
		return nil, err // not a nil *Blob in an interface
	}
	return blob, nil
}

func (s *urlStore) fetch(file string, size int64) *fetching {
	hash := file[:max(0, len(file)-len(".bin"))]
	return s.f.start(s.base+file, file, size, hash, func(bytes int64) { s.came(file, bytes) })
}

func (s *urlStore) prefetch(after string) {
	shards := s.manifest.Shards
	for i := range shards {
		if shards[i].File != after {
			continue
		}
		for _, next := range shards[i+1 : min(i+1+ahead, len(shards))] {
			s.mu.Lock()
			_, seen := s.bytes[next.File]
			if !seen {
				s.bytes[next.File] = 0
			}
			s.mu.Unlock()
			if seen {
				continue
			}
			g := s.fetch(next.File, next.Size)
			s.mu.Lock()
			s.coming[next.File] = g
			s.mu.Unlock()
		}
		return
	}
}

// came notes progress. It runs inside callbacks.
func (s *urlStore) came(file string, bytes int64) {
	s.mu.Lock()
	s.bytes[file] = bytes
	done := int64(0)
	for _, n := range s.bytes {
		done += n
	}
	s.mu.Unlock()
	s.progress(done, s.total, file)
}

// complete says whether every file has come.
func (s *urlStore) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := int64(0)
	for _, n := range s.bytes {
		done += n
	}
	return s.manifest != nil && done >= s.total
}

// kept says whether everything is there for next time, as far as is known.
func (s *urlStore) kept() bool { return s.f.numUnkept() == s.unkept }

// close gives up what nobody has asked for.
func (s *urlStore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.coming {
		g.abort()
	}
	clear(s.coming)
}
