package weights

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// Open opens what a name stands for: "synthetic:NAME", the directory of a bundle, or a Hugging Face directory.
func Open(ctx context.Context, name string) (Source, error) {
	if strings.HasPrefix(name, SyntheticPrefix) {
		return OpenSynthetic(name)
	}
	if _, err := os.Stat(filepath.Join(name, ManifestFile)); err == nil {
		return OpenBundle(ctx, DirStore(name))
	}
	return OpenDir(name)
}
