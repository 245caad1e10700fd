//go:build js && wasm

package main

import (
	"context"
	"errors"
	"net/url"
	"path"
	"strings"
	"syscall/js"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
	"github.com/pagelight/pagelight/internal/weights"
)

// modelFields say which model to load.
type modelFields struct {
	// Kind is "bundle" (at URL, with the hashes of its files), "synthetic" (Name), "url" (a file, or a folder with a slash at its
	// end), "hub" (the repository Name at Revision of Hugging Face, or of the mirror at URL) or "files" (those that the page gave along).
	Kind     string `json:"kind"`
	URL      string `json:"url"`
	Name     string `json:"name"`
	Revision string `json:"revision"`
	Files    []struct {
		Path  string `json:"path"`  // with slashes
		Token int    `json:"token"` // of static/ranges.js, which worker.js puts in place of the file
	} `json:"files"`
}

// arrival is what a model comes from while it is loaded.
type arrival interface {
	complete() bool // nothing has to come any more
	kept() bool     // what has come is there for next time
	close()
}

// modelError says that files are no model that can be loaded.
type modelError struct {
	file string // or what the whole is called
	err  error
}

func (e *modelError) Error() string { return strings.TrimPrefix(e.err.Error(), "weights: ") }

func (e *modelError) Unwrap() error { return e.err }

// source opens the model. coming, which is nil for models that come from nowhere, is to be closed when the model is loaded, and
// also with an error.
func (w *worker) source(ctx context.Context, f loadFields, report *reporter) (src weights.Source, coming arrival, err error) {
	policy, err := policyFor(f.Options.Quant)
	if err != nil {
		return nil, nil, err
	}
	downloading := func(done, total int64, name string) {
		report.progress(engine.Progress{Phase: engine.PhaseDownload, Done: done, Total: total, Name: name})
	}
	switch f.Model.Kind {
	case "bundle":
		store := newURLStore(w.fetch, f.Model.URL, downloading)
		coming = store
		src, err = weights.OpenBundle(ctx, store)
	case "synthetic":
		src, err = weights.OpenSynthetic(f.Model.Name)
	case "files", "url", "hub":
		src, coming, err = w.openFiles(ctx, &f.Model, downloading)
	default:
		err = openai.NewError(400, openai.CodeInvalidValue, "model.kind", "'model.kind' must be bundle, synthetic, files, url or hub")
	}
	if err != nil {
		return nil, coming, err
	}
	if policy != nil {
		src = weights.Quantized(src, policy)
	}
	return src, coming, nil
}

// openFiles opens a model whose files are read by ranges.
func (w *worker) openFiles(ctx context.Context, m *modelFields, downloading func(done, total int64, name string)) (weights.Source, arrival, error) {
	at, names, ref, err := w.locate(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	if base, ok := strings.CutSuffix(m.URL, weights.ManifestFile); ok && m.Kind == "url" {
		store := newURLStore(w.fetch, base, downloading) // which knows the files by their hashes
		src, err := weights.OpenBundle(ctx, store)
		return src, store, err
	}
	fsys := w.ranges.newFiles(ctx, at, ref, func(done, total int64) { downloading(done, total, at) })
	src, err := weights.OpenFiles(ctx, fsys, at, names)
	var read *fileError
	if err != nil && !errors.As(err, &read) && ctx.Err() == nil {
		err = &modelError{at, err}
	}
	return src, fsys, err
}

// locate says what to call some files, which there are, and where they are: see files.
func (w *worker) locate(ctx context.Context, m *modelFields) (at string, names []string, ref func(string) any, err error) {
	switch m.Kind {
	case "files":
		tokens := map[string]any{}
		for _, f := range m.Files {
			tokens[f.Path], names = f.Token, append(names, f.Path)
		}
		if at = m.Name; at == "" && len(names) > 0 {
			at = names[0]
		}
		return at, names, func(name string) any { return tokens[name] }, nil
	case "hub":
		list, err := await(ctx, w.ranges.lib.Call("hub", strings.TrimSuffix(m.URL, "/"), m.Name, m.Revision), m.Name)
		if err != nil {
			return "", nil, nil, err
		}
		addresses := map[string]any{}
		for i := range list.Length() {
			file := list.Index(i)
			name := file.Get("path").String()
			addresses[name], names = file.Get("url").String(), append(names, name)
		}
		return m.Name, names, func(name string) any { return addresses[name] }, nil
	}
	page, err := url.Parse(js.Global().Get("location").Get("href").String())
	if err != nil {
		return "", nil, nil, err
	}
	u, err := page.Parse(m.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", nil, nil, openai.NewError(400, openai.CodeInvalidValue, "model.url", "'model.url' must be an address of https:// or http://, or one relative to the page")
	}
	beside := func(name string) any {
		v := *u
		dir, _ := path.Split(u.Path)
		v.Path, v.RawPath = dir+name, ""
		return v.String()
	}
	file := path.Base(u.Path)
	ext := strings.ToLower(path.Ext(file))
	switch {
	case strings.HasSuffix(u.Path, "/"), file == "config.json", ext == ".safetensors", strings.HasSuffix(file, ".safetensors.index.json"):
		// Which of the two forms the weights have is for package weights to find out.
		at = path.Base(path.Dir(u.Path))
		if at == "/" || at == "." {
			at = u.Host
		}
		return at, []string{"config.json", "model.safetensors"}, beside, nil
	case ext == ".gguf":
		return file, []string{file}, beside, nil
	}
	// Something that a server calls as it likes.
	only := strings.Trim(file, "/.")
	if only == "" {
		only = u.Host
	}
	return only, []string{only + unnamed}, func(string) any { return u.String() }, nil
}
