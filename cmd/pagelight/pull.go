package main

import (
	"errors"
	"fmt"

	"github.com/pagelight/pagelight/internal/hub"
)

type pullCmd struct {
	Model string `arg:"" help:"The model: hf:ORG/NAME, hf:ORG/NAME@REVISION (a branch, tag or commit), or hf:ORG/NAME:FILE (one .gguf of several; Q4_K_M will do)."`

	Jobs   int  `short:"j" default:"4" placeholder:"N" help:"Files downloaded at a time. Default: 4."`
	Verify bool `help:"Hash the files that are in the cache already, and download those again that are damaged."`
	DryRun bool `help:"Show what would be downloaded, and stop."`
	JSON   bool `name:"json" help:"Print {\"model\",\"path\",\"commit\",\"format\",\"bytes\",\"files\"} instead of the path."`
}

// Help explains where models go.
func (pullCmd) Help() string {
	return `Downloads a model of the Hugging Face hub and prints where it lies. Other commands then take the same name as MODEL, and
download by themselves what is not there; pull again to get what is new.

Only what is needed is downloaded: configuration, tokenizer, and the weights in safetensors, in one .gguf, or in a bundle. A
download that was interrupted goes on where it was. Each file is checked against the hash that the hub states.

The cache is the one of Hugging Face's own libraries, and shared with them. Environment:
  HF_HOME, HF_HUB_CACHE     where the cache is; by default ~/.cache/huggingface/hub
  HF_TOKEN, HF_TOKEN_PATH   token for private and gated models; sent to the hub only
  HF_ENDPOINT               a mirror in place of https://huggingface.co
  HF_HUB_OFFLINE=1          use what is in the cache and no network`
}

// pulled is what pull --json prints.
type pulled struct {
	Model      string        `json:"model"`
	Path       string        `json:"path,omitempty"` // not with --dry-run
	Commit     string        `json:"commit"`
	Format     string        `json:"format"`
	Bytes      int64         `json:"bytes"`      // of all files
	Downloaded int64         `json:"downloaded"` // bytes of the files that were, or would be, downloaded
	Files      []fileAndSize `json:"files"`
}

type fileAndSize struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Run downloads.
func (c *pullCmd) Run(a *app) error {
	if c.Jobs < 1 || c.Jobs > 64 {
		return usagef("--jobs must be 1 to 64, got %d", c.Jobs)
	}
	n, err := hubName(c.Model)
	if err != nil {
		return err
	}
	h, err := newHub()
	if err != nil {
		return err
	}
	o := hub.PullOptions{Jobs: c.Jobs, Verify: c.Verify}
	var p *hub.Pulled
	if c.DryRun {
		p, err = h.Preview(a.ctx, n, o)
	} else {
		p, err = a.download(h, n, o, nil)
	}
	if several := (*hub.AmbiguousError)(nil); errors.As(err, &several) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	out := pulled{Model: n.String(), Path: p.Path, Commit: p.Commit, Format: string(p.Format), Files: []fileAndSize{}}
	for _, f := range p.Files {
		out.Files = append(out.Files, fileAndSize{f.Path, f.Size})
		out.Bytes += max(f.Size, 0)
	}
	for _, f := range p.Fetched {
		out.Downloaded += max(f.Size, 0)
	}
	switch {
	case c.JSON:
		return printJSON(a.stdout, out)
	case c.DryRun:
		return c.preview(a, &out)
	}
	if len(p.Fetched) == 0 {
		fmt.Fprintf(a.stderr, "%s is up to date: %s in %d files\n", n, byteSize(out.Bytes), len(p.Files))
	}
	_, err = fmt.Fprintln(a.stdout, p.Path)
	return err
}

func (c *pullCmd) preview(a *app, out *pulled) error {
	for _, f := range out.Files {
		size := "size not known"
		if f.Bytes >= 0 {
			size = byteSize(f.Bytes).String()
		}
		if _, err := fmt.Fprintf(a.stdout, "%s (%s)\n", f.Name, size); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.stdout, "%s as %s: %s, of which %s would be downloaded\n", out.Model, out.Format, byteSize(out.Bytes), byteSize(out.Downloaded))
	return err
}
