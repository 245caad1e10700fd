package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ggufPart is the name of a part of a model that was split: NAME-00002-of-00005.gguf.
var ggufPart = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// ggufStem is what to call a model by the name or path of its file, or of one of its parts.
func ggufStem(file string) string {
	file = file[strings.LastIndexAny(file, `/\`)+1:]
	if m := ggufPart.FindStringSubmatch(file); m != nil {
		return m[1]
	}
	return strings.TrimSuffix(file, ".gguf")
}

// ggufParts are the names of all parts of the model that a file belongs to.
func ggufParts(file string) ([]string, error) {
	m := ggufPart.FindStringSubmatch(file)
	if m == nil {
		return []string{file}, nil
	}
	n, err := strconv.Atoi(m[3])
	if err != nil || n < 1 || n > maxGGUFParts {
		return nil, fmt.Errorf("is a part of %s; 1 to %d are accepted", m[3], maxGGUFParts)
	}
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf("%s-%05d-of-%s.gguf", m[1], i+1, m[3])
	}
	return parts, nil
}

// OpenGGUFFile opens a GGUF file on this machine; for one part of a model that was split, the others beside it as well.
func OpenGGUFFile(path string) (Source, error) {
	dir, file := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return openGGUFIn(context.Background(), os.DirFS(dir), dir, file)
}

// openGGUFIn opens a GGUF file in a file system with the other parts beside it. dir is put before its names in errors.
func openGGUFIn(ctx context.Context, fsys fs.FS, dir, file string) (Source, error) {
	names, err := ggufParts(file)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", filepath.Join(dir, file), err)
	}
	var parts []Blob
	for _, name := range names {
		b, err := openBlob(fsys, name)
		if err != nil {
			for _, b := range parts {
				drop(b)
			}
			if errors.Is(err, fs.ErrNotExist) && len(names) > 1 {
				err = fmt.Errorf("is missing; all %d parts must lie together", len(names))
			}
			return nil, fmt.Errorf("weights: %s: %w", filepath.Join(dir, name), err)
		}
		parts = append(parts, b)
	}
	return OpenGGUF(ctx, filepath.Join(dir, file), parts...)
}

// BeginsAsGGUF says whether a file on this machine begins as GGUF files do, whatever its name. Other programs' caches name
// files by their hashes.
func BeginsAsGGUF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "GGUF"
}

// FindGGUF gives the path of the one GGUF model in a folder: its file, or the first of its parts. It is "" when there is none; an
// error names those among which it cannot choose.
func FindGGUF(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("weights: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() {
			files = append(files, e.Name())
		}
	}
	models := ggufModels(files)
	switch len(models) {
	case 0:
		return "", nil
	case 1:
		return filepath.Join(dir, models[0]), nil
	}
	return "", fmt.Errorf("weights: %s holds %d GGUF files: %s; give the path of one of them", dir, len(models), someOf(models))
}

// isGGUF goes by a file's name. What belongs to a model of pictures is no model of its own.
func isGGUF(file string) bool {
	file = strings.ToLower(file)
	return strings.HasSuffix(file, ".gguf") && !strings.HasPrefix(file, "mmproj")
}

// ggufModels are the GGUF models among the files of a folder, each by its file or the first of its parts, in order.
func ggufModels(files []string) (models []string) {
	for _, name := range files {
		if !isGGUF(name) {
			continue
		}
		if parts, err := ggufParts(name); err == nil {
			name = parts[0]
		}
		if !slices.Contains(models, name) {
			models = append(models, name)
		}
	}
	slices.Sort(models)
	return models
}

// someOf lists names, the first ones of many.
func someOf(names []string) string {
	const most = 16
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
