package site

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Export writes the page and the models to a folder that any file host can serve, below any path and without special
// headers. Files that are there already are replaced; others stay.
func Export(dir string, page, models fs.FS) error {
	put := func(sub string) func(string, []byte) error {
		return func(name string, data []byte) error {
			target := filepath.Join(dir, sub, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			return os.WriteFile(target, data, 0o644)
		}
	}
	if err := eachFile(page, func(name string, data []byte) error {
		if ext := filepath.Ext(name); ext == ".go" || filepath.Base(name) == ".gitkeep" {
			return nil
		}
		return put("")(name, data)
	}); err != nil {
		return fmt.Errorf("site: %w", err)
	}
	if f, ok := models.(*folder); ok {
		return f.each(put("models"))
	}
	return eachFile(models, put("models"))
}
