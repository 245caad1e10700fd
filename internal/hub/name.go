// Package hub downloads models from the Hugging Face hub, or from a mirror of it, into the cache that Hugging Face's own
// libraries use, and finds, lists and removes what is there.
//
// A model is named hf:ORG/NAME[@REV][:FILE]. Finding one in the cache needs no network. What is downloaded is checked
// against the hashes that the hub states before it gets its final name, so a file in the cache is whole.
//
// It knows no engine: which files of a repository are wanted is the little that select.go says.
package hub

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// Prefix begins the names of models of the hub.
const Prefix = "hf:"

// DefaultRevision is the branch that is meant when a name says none.
const DefaultRevision = "main"

// Name is a model of the hub.
type Name struct {
	Repo     string // ORG/NAME, or NAME alone for a few old repositories
	Revision string // branch, tag or commit; never empty
	File     string // a file of the repository, or part of the name of one .gguf (Q4_K_M); empty: what the engine needs
}

// IsName says whether a model's name is one of the hub's.
func IsName(model string) bool { return strings.HasPrefix(model, Prefix) }

const nameForm = "hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME:FILE"

var (
	repoPart   = regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?$`)
	commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ParseName reads hf:ORG/NAME[@REV][:FILE]. hf://ORG/NAME[@REV][/FILE] is the same.
func ParseName(model string) (Name, error) {
	rest, ok := strings.CutPrefix(model, Prefix)
	if !ok {
		return Name{}, fmt.Errorf("model %q: want %s", model, nameForm)
	}
	n := Name{Revision: DefaultRevision}
	if uri, ok := strings.CutPrefix(rest, "//"); ok {
		rest = uri
		if parts := strings.SplitN(uri, "/", 3); len(parts) == 3 && !strings.Contains(parts[0]+parts[1], ":") {
			rest, n.File = parts[0]+"/"+parts[1], parts[2]
		}
	}
	repo, file, hasFile := strings.Cut(rest, ":")
	if hasFile {
		if n.File != "" || file == "" {
			return Name{}, fmt.Errorf("model %q: want %s", model, nameForm)
		}
		n.File = file
	}
	repo, rev, hasRev := strings.Cut(repo, "@")
	if hasRev {
		n.Revision = rev
	}
	n.Repo = repo
	if !validRepo(n.Repo) {
		return Name{}, fmt.Errorf("model %q: %q is not the name of a repository; want %s", model, repo, nameForm)
	}
	if !validRevision(n.Revision) {
		return Name{}, fmt.Errorf("model %q: %q is not a branch, a tag or a commit", model, n.Revision)
	}
	if n.File != "" && !validPath(n.File) {
		return Name{}, fmt.Errorf("model %q: %q is not the path of a file in a repository", model, n.File)
	}
	return n, nil
}

// String writes the name as ParseName reads it.
func (n Name) String() string {
	s := Prefix + n.Repo
	if n.Revision != DefaultRevision && n.Revision != "" {
		s += "@" + n.Revision
	}
	if n.File != "" {
		s += ":" + n.File
	}
	return s
}

// validRepo follows the rules of the hub: one or two parts of letters, digits, dots, hyphens and underscores, without two
// hyphens or dots in a row (two hyphens stand for the slash in the cache).
func validRepo(repo string) bool {
	parts := strings.Split(repo, "/")
	if len(parts) > 2 || len(repo) > 96 || strings.Contains(repo, "--") || strings.Contains(repo, "..") {
		return false
	}
	for _, p := range parts {
		if !repoPart.MatchString(p) {
			return false
		}
	}
	return true
}

func validRevision(rev string) bool {
	return validPath(rev) && !strings.ContainsAny(rev, " :?*[~^@")
}

// validPath says whether a path stays inside the folder that it is put in, on every system.
func validPath(name string) bool {
	if !fs.ValidPath(name) || name == "." || len(name) > 1024 || strings.ContainsAny(name, "\\:") {
		return false
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}
