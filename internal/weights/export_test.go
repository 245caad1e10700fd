package weights

import (
	"testing"
	"testing/fstest"
)

// SetStripBytes makes a folder's source read quantized matrices in smaller strips.
func SetStripBytes(src Source, n int) { src.(*dirSource).unpacker.strip = n }

// SmallModel is a whole bf16 model of some kilobytes.
func SmallModel(t testing.TB) fstest.MapFS {
	fsys, _ := smallModel(t)
	return fsys
}
