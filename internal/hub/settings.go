package hub

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// DefaultEndpoint is the hub that is asked when nobody says.
const DefaultEndpoint = "https://huggingface.co"

// Hub is a hub and a cache. Its methods may be called by several goroutines, and several processes may share one cache.
type Hub struct {
	Cache    string // folder of the cache, which need not exist
	Endpoint string // scheme and host of the hub, and a path where a mirror has one
	Token    string // sent to Endpoint and to nowhere else; empty: none
	Offline  bool   // ask no network

	NoSymlinks bool   // put files into snapshots instead of links to blobs
	UserAgent  string // what requests say that they come from

	// Transport makes the requests; nil is one that honours HTTPS_PROXY and NO_PROXY.
	Transport http.RoundTripper
	// Wait pauses between attempts; nil waits by the clock. Tests replace it.
	Wait func(time.Duration)
	// Stall is the silence after which a connection is given up and made anew; 0 is a minute.
	Stall time.Duration

	tokenErr error // why there is no Token; told when the network is asked, for the cache needs none
	once     sync.Once
	made     http.RoundTripper // Transport, or the one that stands for nil
}

// FromEnv is the hub and the cache that Hugging Face's environment variables describe:
//
//	HF_HOME         folder of cache and token; default $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface
//	HF_HUB_CACHE    the cache; default $HF_HOME/hub
//	HF_TOKEN        the token; else the content of $HF_TOKEN_PATH, by default $HF_HOME/token
//	HF_ENDPOINT     a mirror
//	HF_HUB_OFFLINE  1 asks no network; so does TRANSFORMERS_OFFLINE
//
// HF_HUB_DISABLE_SYMLINKS and HF_HUB_DISABLE_IMPLICIT_TOKEN mean what they mean there. getenv is os.Getenv.
func FromEnv(getenv func(string) string) (*Hub, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if v := strings.TrimSpace(getenv(name)); v != "" {
				return v
			}
		}
		return ""
	}
	yes := func(names ...string) bool {
		switch strings.ToLower(first(names...)) {
		case "1", "on", "yes", "true", "y", "t":
			return true
		}
		return false
	}
	folder := func(names ...string) (string, error) {
		v := os.Expand(first(names...), getenv)
		if v == "~" || strings.HasPrefix(v, "~/") {
			dir, err := homeDir(getenv)
			return filepath.Join(dir, strings.TrimPrefix(v, "~")), err
		}
		return v, nil
	}
	home, err := folder("HF_HOME")
	if err == nil && home == "" {
		if home, err = folder("XDG_CACHE_HOME"); home != "" {
			home = filepath.Join(home, "huggingface")
		}
	}
	if err == nil && home == "" {
		if home, err = homeDir(getenv); err == nil {
			home = filepath.Join(home, ".cache", "huggingface")
		}
	}
	h := &Hub{
		Endpoint: DefaultEndpoint, Offline: yes("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), NoSymlinks: yes("HF_HUB_DISABLE_SYMLINKS"),
		UserAgent: "pagelight",
	}
	cache, cacheErr := folder("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
	switch {
	case cacheErr != nil:
		return nil, cacheErr
	case cache != "":
		h.Cache = cache
	case err != nil:
		return nil, err
	default:
		h.Cache = filepath.Join(home, "hub")
	}
	if h.Cache, err = filepath.Abs(h.Cache); err != nil {
		return nil, err
	}
	if e := first("HF_ENDPOINT"); e != "" {
		if h.Endpoint, err = checkEndpoint(e); err != nil {
			return nil, err
		}
	}
	path, err := folder("HF_TOKEN_PATH")
	if err != nil {
		return nil, err
	}
	if path == "" && home != "" {
		path = filepath.Join(home, "token")
	}
	h.Token, h.tokenErr = readToken(first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), path, yes("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
	return h, nil
}

func homeDir(getenv func(string) string) (string, error) {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if v := getenv(name); v != "" {
			return v, nil
		}
	}
	return "", fmt.Errorf("hub: there is no home folder: set HF_HOME, the folder for the cache of models")
}

func checkEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(strings.TrimRight(endpoint, "/"))
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("hub: HF_ENDPOINT %q is not the address of a hub; want one like %s", endpoint, DefaultEndpoint)
	}
	return u.String(), nil
}

// readToken takes the stated token, else the one in the file, where there is one. implicitOff leaves the file alone.
func readToken(stated, path string, implicitOff bool) (string, error) {
	from := "HF_TOKEN"
	if stated == "" && path != "" && !implicitOff {
		raw, err := os.ReadFile(path)
		if err != nil {
			return "", nil // none was saved, or it is not ours to read
		}
		stated, from = strings.TrimSpace(string(raw)), path
	}
	for _, r := range stated {
		if r <= ' ' || r > '~' { // such a header would not be sent, and the error would print it
			return "", fmt.Errorf("hub: the token in %s has characters that no token has", from)
		}
	}
	return stated, nil
}
