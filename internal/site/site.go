// Package site puts together what a browser needs to run a model in a tab: the page, and the models that it may load, with
// an index of them. The server offers it under /models/, and "pagelight export" writes it to a folder for any file host.
package site

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pagelight/pagelight/internal/weights"
)

// Model is one model that the tab can load.
type Model struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Kind       string `json:"kind"`          // "bundle": files at URL; "synthetic": made on the spot
	URL        string `json:"url,omitempty"` // relative to the page
	Bytes      int64  `json:"bytes"`         // to download
	Parameters int64  `json:"parameters"`
	memory
	Bits      string   `json:"bits"`
	Languages []string `json:"languages,omitempty"`
	Note      string   `json:"note,omitempty"` // "demo": a tiny demonstration model; "speed": its text means nothing
}

// Bundle is a bundle to offer.
type Bundle struct {
	ID        string // also its folder
	Name      string
	Files     fs.FS
	Languages []string
	Note      string
}

// Models is the folder models/: index.json, and each bundle in a folder of its own. The synthetic model is always listed.
func Models(ctx context.Context, bundles ...Bundle) (fs.FS, error) {
	var list []Model
	all := &folder{sub: map[string]fs.FS{}}
	for _, b := range bundles {
		src, err := weights.OpenBundle(ctx, weights.FSStore(b.Files))
		if err != nil {
			return nil, fmt.Errorf("site: model %s: %w", b.ID, err)
		}
		download, err := folderSize(b.Files)
		if err != nil {
			return nil, fmt.Errorf("site: model %s: %w", b.ID, err)
		}
		need, err := memoryOf(src)
		if err != nil {
			return nil, fmt.Errorf("site: model %s: %w", b.ID, err)
		}
		list = append(list, Model{
			ID: b.ID, Name: b.Name, Kind: "bundle", URL: "models/" + b.ID + "/", Bytes: download, memory: need,
			Parameters: parameters(src), Bits: bits(src), Languages: b.Languages, Note: b.Note,
		})
		all.sub[b.ID] = b.Files
		if err := src.Close(); err != nil {
			return nil, err
		}
	}
	synthetic, err := weights.OpenSynthetic("ernie-4.5-0.3b")
	if err != nil {
		return nil, err
	}
	need, err := memoryOf(weights.Quantized(synthetic, weights.PolicyQ4(nil))) // as the page loads it
	if err != nil {
		return nil, fmt.Errorf("site: model %s: %w", synthetic.Config().Name, err)
	}
	list = append(list, Model{
		ID: synthetic.Config().Name, Name: "ERNIE-4.5-0.3B, synthetic weights", Kind: "synthetic",
		memory: need, Parameters: parameters(synthetic), Bits: "4-bit", Note: "speed",
	})
	index, err := json.MarshalIndent(map[string]any{"models": list}, "", " ")
	if err != nil {
		return nil, err
	}
	all.index = index
	return all, nil
}

func folderSize(fsys fs.FS) (sum int64, err error) {
	err = fs.WalkDir(fsys, ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// parameters counts the elements of all tensors.
func parameters(src weights.Source) (n int64) {
	for _, t := range weights.Tensors(src.Config()) {
		n += int64(t.Rows) * int64(t.K)
	}
	return n
}

// bits names the format that most parameters have: "q4g32" is "4-bit".
func bits(src weights.Source) string {
	count := map[string]int64{}
	best := ""
	for _, t := range weights.Tensors(src.Config()) {
		info, err := src.Info(t.Name)
		if err != nil || t.Vector {
			continue
		}
		kind, _, _ := strings.Cut(info.Format.String(), "g")
		if count[kind] += int64(t.Rows) * int64(t.K); count[kind] > count[best] {
			best = kind
		}
	}
	switch best {
	case "q4":
		return "4-bit"
	case "q8":
		return "8-bit"
	}
	return best
}
