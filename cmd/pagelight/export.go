package main

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/pagelight/pagelight/internal/builtin"
	"github.com/pagelight/pagelight/internal/site"
	"github.com/pagelight/pagelight/static"
)

type exportCmd struct {
	Out string `short:"o" required:"" placeholder:"DIR" help:"Where to write the site."`
}

// Help explains what comes out.
func (exportCmd) Help() string {
	return `Writes the page, the engine as WASM and the built-in model to a folder. Any file host or CDN can serve it, below any
path and without special headers; visitors run the model in their own browser tab. WebGPU needs https, or localhost.`
}

// Run writes the site.
func (c *exportCmd) Run(a *app) error {
	page := static.FS()
	if _, err := fs.Stat(page, "dist/engine.wasm"); err != nil {
		return fmt.Errorf("this program was built without the engine for the browser (dist/engine.wasm): build it with make")
	}
	models, err := tabModels(a.ctx)
	if err != nil {
		return err
	}
	if err := site.Export(c.Out, page, models); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "wrote %s\n", c.Out)
	return err
}

// tabModels are the models that a page offers to load in the tab.
func tabModels(ctx context.Context) (fs.FS, error) {
	return site.Models(ctx, site.Bundle{ID: "builtin", Name: "ERNIE-Tiny", Files: builtin.FS(), Languages: []string{"en", "zh"}, Note: "demo"})
}
