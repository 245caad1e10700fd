// Package builtin holds the model that is part of the executable: ERNIE-Tiny, a small chat model with the architecture of
// ERNIE 4.5, as a packed bundle (docs/bundle.md).
//
// MODEL_CARD.md says what it is and can do. SOURCES.md lists the texts that it was trained on and their licences; several
// ask for attribution, so it is in the bundle too and travels with the model.
package builtin

import (
	"context"
	"embed"
	"io/fs"

	"github.com/pagelight/pagelight/internal/weights"
)

//go:embed bundle
var files embed.FS

// FS is the bundle's files, for serving them to a page.
func FS() fs.FS {
	sub, err := fs.Sub(files, "bundle")
	if err != nil {
		panic("BUG: " + err.Error()) // the path is a constant
	}
	return sub
}

// Open opens the model.
func Open() (weights.Source, error) {
	return weights.OpenBundle(context.Background(), weights.FSStore(FS()))
}
