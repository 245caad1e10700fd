package local

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/hub"
	"github.com/pagelight/pagelight/internal/weights"
)

// findInHub gives the path of a model of the Hugging Face hub in the cache. It asks no network.
func findInHub(model string) (string, error) {
	n, err := hub.ParseName(model)
	if err != nil {
		return "", err
	}
	h, err := hub.FromEnv(os.Getenv)
	if err != nil {
		return "", err
	}
	found, err := h.Find(n)
	if err != nil {
		return "", err
	}
	if found.Format == hub.FormatFile {
		return "", fmt.Errorf("model %s: %s is no model; name a .gguf file, or leave the file out", model, n.File)
	}
	return found.Path, nil
}

// OpenHeaders opens a model of the Hugging Face hub where it is, for planning: of its files only the ranges are fetched that
// tell what its tensors are. It must not be used to run a model, for what is read is not checked against hashes. ctx holds
// until the source is closed.
func OpenHeaders(ctx context.Context, model, quantization string) (weights.Source, error) {
	policy, err := quantPolicy(quantization, nil)
	if err != nil {
		return nil, err
	}
	n, err := hub.ParseName(model)
	if err != nil {
		return nil, err
	}
	h, err := hub.FromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	r, err := h.Remote(ctx, n)
	if err != nil {
		return nil, err
	}
	var src weights.Source
	switch r.Format {
	case hub.FormatBundle:
		src, err = weights.OpenBundle(ctx, weights.FSStore(r))
	case hub.FormatSafetensors:
		src, err = weights.OpenFS(r, n.Repo)
	case hub.FormatGGUF:
		src, err = openRemoteGGUF(ctx, r)
	default:
		err = fmt.Errorf("model %s: %s is no model; name a .gguf file, or leave the file out", model, n.File)
	}
	if err != nil || policy == nil {
		return src, err
	}
	return weights.Quantized(src, policy), nil
}

func openRemoteGGUF(ctx context.Context, r *hub.Remote) (weights.Source, error) {
	var parts []weights.Blob
	for _, name := range r.Parts {
		f, err := r.Open(name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, f.(weights.Blob))
	}
	return weights.OpenGGUF(ctx, r.Parts[0], parts...)
}

// Pull downloads a model of the Hugging Face hub, "hf:ORG/NAME[@REVISION][:FILE]", into the cache that Hugging Face's own
// libraries use, as far as it is not there; Open then finds it. The environment says where that is, and which hub and which
// token: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE. progress, which may be nil, hears of bytes.
func Pull(ctx context.Context, model string, progress func(engine.Progress)) error {
	n, err := hub.ParseName(model)
	if err != nil {
		return err
	}
	h, err := hub.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	o := hub.PullOptions{}
	if progress != nil {
		o.Watcher = &pullProgress{tell: progress, have: map[string]int64{}}
	}
	_, err = h.Pull(ctx, n, o)
	return err
}

// pullProgress adds up what a pull tells of its files.
type pullProgress struct {
	tell func(engine.Progress)

	mu          sync.Mutex
	have        map[string]int64 // bytes by file
	done, total int64
}

func (p *pullProgress) Plan(files []hub.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range files {
		p.total += max(f.Size, 0)
	}
}

func (p *pullProgress) Begin(f hub.File, have int64) { p.Advance(f, have) }

func (p *pullProgress) Advance(f hub.File, have int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += have - p.have[f.Path]
	p.have[f.Path] = have
	p.tell(engine.Progress{Phase: engine.PhaseDownload, Done: p.done, Total: max(p.total, p.done), Name: f.Path})
}

func (p *pullProgress) End(hub.File, error)   {}
func (p *pullProgress) Note(hub.File, string) {}
