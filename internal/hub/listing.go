package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

const maxListingBytes = 32 << 20

// Listing is what a repository holds at a commit.
type Listing struct {
	Commit string
	Files  []File
}

var (
	sha1Hex   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// List asks the hub which files a repository has at a revision.
func (h *Hub) List(ctx context.Context, n Name) (*Listing, error) {
	return h.list(ctx, n, nil)
}

func (h *Hub) list(ctx context.Context, n Name, note func(string)) (*Listing, error) {
	if h.tokenErr != nil {
		return nil, h.tokenErr
	}
	if h.Offline {
		return nil, fmt.Errorf("hub: %s: HF_HUB_OFFLINE forbids to ask the network", n)
	}
	address := h.Endpoint + "/api/models/" + escapePath(n.Repo) + "/revision/" + url.PathEscape(n.Revision) + "?blobs=true"
	var raw []byte
	var host string
	err := h.retry(ctx, note, func() (bool, error) {
		resp, err := h.send(ctx, request{method: http.MethodGet, url: address, header: http.Header{"Accept": {"application/json"}}})
		if err != nil {
			return false, err
		}
		defer drain(resp.Response)
		host = resp.Request.URL.Host
		raw, err = io.ReadAll(io.LimitReader(resp.Body, maxListingBytes+1))
		if err != nil {
			return false, &networkError{host, err}
		}
		if title, ok := webPage(resp.Header.Get("Content-Type"), raw); ok {
			return false, &webPageError{host, title}
		}
		return false, nil
	})
	if err != nil {
		return nil, h.explain(ctx, n, "", err)
	}
	if len(raw) > maxListingBytes {
		return nil, fmt.Errorf("hub: %s: the list of files from %s is larger than %d bytes", n, host, maxListingBytes)
	}
	l, err := parseListing(raw)
	if err != nil {
		return nil, fmt.Errorf("hub: %s: the answer of %s %w", n, host, err)
	}
	return l, nil
}

// parseListing reads the hub's answer and refuses what could write outside the cache.
func parseListing(raw []byte) (*Listing, error) {
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Path   string `json:"rfilename"`
			Size   *int64 `json:"size"`
			BlobID string `json:"blobId"`
			LFS    *struct {
				SHA256 string `json:"sha256"`
				OID    string `json:"oid"`
				Size   *int64 `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, errors.New("is not the JSON of a list of files")
	}
	if !commitHash.MatchString(answer.SHA) {
		return nil, errors.New("names no commit (\"sha\")")
	}
	l := &Listing{Commit: answer.SHA}
	seen := map[string]bool{}
	for _, s := range answer.Siblings {
		if !validPath(s.Path) {
			return nil, fmt.Errorf("lists the file %q, which would lie outside the cache", s.Path)
		}
		if seen[s.Path] {
			return nil, fmt.Errorf("lists the file %q twice", s.Path)
		}
		seen[s.Path] = true
		f := File{Path: s.Path, Size: -1}
		if s.Size != nil {
			f.Size = *s.Size
		}
		if sha1Hex.MatchString(s.BlobID) {
			f.BlobID, f.Etag = s.BlobID, s.BlobID
		}
		if s.LFS != nil {
			f.Etag, f.BlobID = "", "" // of the pointer, not of the content
			if s.LFS.Size != nil {
				f.Size = *s.LFS.Size
			}
			for _, sum := range []string{s.LFS.SHA256, strings.TrimPrefix(s.LFS.OID, "sha256:")} {
				if sha256Hex.MatchString(sum) {
					f.SHA256, f.Etag = sum, sum
				}
			}
		}
		if f.Size < -1 {
			return nil, fmt.Errorf("lists the file %q with the size %d", s.Path, f.Size)
		}
		l.Files = append(l.Files, f)
	}
	if len(l.Files) == 0 {
		return nil, errors.New("lists no files: the repository is empty")
	}
	return l, nil
}

// escapePath escapes the parts of a path.
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

func (h *Hub) fileURL(repo, commit, path string) string {
	return h.Endpoint + "/" + escapePath(repo) + "/resolve/" + commit + "/" + escapePath(path)
}

// describe asks for what the list of files left open: a file's size and hash. Mirrors may leave both out.
func (h *Hub) describe(ctx context.Context, n Name, commit string, f *File, note func(string)) error {
	if f.Size >= 0 && f.Etag != "" {
		return nil
	}
	err := h.retry(ctx, note, func() (bool, error) {
		resp, err := h.send(ctx, request{method: http.MethodHead, url: h.fileURL(n.Repo, commit, f.Path), stay: true})
		if err != nil {
			return false, err
		}
		defer drain(resp.Response)
		get := func(names ...string) string {
			for _, name := range names {
				if v := resp.first.Get(name); v != "" {
					return v
				}
				if v := resp.Header.Get(name); v != "" {
					return v
				}
			}
			return ""
		}
		if at := get("X-Repo-Commit"); at != "" && at != commit {
			return false, fmt.Errorf("%s gives %s of commit %s, asked for %s", resp.Request.URL.Host, f.Path, at, commit)
		}
		etag := cleanEtag(get("X-Linked-Etag", "Etag"))
		if !safeEtag.MatchString(etag) {
			return false, fmt.Errorf("%s states no hash (ETag) of %s", resp.Request.URL.Host, f.Path)
		}
		f.Etag = etag
		if sha256Hex.MatchString(etag) {
			f.SHA256 = etag
		} else if sha1Hex.MatchString(etag) {
			f.BlobID = etag
		}
		if f.Size < 0 {
			size, err := strconv.ParseInt(get("X-Linked-Size", "Content-Length"), 10, 64)
			if err != nil || size < 0 {
				return false, fmt.Errorf("%s states no size of %s", resp.Request.URL.Host, f.Path)
			}
			f.Size = size
		}
		return false, nil
	})
	if err != nil {
		return h.explain(ctx, n, f.Path, err)
	}
	return nil
}

func cleanEtag(etag string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(etag), "W/"), `"`)
}

// explain says what an error means for whoever asked: what is missing, or what has to be done first.
func (h *Hub) explain(ctx context.Context, n Name, file string, err error) error {
	var s *statusError
	if !errors.As(err, &s) || ctx.Err() != nil {
		return fmt.Errorf("hub: %s: %w", n, err)
	}
	if home, parseErr := url.Parse(h.Endpoint); parseErr != nil || !strings.EqualFold(home.Host, s.host) {
		return fmt.Errorf("hub: %s: %w", n, err) // a storage host knows nothing of repositories
	}
	repo := Prefix + n.Repo
	page := h.Endpoint + "/" + n.Repo
	var what string
	switch {
	case s.code == "GatedRepo" || s.status == http.StatusForbidden && s.code == "":
		what = fmt.Sprintf("%s is gated: accept its licence at %s, and set HF_TOKEN to a token of that account", repo, page)
		if h.Token != "" {
			what = fmt.Sprintf("%s is gated, and the token that was sent has no access: accept its licence at %s with the token's account, and let the token read gated repositories", repo, page)
		}
	case s.status == http.StatusUnauthorized && h.Token != "" && s.code == "":
		what = "the hub does not accept the token in HF_TOKEN (or in the file that HF_TOKEN_PATH names)"
	case s.code == "RepoNotFound" || s.status == http.StatusUnauthorized:
		what = fmt.Sprintf("there is no repository %s, or it is private: check the name; for a private one set HF_TOKEN", n.Repo)
		if h.Token != "" {
			what = fmt.Sprintf("there is no repository %s, or the token that was sent may not see it", n.Repo)
		}
	case s.code == "RevisionNotFound":
		what = fmt.Sprintf("%s has no branch, tag or commit %q", repo, n.Revision)
	case s.code == "EntryNotFound":
		what = fmt.Sprintf("%s has no file %q at revision %s", repo, file, n.Revision)
	case s.status == http.StatusNotFound && file != "":
		what = fmt.Sprintf("%s has no file %q at revision %s", repo, file, n.Revision)
	case s.status == http.StatusNotFound:
		what = h.whatIsMissing(ctx, n)
	case s.status == http.StatusTooManyRequests:
		what = "the hub has had too many requests from here: wait a while, or set HF_TOKEN, which raises the limit"
	default:
		return fmt.Errorf("hub: %s: %w", n, err)
	}
	return fmt.Errorf("hub: %s (%w)", what, err)
}

// whatIsMissing tells repository and revision apart where a mirror's 404 does not say.
func (h *Hub) whatIsMissing(ctx context.Context, n Name) string {
	resp, err := h.send(ctx, request{method: http.MethodGet, url: h.Endpoint + "/api/models/" + escapePath(n.Repo)})
	if err == nil {
		drain(resp.Response)
		return fmt.Sprintf("%s%s has no branch, tag or commit %q", Prefix, n.Repo, n.Revision)
	}
	return fmt.Sprintf("there is no repository %s at %s", n.Repo, h.Endpoint)
}
