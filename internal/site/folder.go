package site

import (
	"bytes"
	"io/fs"
	"path"
	"strings"
	"time"
)

// folder is a file system of index.json and one folder per bundle.
type folder struct {
	index []byte
	sub   map[string]fs.FS
}

const indexName = "index.json"

// Open implements fs.FS.
func (f *folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if name == indexName {
		return &memFile{Reader: bytes.NewReader(f.index), size: int64(len(f.index))}, nil
	}
	dir, rest, _ := strings.Cut(name, "/")
	sub, ok := f.sub[dir]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if rest == "" {
		rest = "."
	}
	return sub.Open(rest)
}

// each gives every file to put.
func (f *folder) each(put func(name string, data []byte) error) error {
	if err := put(indexName, f.index); err != nil {
		return err
	}
	for id, sub := range f.sub {
		if err := eachFile(sub, func(name string, data []byte) error { return put(path.Join(id, name), data) }); err != nil {
			return err
		}
	}
	return nil
}

// eachFile gives every file of a file system to put.
func eachFile(fsys fs.FS, put func(name string, data []byte) error) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return put(name, data)
	})
}

// memFile is a read-only file in memory.
type memFile struct {
	*bytes.Reader
	size int64
}

func (f *memFile) Stat() (fs.FileInfo, error) { return memInfo(f.size), nil }
func (f *memFile) Close() error               { return nil }

// memInfo is the size of index.json, which knows nothing else of itself.
type memInfo int64

func (i memInfo) Name() string       { return indexName }
func (i memInfo) Size() int64        { return int64(i) }
func (i memInfo) Mode() fs.FileMode  { return 0o444 }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return false }
func (i memInfo) Sys() any           { return nil }
