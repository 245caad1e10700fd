//go:build js && wasm

package webgpujs

import (
	"fmt"
	"io"
	"syscall/js"
)

// Blob is an ArrayBuffer that stays outside the Go heap. Device.WriteBlob uploads it; ReadAt copies pieces of it into Go.
type Blob struct {
	id            int // in the table of gpu.js; 0 once closed
	size          int64
	verified      bool
	read, release js.Value
}

// NewBlob takes an ArrayBuffer, which is kept alive until Close. verified says that its content was compared with its hash.
func NewBlob(arrayBuffer js.Value, verified bool) (*Blob, error) {
	g, err := library()
	if err != nil {
		return nil, err
	}
	blobs := g.Get("blobs")
	b := &Blob{
		size: int64(arrayBuffer.Get("byteLength").Float()), verified: verified,
		read: blobs.Get("read"), release: blobs.Get("release"),
	}
	b.id = blobs.Call("put", arrayBuffer).Int()
	return b, nil
}

// Size is the number of bytes.
func (b *Blob) Size() int64 { return b.size }

// ReadAt copies bytes into p, as io.ReaderAt.
func (b *Blob) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("webgpujs: read at %d of a blob", off)
	}
	if b.id == 0 {
		return 0, fmt.Errorf("webgpujs: read of a blob that was closed")
	}
	total := 0
	for total < len(p) && off < b.size {
		n := int(min(int64(len(p)-total), b.size-off, maxScratch))
		js.CopyBytesToGo(p[total:total+n], b.read.Invoke(b.id, float64(off), n))
		total, off = total+n, off+int64(n)
	}
	if total < len(p) {
		return total, io.EOF
	}
	return total, nil
}

// Verified says whether the content is known to be what its hash states.
func (b *Blob) Verified() bool { return b.verified }

// Close lets the browser free the memory; uploads that were started keep what they need. It never fails.
func (b *Blob) Close() error {
	if b.id != 0 {
		b.release.Invoke(b.id)
		b.id = 0
	}
	return nil
}

func (b *Blob) checkRange(off, size int64) error {
	if b.id == 0 {
		return invalid("write from a blob that was closed")
	}
	if off < 0 || size < 0 || off > b.size-size {
		return invalid("write of %d bytes at %d of a blob of %d", size, off, b.size)
	}
	return nil
}
