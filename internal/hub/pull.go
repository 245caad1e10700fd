package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// DefaultJobs is how many files are downloaded at a time when nobody says.
const DefaultJobs = 4

// Watcher hears how a pull goes. Its methods are called by several goroutines.
type Watcher interface {
	// Plan tells, once, which files will be downloaded.
	Plan(files []File)
	// Begin tells that work on a file begins, of which have bytes are there.
	Begin(f File, have int64)
	// Advance tells how many bytes of a file are there; fewer than before when it has to begin anew.
	Advance(f File, have int64)
	// End tells that a file is whole, or that it failed.
	End(f File, err error)
	// Note tells what somebody who waits wants to know: a connection that dropped, another process that is at it. File is
	// empty when the note is about no file.
	Note(f File, text string)
}

// silent is the Watcher of those who have none.
type silent struct{}

func (silent) Plan([]File)         {}
func (silent) Begin(File, int64)   {}
func (silent) Advance(File, int64) {}
func (silent) End(File, error)     {}
func (silent) Note(File, string)   {}

// PullOptions say how to pull.
type PullOptions struct {
	Jobs    int     // files at a time; 0 is DefaultJobs
	Verify  bool    // hash the files that are there already, and download those anew that are damaged
	Watcher Watcher // may be nil
}

// Pulled is what a pull brought.
type Pulled struct {
	Model
	Files   []File // all that the model consists of
	Fetched []File // those of them that were downloaded
}

// Pull downloads a model into the cache, as far as it is not there. It may be interrupted and called again: it goes on where
// it was. The branch's name points to the new commit only when everything is there.
func (h *Hub) Pull(ctx context.Context, n Name, o PullOptions) (*Pulled, error) {
	p, err := h.newPull(ctx, n, o)
	if err != nil {
		return nil, err
	}
	unlock, err := h.shareRepo(ctx, n.Repo)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := errors.Join(h.tagCache(), h.writeTree(n.Repo, p.listing)); err != nil {
		return nil, err
	}
	if err := p.choose(ctx); err != nil {
		return nil, err
	}
	missing, err := p.missing(ctx, p.c.all())
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		p.watch.Plan(missing)
	}
	weights := map[string]bool{}
	for _, f := range p.c.weights {
		weights[f.Path] = true
	}
	// The small files first: a model whose weights are there shall lack nothing.
	for _, late := range []bool{false, true} {
		batch := slices.DeleteFunc(slices.Clone(missing), func(f File) bool { return weights[f.Path] != late })
		if err := p.fetchAll(ctx, batch); err != nil {
			return nil, err
		}
	}
	if err := h.writeRef(n.Repo, n.Revision, p.listing.Commit); err != nil {
		return nil, err
	}
	return &Pulled{
		Model: Model{Path: h.modelPath(n.Repo, p.listing.Commit, &p.c), Commit: p.listing.Commit, Format: p.c.format},
		Files: p.c.all(), Fetched: append(p.early, missing...),
	}, nil
}

// Preview says which files a pull would want and which of them it would download; nothing is written. Where an index or a
// manifest decides and is not in the cache, it stands for what it names.
func (h *Hub) Preview(ctx context.Context, n Name, o PullOptions) (*Pulled, error) {
	p, err := h.newPull(ctx, n, o)
	if err != nil {
		return nil, err
	}
	if p.c.index != "" {
		if raw, err := readLimited(h.pointer(n.Repo, p.listing.Commit, p.c.index), maxIndexBytes); err == nil {
			if err := p.c.addListed(raw, fileMap(p.listing.Files)); err != nil {
				return nil, fmt.Errorf("hub: %s: %w", n, err)
			}
		} else {
			p.c.weights = p.c.likely(p.listing.Files)
		}
	}
	missing, err := p.missing(ctx, p.c.all())
	if err != nil {
		return nil, err
	}
	return &Pulled{Model: Model{Commit: p.listing.Commit, Format: p.c.format}, Files: p.c.all(), Fetched: missing}, nil
}

// pull is a pull under way.
type pull struct {
	h       *Hub
	n       Name
	o       PullOptions
	watch   Watcher
	listing *Listing
	c       choice
	early   []File // downloaded before it was known what else there is
}

func (h *Hub) newPull(ctx context.Context, n Name, o PullOptions) (*pull, error) {
	p := &pull{h: h, n: n, o: o, watch: o.Watcher}
	if p.watch == nil {
		p.watch = silent{}
	}
	if p.o.Jobs <= 0 {
		p.o.Jobs = DefaultJobs
	}
	var err error
	if p.listing, err = h.list(ctx, n, p.note); err != nil {
		return nil, err
	}
	if p.c, err = choose(n, p.listing.Files); err != nil {
		var none *noModelError
		if errors.As(err, &none) {
			err = fmt.Errorf("hub: %s: %w", n, err)
		}
		return nil, err
	}
	return p, nil
}

func (p *pull) note(text string) { p.watch.Note(File{}, text) }

// choose reads the index or the manifest, where there is one, to learn which files hold the weights.
func (p *pull) choose(ctx context.Context) error {
	if p.c.index == "" {
		return nil
	}
	at := slices.IndexFunc(p.c.small, func(f File) bool { return f.Path == p.c.index })
	index := p.c.small[at]
	if index.Size > maxIndexBytes {
		return fmt.Errorf("hub: %s: %s has %d bytes, at most %d are accepted", p.n, index.Path, index.Size, maxIndexBytes)
	}
	missing, err := p.missing(ctx, []File{index})
	if err != nil {
		return err
	}
	if err := p.fetchAll(ctx, missing); err != nil {
		return err
	}
	p.early = missing
	raw, err := readLimited(p.h.pointer(p.n.Repo, p.listing.Commit, index.Path), maxIndexBytes)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if err := p.c.addListed(raw, fileMap(p.listing.Files)); err != nil {
		return fmt.Errorf("hub: %s: %w", p.n, err)
	}
	return nil
}

// missing gives those of the files that the snapshot lacks. A file whose blob is there gets its link at once.
func (p *pull) missing(ctx context.Context, files []File) ([]File, error) {
	var out []File
	for _, f := range files {
		pointer := p.h.pointer(p.n.Repo, p.listing.Commit, f.Path)
		st, err := os.Stat(pointer)
		if err == nil && st.Mode().IsRegular() && (f.Size < 0 || st.Size() == f.Size) {
			if !p.o.Verify {
				continue
			}
			err := hashFile(ctx, pointer, f)
			if err == nil {
				continue
			}
			var wrong *HashError
			if !errors.As(err, &wrong) || f.Etag == "" {
				return nil, fmt.Errorf("hub: %w", err)
			}
			p.watch.Note(f, "is damaged; downloading it again")
			if err := removeAll(pointer, p.h.blob(p.n.Repo, f.Etag)); err != nil {
				return nil, err
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// fetchAll downloads files, several at a time, and links them. The first error ends the others.
func (p *pull) fetchAll(ctx context.Context, files []File) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan File)
	var group sync.WaitGroup
	for range min(p.o.Jobs, len(files)) {
		group.Go(func() {
			for f := range next {
				err := p.fetchOne(ctx, f)
				p.watch.End(f, err)
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
feed:
	for _, f := range files {
		select {
		case next <- f:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}

func (p *pull) fetchOne(ctx context.Context, f File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	note := func(text string) { p.watch.Note(f, text) }
	if err := p.h.describe(ctx, p.n, p.listing.Commit, &f, note); err != nil {
		return err
	}
	d := &download{h: p.h, n: p.n, commit: p.listing.Commit, f: f, watch: p.watch}
	return d.fetch(ctx)
}
