package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The layout of the cache is the one that the hub documents (https://huggingface.co/docs/hub/local-cache):
//
//	models--ORG--NAME/blobs/ETAG                 a file's content, under its sha256 (LFS) or the sha1 that git gives it
//	models--ORG--NAME/snapshots/COMMIT/PATH      a link to ../../blobs/ETAG; the file itself where there are no links
//	models--ORG--NAME/refs/BRANCH                the commit that the branch was at when it was last asked for
//	models--ORG--NAME/.pagelight/COMMIT.json     what files the commit has, with sizes and hashes; only known here
//	.locks/models--ORG--NAME/ETAG.lock           held while the blob is written

const (
	folderPrefix = "models--"
	incomplete   = ".incomplete" // ends the name of a blob that is being downloaded

	maxTreeBytes = 32 << 20
	maxRefBytes  = 1 << 10
)

// NotCachedError says that a model of the hub is not in the cache, or not all of it.
type NotCachedError struct {
	Name  Name
	Cache string
	Why   string
}

// Error says how to get the model.
func (e *NotCachedError) Error() string {
	return fmt.Sprintf("%s is not in the cache %s: %s; get it with: pagelight pull %s", e.Name, e.Cache, e.Why, e.Name)
}

func repoFolder(repo string) string { return folderPrefix + strings.ReplaceAll(repo, "/", "--") }

func (h *Hub) repoDir(repo string) string { return filepath.Join(h.Cache, repoFolder(repo)) }

func (h *Hub) blob(repo, etag string) string { return filepath.Join(h.repoDir(repo), "blobs", etag) }

func (h *Hub) snapshot(repo, commit string) string {
	return filepath.Join(h.repoDir(repo), "snapshots", commit)
}

func (h *Hub) pointer(repo, commit, path string) string {
	return filepath.Join(h.snapshot(repo, commit), filepath.FromSlash(path))
}

func (h *Hub) ref(repo, rev string) string {
	return filepath.Join(h.repoDir(repo), "refs", filepath.FromSlash(rev))
}

// Model is a model in the cache.
type Model struct {
	Path   string // a folder that can be opened, or the .gguf file
	Commit string
	Format Format
}

// Find finds a model in the cache; it asks no network. A *NotCachedError says that it is not there as a whole.
func (h *Hub) Find(n Name) (Model, error) {
	missing := func(format string, args ...any) error {
		return &NotCachedError{n, h.Cache, fmt.Sprintf(format, args...)}
	}
	commit, err := h.cachedCommit(n.Repo, n.Revision)
	if err != nil {
		return Model{}, err
	}
	if commit == "" {
		return Model{}, missing("it has no revision %s of %s", n.Revision, n.Repo)
	}
	there, err := h.snapshotFiles(n.Repo, commit)
	if err != nil {
		return Model{}, err
	}
	present := fileMap(there)
	listed := h.readTree(n.Repo, commit)
	if listed == nil {
		listed = there // a library that keeps no list has filled this snapshot; what is there has to do
	}
	c, err := choose(n, listed)
	if err != nil {
		var none *noModelError
		if errors.As(err, &none) {
			return Model{}, missing("%s", none.why)
		}
		return Model{}, err
	}
	if c.index != "" {
		raw, err := readLimited(h.pointer(n.Repo, commit, c.index), maxIndexBytes)
		if err != nil {
			return Model{}, missing("%s is missing", c.index)
		}
		if err := c.addListed(raw, fileMap(listed)); err != nil {
			return Model{}, missing("%v", err)
		}
	}
	for _, f := range c.needed(present) {
		if got, ok := present[f.Path]; !ok || f.Size >= 0 && got.Size != f.Size {
			return Model{}, missing("%s is missing", f.Path)
		}
	}
	return Model{Path: h.modelPath(n.Repo, commit, &c), Commit: commit, Format: c.format}, nil
}

// modelPath is what the engine opens.
func (h *Hub) modelPath(repo, commit string, c *choice) string {
	if c.file != "" {
		return h.pointer(repo, commit, c.file)
	}
	return h.snapshot(repo, commit)
}

// cachedCommit is the commit of a revision as the cache knows it, "" when it does not.
func (h *Hub) cachedCommit(repo, rev string) (string, error) {
	if commitHash.MatchString(rev) {
		if _, err := os.Stat(h.snapshot(repo, rev)); err != nil {
			return "", nil
		}
		return rev, nil
	}
	raw, err := readLimited(h.ref(repo, rev), maxRefBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	commit := strings.TrimSpace(string(raw))
	if !commitHash.MatchString(commit) {
		return "", fmt.Errorf("hub: %s holds no commit; remove the file", h.ref(repo, rev))
	}
	return commit, nil
}

// snapshotFiles lists the files of a snapshot that are whole; links to blobs that are gone do not count.
func (h *Hub) snapshotFiles(repo, commit string) ([]File, error) {
	root := h.snapshot(repo, commit)
	var files []File
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return fs.SkipAll
		}
		if err != nil || d.IsDir() {
			return err
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files = append(files, File{Path: filepath.ToSlash(rel), Size: st.Size()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return files, nil
}

// link puts a blob into a snapshot. Where links cannot be made it moves the blob there when it is fresh, and copies it when
// other snapshots may have it too.
func (h *Hub) link(repo, commit string, f *File, fresh bool) error {
	pointer, blob := h.pointer(repo, commit, f.Path), h.blob(repo, f.Etag)
	if err := os.MkdirAll(filepath.Dir(pointer), 0o777); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	target, err := filepath.Rel(filepath.Dir(pointer), blob)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	// A new name first, then a rename: whoever reads the snapshot meanwhile sees the old file or the new one.
	next := pointer + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hub: %w", err)
	}
	made := errors.ErrUnsupported
	if !h.NoSymlinks {
		made = os.Symlink(target, next)
	}
	switch {
	case made == nil:
	case fresh:
		next = blob
	default:
		if err := copyFile(next, blob); err != nil {
			return fmt.Errorf("hub: %w", errors.Join(err, os.Remove(next)))
		}
	}
	if err := os.Rename(next, pointer); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// writeRef notes which commit a branch or a tag is at.
func (h *Hub) writeRef(repo, rev, commit string) error {
	if rev == commit {
		return nil
	}
	return writeWhole(h.ref(repo, rev), []byte(commit))
}

// writeWhole writes a small file under another name first, so that nobody reads half of it.
func writeWhole(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("hub: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// readLimited reads a small file.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return raw, err
}

// tree is the list of a commit's files. It has the form that huggingface_hub gives to trees/COMMIT.json since version 2
// (format_version 1), and those are read too. Ours lies elsewhere: that library takes its list for a promise, and would
// call a snapshot that has only what the engine needs broken.
type tree struct {
	Version int                  `json:"format_version"`
	Files   map[string]treeEntry `json:"files"`
}

type treeEntry struct {
	Size   int64  `json:"size"`
	BlobID string `json:"blob_id"`
	SHA256 string `json:"lfs_sha256,omitempty"`
}

// treePath is where the list of a commit is: ours, or the other library's.
func (h *Hub) treePath(repo, commit string, ours bool) string {
	folder := "trees"
	if ours {
		folder = ".pagelight"
	}
	return filepath.Join(h.repoDir(repo), folder, commit+".json")
}

// writeTree keeps the list of a commit's files.
func (h *Hub) writeTree(repo string, l *Listing) error {
	t := tree{Version: 1, Files: make(map[string]treeEntry, len(l.Files))}
	for _, f := range l.Files {
		t.Files[f.Path] = treeEntry{Size: f.Size, BlobID: f.BlobID, SHA256: f.SHA256}
	}
	raw, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return writeWhole(h.treePath(repo, l.Commit, true), raw)
}

// readTree is the list of a commit's files; nil when there is none that can be trusted.
func (h *Hub) readTree(repo, commit string) []File {
	for _, ours := range []bool{true, false} {
		raw, err := readLimited(h.treePath(repo, commit, ours), maxTreeBytes)
		if err != nil {
			continue
		}
		if files := parseTree(raw); files != nil {
			return files
		}
	}
	return nil
}

// parseTree reads a list; nil when it is damaged or of another version.
func parseTree(raw []byte) []File {
	var t tree
	if json.Unmarshal(raw, &t) != nil || t.Version != 1 || len(t.Files) == 0 {
		return nil
	}
	files := make([]File, 0, len(t.Files))
	for path, e := range t.Files {
		if !validPath(path) || e.Size < -1 {
			return nil
		}
		files = append(files, File{Path: path, Size: e.Size, Etag: e.etag()})
	}
	return files
}

func (e *treeEntry) etag() string {
	if e.SHA256 != "" {
		return e.SHA256
	}
	return e.BlobID
}

var safeEtag = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$`)

// tagCache marks the cache for backup programs, which may skip it (https://bford.info/cachedir/).
func (h *Hub) tagCache() error {
	path := filepath.Join(h.Cache, "CACHEDIR.TAG")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return writeWhole(path, []byte("Signature: 8a477f597d28d172789f06886806bc55\n# Files in this folder can be downloaded again from the Hugging Face hub.\n"))
}
