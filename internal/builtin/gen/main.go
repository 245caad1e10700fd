// Command gen packs a checkpoint into the built-in model's bundle, and puts its model card and the list of its sources
// beside it. It runs in internal/builtin:
//
//	go run ./gen -model DIR
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

const (
	embedding = "model.embed_tokens.weight"

	summary = "linear layers: 4 bits, groups of 32, scales and zero points searched for the least squared error; " +
		"embedding, which is also the LM head: 8 bits, groups of 32; norms: f32"
	notice = "A demonstration model, trained from scratch; no product of Baidu, and it shares no weights with any ERNIE checkpoint. " +
		"The sources of its training text are public domain or under permissive licences, several of which ask for attribution: " +
		"SOURCES.md gives it and has to travel with the model."
)

// cardNote goes under the checkpoint's model card, which knows nothing of the packing.
const cardNote = `
## This copy
Packed as a Pagelight bundle: ` + summary + `.
The figures above are those of the bf16 checkpoint. The folders eval and training do not travel with this copy; SOURCES.md does.
`

// packedCard is a source whose model card also says how this copy was made.
type packedCard struct{ weights.Source }

// File reads one of the small files.
func (c packedCard) File(ctx context.Context, name string) ([]byte, error) {
	raw, err := c.Source.File(ctx, name)
	if name == "MODEL_CARD.md" && raw != nil {
		raw = append(raw, cardNote...)
	}
	return raw, err
}

// documents are copied beside the bundle, where people look for them.
var documents = []string{"MODEL_CARD.md", "SOURCES.md"}

func main() {
	model := flag.String("model", "", "folder of the checkpoint")
	out := flag.String("out", ".", "folder to write bundle/ and the documents into")
	flag.Parse()
	if err := run(*model, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(model, out string) (err error) {
	if model == "" {
		return errors.New("-model is missing")
	}
	dir, err := weights.OpenDir(model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	src := packedCard{dir}
	if err := pack(context.Background(), src, filepath.Join(out, "bundle")); err != nil {
		return err
	}
	for _, name := range documents {
		raw, err := src.File(context.Background(), name)
		if err != nil {
			return err
		}
		if raw == nil {
			return fmt.Errorf("%s has no %s", model, name)
		}
		if err := os.WriteFile(filepath.Join(out, name), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack writes the bundle: the recipe of the built-in model.
func pack(ctx context.Context, src weights.Source, dir string) error {
	q4, q8 := weights.PolicyQ4(nil), weights.PolicyQ8(nil)
	src = weights.Quantized(src, func(name string, info weights.Info) quant.Format {
		if name == embedding {
			return q8(name, info)
		}
		return q4(name, info)
	})
	return weights.WriteBundle(ctx, src, dir, weights.BundleOptions{
		Name: "ernie-tiny", Summary: summary, Notice: notice, Replace: true,
		ShardBytes: 4 << 20, // small enough for a page to show progress, and to fetch some at once
	}, nil)
}
