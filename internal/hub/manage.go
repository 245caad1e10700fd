package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Entry is a model in the cache, as List shows it.
type Entry struct {
	Name     Name      `json:"-"`
	Model    string    `json:"model"` // the name in words
	Commit   string    `json:"commit"`
	Refs     []string  `json:"refs"`
	Format   Format    `json:"format"`            // empty when it is no model that can be opened
	Problem  string    `json:"problem,omitempty"` // why not
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
	Path     string    `json:"path"`
}

// Cached lists the models in the cache: one entry for each commit of a repository, or for each .gguf of one.
func (h *Hub) Cached() ([]Entry, error) {
	dirs, err := os.ReadDir(h.Cache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var out []Entry
	for _, d := range dirs {
		repo, ok := strings.CutPrefix(d.Name(), folderPrefix)
		repo = strings.ReplaceAll(repo, "--", "/")
		if !ok || !d.IsDir() || !validRepo(repo) {
			continue
		}
		entries, err := h.cachedRepo(repo)
		if err != nil {
			return nil, err
		}
		out = append(out, entries...)
	}
	return out, nil
}

func (h *Hub) cachedRepo(repo string) ([]Entry, error) {
	refs, err := h.refs(repo)
	if err != nil {
		return nil, err
	}
	commits, err := h.commits(repo)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, commit := range commits {
		entries, err := h.cachedCommits(repo, commit, refs[commit])
		if err != nil {
			return nil, err
		}
		out = append(out, entries...)
	}
	if len(out) == 0 { // only parts of files, or nothing any more
		size, modified := folderSize(h.repoDir(repo))
		n := Name{Repo: repo, Revision: DefaultRevision}
		out = []Entry{{Name: n, Model: n.String(), Refs: []string{}, Problem: "not downloaded as a whole", Bytes: size, Modified: modified, Path: h.repoDir(repo)}}
	}
	return out, nil
}

// cachedCommits describes one commit of a repository.
func (h *Hub) cachedCommits(repo, commit string, refs []string) ([]Entry, error) {
	files, err := h.snapshotFiles(repo, commit)
	if err != nil {
		return nil, err
	}
	base := Entry{Name: Name{Repo: repo, Revision: commit}, Commit: commit, Refs: refs, Path: h.snapshot(repo, commit)}
	switch {
	case slices.Contains(refs, DefaultRevision):
		base.Name.Revision = DefaultRevision
	case len(refs) > 0:
		base.Name.Revision = refs[0]
	}
	if refs == nil {
		base.Refs = []string{}
	}
	var rest int64
	var out []Entry
	models := fileMap(ggufModels(files))
	for _, f := range files {
		at := h.pointer(repo, commit, f.Path)
		modified := time.Time{}
		if st, err := os.Stat(at); err == nil {
			modified = st.ModTime()
		}
		if modified.After(base.Modified) {
			base.Modified = modified
		}
		model, ok := models[f.Path]
		if !ok {
			if f.Path == ggufParts(f.Path)[0] { // the other parts are in the size of the first
				rest += f.Size
			}
			continue
		}
		e := base
		e.Name.File, e.Format, e.Bytes, e.Modified, e.Path = f.Path, FormatGGUF, model.Size, modified, at
		e.Model = e.Name.String()
		out = append(out, e)
	}
	whole, err := h.Find(base.Name)
	var missing *NotCachedError
	switch {
	case err == nil && whole.Format != FormatGGUF:
		base.Format = whole.Format
	case len(out) > 0:
		return out, nil
	case errors.As(err, &missing):
		base.Problem = missing.Why
	case err != nil:
		base.Problem = err.Error()
	}
	base.Model, base.Bytes = base.Name.String(), rest
	return append([]Entry{base}, out...), nil
}

// refs are the names of branches and tags by commit.
func (h *Hub) refs(repo string) (map[string][]string, error) {
	root := filepath.Join(h.repoDir(repo), "refs")
	out := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := readLimited(path, maxRefBytes)
		if err != nil {
			return nil // removed meanwhile, or no ref
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if commit := strings.TrimSpace(string(raw)); commitHash.MatchString(commit) && validRevision(filepath.ToSlash(name)) {
			out[commit] = append(out[commit], filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return out, nil
}

func (h *Hub) commits(repo string) ([]string, error) {
	dirs, err := os.ReadDir(filepath.Join(h.repoDir(repo), "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var out []string
	for _, d := range dirs {
		if d.IsDir() && commitHash.MatchString(d.Name()) {
			out = append(out, d.Name())
		}
	}
	return out, nil
}

// folderSize adds up the files of a folder; links count nothing.
func folderSize(dir string) (size int64, modified time.Time) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what cannot be seen is not counted
		}
		if st, err := d.Info(); err == nil {
			size += st.Size()
			if st.ModTime().After(modified) {
				modified = st.ModTime()
			}
		}
		return nil
	})
	return size, modified
}

// Removal is what removing a model would take from the cache.
type Removal struct {
	Name  Name
	Bytes int64    // freed on the disk
	Files []string // what goes, relative to the cache

	repo bool // nothing of the repository remains
}

// PlanRemoval says what removing a model would remove: all of a repository; one revision of it, when the name says one; or
// one file. Blobs that other revisions use stay.
func (h *Hub) PlanRemoval(n Name, allRevisions bool) (*Removal, error) {
	dir := h.repoDir(n.Repo)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, &NotCachedError{n, h.Cache, "nothing of it is there"}
	}
	r := &Removal{Name: n}
	if allRevisions && n.File == "" {
		r.repo = true
		r.Bytes, _ = folderSize(dir)
		r.Files = []string{repoFolder(n.Repo)}
		return r, nil
	}
	commit, err := h.cachedCommit(n.Repo, n.Revision)
	if err != nil {
		return nil, err
	}
	if commit == "" {
		return nil, &NotCachedError{n, h.Cache, "it has no revision " + n.Revision + " of it"}
	}
	commits, err := h.commits(n.Repo)
	if err != nil {
		return nil, err
	}
	goes, err := h.pointers(n.Repo, commit)
	if err != nil {
		return nil, err
	}
	if n.File != "" {
		c, err := choose(n, goes)
		if err != nil {
			return nil, &NotCachedError{n, h.Cache, err.Error()}
		}
		goes = slices.DeleteFunc(goes, func(f File) bool {
			return !slices.ContainsFunc(c.weights, func(w File) bool { return w.Path == f.Path })
		})
	} else if len(commits) == 1 && commits[0] == commit {
		return h.PlanRemoval(n, true)
	}
	gone := map[string]bool{}
	for _, f := range goes {
		gone[h.pointer(n.Repo, commit, f.Path)] = true
	}
	used, err := h.usedBlobs(n.Repo, commits, gone)
	if err != nil {
		return nil, err
	}
	h.addFiles(r, n, commit, goes, used)
	if n.File != "" {
		return r, nil
	}
	r.Files = append(r.Files, h.relative(h.treePath(n.Repo, commit, true)), h.relative(h.treePath(n.Repo, commit, false)))
	refs, err := h.refs(n.Repo)
	for _, ref := range refs[commit] {
		r.Files = append(r.Files, h.relative(h.ref(n.Repo, ref)))
	}
	r.Files = append(r.Files, h.relative(h.snapshot(n.Repo, commit)))
	return r, err
}

// addFiles adds pointers, and those of their blobs that nobody else uses.
func (h *Hub) addFiles(r *Removal, n Name, commit string, goes []File, used map[string]bool) {
	counted := map[string]bool{}
	for _, f := range goes {
		pointer := h.pointer(n.Repo, commit, f.Path)
		r.Files = append(r.Files, h.relative(pointer))
		blob := linkedBlob(pointer)
		switch {
		case blob == "": // the file itself, where links cannot be made
			if st, err := os.Lstat(pointer); err == nil {
				r.Bytes += st.Size()
			}
		case !used[blob] && !counted[blob] && filepath.Dir(blob) == filepath.Join(h.repoDir(n.Repo), "blobs"):
			counted[blob] = true
			if st, err := os.Lstat(blob); err == nil {
				if st.Mode().IsRegular() {
					r.Bytes += st.Size()
				}
				r.Files = append(r.Files, h.relative(blob))
			}
		}
	}
}

func (h *Hub) relative(path string) string {
	rel, err := filepath.Rel(h.Cache, path)
	if err != nil {
		panic("BUG: a path of the cache is outside it: " + path)
	}
	return rel
}

// pointers lists a snapshot's files, dangling links too.
func (h *Hub) pointers(repo, commit string) ([]File, error) {
	root := h.snapshot(repo, commit)
	var files []File
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, File{Path: filepath.ToSlash(rel), Size: -1})
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return files, nil
}

// usedBlobs are the blobs that the snapshots link to, but for the pointers that go.
func (h *Hub) usedBlobs(repo string, commits []string, gone map[string]bool) (map[string]bool, error) {
	used := map[string]bool{}
	for _, commit := range commits {
		files, err := h.pointers(repo, commit)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if p := h.pointer(repo, commit, f.Path); !gone[p] {
				if blob := linkedBlob(p); blob != "" {
					used[blob] = true
				}
			}
		}
	}
	return used, nil
}

// linkedBlob is where a pointer leads; "" when it is no link.
func linkedBlob(pointer string) string {
	to, err := os.Readlink(pointer)
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(pointer), to)
	}
	return filepath.Clean(to)
}

// Remove does what PlanRemoval said.
func (h *Hub) Remove(r *Removal) error {
	unlock, err := h.ownRepo(r.Name.Repo)
	if err != nil {
		return err
	}
	defer unlock()
	paths := make([]string, len(r.Files))
	for i, f := range r.Files {
		paths[i] = filepath.Join(h.Cache, f)
	}
	return removeAll(paths...)
}

func removeAll(paths ...string) error {
	for _, p := range paths {
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
	}
	return nil
}
