package weights

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// ErrNotAModel says that among some files there is none with which a model begins.
var ErrNotAModel = errors.New("a model is a .gguf file, or a folder with config.json, the tokenizer and .safetensors files")

// OpenFiles opens the one model among files that somebody picked, or that a repository lists: a GGUF file with all of its parts, a
// Hugging Face folder, or a bundle. names are their slash-separated paths in fsys, which need not be able to list them; at says
// where they are, for errors. Of nested folders the outermost one with a model counts.
func OpenFiles(ctx context.Context, fsys fs.FS, at string, names []string) (Source, error) {
	folders := map[string][]string{} // names of files by folder
	for _, name := range names {
		dir, file := path.Split(name)
		dir = path.Clean(dir)
		folders[dir] = append(folders[dir], file)
	}
	var found []string // the folders with a model that are least deep
	depth := 0
	for dir, files := range folders {
		if !slices.ContainsFunc(files, beginsModel) {
			continue
		}
		d := 0
		if dir != "." {
			d = 1 + strings.Count(dir, "/")
		}
		if len(found) == 0 || d < depth {
			found, depth = found[:0], d
		}
		if d == depth {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return nil, noModel(at, names)
	case 1:
	default:
		return nil, fmt.Errorf("weights: %s: there are models in several folders: %s; open one of them", at, someOf(found))
	}
	dir := found[0]
	sub, err := fs.Sub(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", at, err)
	}
	where := at
	if dir != "." {
		where = path.Base(dir)
	}
	files := folders[dir]
	ggufs := ggufModels(files)
	switch {
	case slices.Contains(files, ManifestFile):
		return OpenBundle(ctx, FSStore(sub))
	case slices.ContainsFunc(files, isSafetensors) || len(ggufs) == 0:
		return OpenFS(sub, where)
	case len(ggufs) > 1:
		return nil, fmt.Errorf("weights: %s: there are %d GGUF models: %s; open one of them", where, len(ggufs), someOf(ggufs))
	}
	return openGGUFIn(ctx, sub, "", ggufs[0])
}

func isSafetensors(file string) bool { return strings.HasSuffix(file, ".safetensors") }

// beginsModel says whether a folder with that file has a model.
func beginsModel(file string) bool {
	return file == ManifestFile || file == "config.json" || isGGUF(file)
}

// noModel says what some files are, and what would do.
func noModel(at string, names []string) error {
	for _, name := range names {
		if isSafetensors(name) {
			return fmt.Errorf("weights: %s: is the weights of a model alone: %w", path.Base(name), ErrNotAModel)
		}
	}
	switch len(names) {
	case 0:
		return fmt.Errorf("weights: %s: holds no files: %w", at, ErrNotAModel)
	case 1:
		return fmt.Errorf("weights: %s: is no model: %w", path.Base(names[0]), ErrNotAModel)
	}
	return fmt.Errorf("weights: %s: none of %d files begins a model: %w", at, len(names), ErrNotAModel)
}
