package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// Store is where a bundle lies: a folder, an embedded file system, the browser's cache in front of a network.
type Store interface {
	// Manifest reads manifest.json.
	Manifest(ctx context.Context) ([]byte, error)
	// Shard opens a content-hashed file, a shard of weights or a small file, of the size that the manifest states. Its
	// name is the sha256 of its content in hex and ".bin". A blob that is an io.Closer is closed when it is no longer
	// used; one that has a method Verified() bool which returns true is not hashed again. A store that has a method
	// Concurrent() bool which returns true is asked for several shards at a time, by several goroutines.
	Shard(ctx context.Context, file string, size int64) (Blob, error)
}

// FSStore is a bundle in the root of a file system whose files can be read at an offset.
func FSStore(fsys fs.FS) Store { return &fsStore{fsys} }

// DirStore is a bundle in a directory.
func DirStore(dir string) Store { return FSStore(os.DirFS(dir)) }

type fsStore struct{ fsys fs.FS }

func (s *fsStore) Manifest(context.Context) ([]byte, error) {
	f, size, err := openRegular(s.fsys, ManifestFile)
	if err != nil {
		return nil, err
	}
	defer drop(f)
	if size > maxManifestBytes {
		return nil, fmt.Errorf("is larger than %d bytes", maxManifestBytes)
	}
	return io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
}

func (s *fsStore) Shard(_ context.Context, file string, _ int64) (Blob, error) {
	return openBlob(s.fsys, file)
}

// Concurrent says that files can be opened and read at the same time, and that there are processors to do so.
func (s *fsStore) Concurrent() bool { return runtime.GOMAXPROCS(0) > 1 }

// openBlob opens a file that can be read at an offset.
func openBlob(fsys fs.FS, name string) (Blob, error) {
	f, size, err := openRegular(fsys, name)
	if err != nil {
		return nil, err
	}
	r, ok := f.(io.ReaderAt)
	if !ok {
		drop(f)
		return nil, errors.New("this file system cannot read at an offset")
	}
	return &fileBlob{ReaderAt: r, Closer: f, size: size}, nil
}

type fileBlob struct {
	io.ReaderAt
	io.Closer
	size int64
}

func (b *fileBlob) Size() int64 { return b.size }

// drop closes what was only read: an error then says nothing that matters.
func drop(c any) {
	if c, ok := c.(io.Closer); ok {
		_ = c.Close()
	}
}

// readAt fills p. A file that ends too early is one that shrank after it was checked.
func readAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d of %d bytes at %d: %w", n, len(p), off, err)
}
