package hub

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pagelight/pagelight/internal/hub/hubtest"
)

const portal = `<!DOCTYPE html><html><head><title>Welcome to
 Airport WiFi</title></head><body>Log in</body></html>`

// TestErrorsSayWhatToDo: each fault of a server, and the words that whoever reads the error needs.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	page := func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(portal))
		return true
	}
	status := func(code int) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			fmt.Fprint(w, "<html><title>504 Gateway</title></html>")
			return true
		}
	}
	listing := func(text string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, text)
			return true
		}
	}
	sibling := func(path string) string {
		return fmt.Sprintf(`{"sha":%q,"siblings":[{"rfilename":%q,"size":1,"blobId":%q}]}`, hubtest.Commit, path, strings.Repeat("a", 40))
	}
	for name, c := range map[string]struct {
		model string
		setup func(f *hubtest.Server, h *Hub)
		says  []string
	}{
		"no repository":         {"hf:org/other", nil, []string{"there is no repository org/other, or it is private", "HF_TOKEN", "404"}},
		"no revision":           {"hf:org/name@v9", nil, []string{`hf:org/name has no branch, tag or commit "v9"`}},
		"no file":               {"hf:org/name:nope.gguf", nil, []string{`hf:org/name:nope.gguf: there is no file "nope.gguf"`}},
		"mirror, no repository": {"hf:org/other", func(f *hubtest.Server, _ *Hub) { f.API = plain404(false) }, []string{"there is no repository org/other at http://"}},
		"mirror, no revision":   {"hf:org/name@v9", func(f *hubtest.Server, _ *Hub) { f.API = plain404(true) }, []string{`has no branch, tag or commit "v9"`}},
		"gated, no token":       {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.Token = "hf_x" }, []string{"hf:org/name is gated: accept its licence at http", "/org/name, and set HF_TOKEN", "restricted"}},
		"gated, token":          {"hf:org/name", func(f *hubtest.Server, h *Hub) { f.Token, h.Token = "hf_x", "hf_secret" }, []string{"the token that was sent has no access"}},
		"gated files":           {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.Resolve = gated }, []string{"is gated: accept its licence"}},
		"bad token":             {"hf:org/name", func(f *hubtest.Server, h *Hub) { f.API, h.Token = plainStatus(401), "hf_secret" }, []string{"does not accept the token in HF_TOKEN"}},
		"too many requests":     {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = plainStatus(429) }, []string{"too many requests", "429", "6 attempts"}},
		"broken for good":       {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = status(504) }, []string{"504", `504 Gateway`, "6 attempts"}},
		"storage broken":        {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.Store = status(503) }, []string{"503"}},
		"storage refuses":       {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.Store = status(403) }, []string{"403"}},
		"portal for the list":   {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = page }, []string{`a web page ("Welcome to Airport WiFi") instead of data`, "HF_ENDPOINT"}},
		"portal for a file":     {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.Store = page }, []string{`a web page ("Welcome to Airport WiFi") instead of data`}},
		"not JSON":              {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = listing("hello") }, []string{"is not the JSON of a list of files"}},
		"no commit":             {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = listing(`{"sha":"../../x","siblings":[]}`) }, []string{"names no commit"}},
		"empty": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			f.API = listing(fmt.Sprintf(`{"sha":%q,"siblings":[]}`, hubtest.Commit))
		}, []string{"lists no files"}},
		"climbs out":             {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = listing(sibling("../../../etc/passwd")) }, []string{`lists the file "../../../etc/passwd", which would lie outside the cache`}},
		"absolute":               {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = listing(sibling("/etc/passwd")) }, []string{"outside the cache"}},
		"backslashes":            {"hf:org/name", func(f *hubtest.Server, _ *Hub) { f.API = listing(sibling(`..\..\x`)) }, []string{"outside the cache"}},
		"other kinds of weights": {"hf:org/name", func(f *hubtest.Server, _ *Hub) { delete(f.Files, "model.safetensors") }, []string{"there are no weights that can be read", "ONNX, PyTorch", "safetensors or GGUF"}},
		"index climbs out": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			delete(f.Files, "model.safetensors")
			f.Files["model.safetensors.index.json"] = []byte(`{"weight_map":{"a":"../../../x.safetensors"}}`)
		}, []string{`names the file "../../../x.safetensors", which would lie outside`}},
		"index names what is not there": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			delete(f.Files, "model.safetensors")
			f.Files["model.safetensors.index.json"] = []byte(`{"weight_map":{"a":"x.safetensors"}}`)
		}, []string{"model.safetensors.index.json names x.safetensors, which is missing"}},
		"several gguf": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			f.Files = map[string][]byte{"a-Q4_0.gguf": hubtest.Noise(2048, 1), "a-Q8_0.gguf": hubtest.Noise(4096, 2), "mmproj-a.gguf": nil, "README.md": nil}
		}, []string{"several models", "a-Q4_0.gguf (2 KiB)", "a-Q8_0.gguf (4 KiB)", "hf:org/name:a-Q4_0.gguf"}},
		"a missing part": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			f.Files = map[string][]byte{"a-00001-of-00002.gguf": nil, "b-00002-of-00003.gguf": nil}
		}, []string{"a-00001-of-00002.gguf is one of several parts, and a-00002-of-00002.gguf is missing"}},
		"loop": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			f.Store = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, r.URL.String(), http.StatusFound)
				return true
			}
		}, []string{"more than 10 redirects"}},
		"another hash": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			f.Resolve = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Linked-Etag", `"`+strings.Repeat("c", 64)+`"`)
				_, _ = w.Write([]byte("{}"))
				return true
			}
		}, []string{"states another hash"}},
		"offline": {"hf:org/name", func(_ *hubtest.Server, h *Hub) { h.Offline = true }, []string{"HF_HUB_OFFLINE"}},
		"nobody there": {"hf:org/name", func(f *hubtest.Server, _ *Hub) {
			f.Close()
		}, []string{"connection to 127.0.0.1", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := hubtest.New(t, hubtest.Checkpoint())
			h := hubOf(t, f)
			if c.setup != nil {
				c.setup(f, h)
				for file := range f.Files {
					f.LFS[file] = strings.HasSuffix(file, ".safetensors") || strings.HasSuffix(file, ".gguf")
				}
			}
			_, err := h.Pull(t.Context(), mustName(t, c.model), PullOptions{Jobs: 1})
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.says {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			for _, secret := range []string{"hf_secret", "Signature"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q says %q", err, secret)
				}
			}
		})
	}
}

func plainStatus(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

// plain404 is a mirror that does not say what is missing.
func plain404(repoThere bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if repoThere && !strings.Contains(r.URL.Path, "/revision/") {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	}
}

func gated(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, ".safetensors") {
		return false
	}
	hubtest.Fail(w, http.StatusUnauthorized, "GatedRepo")
	return true
}

func TestRetryAfterIsFollowed(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	h := hubOf(t, f)
	var waited []time.Duration
	h.Wait = func(d time.Duration) { waited = append(waited, d) }
	n := 0
	f.API = func(w http.ResponseWriter, _ *http.Request) bool {
		n++
		switch n {
		case 1:
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		default:
			return false
		}
		return true
	}
	if _, err := h.List(t.Context(), mustName(t, "hf:org/name")); err != nil {
		t.Fatal(err)
	}
	if len(waited) != 2 || waited[0] != 17*time.Second || waited[1] != 2*time.Second {
		t.Errorf("waited %v", waited)
	}
	n = 0
	f.API = func(w http.ResponseWriter, _ *http.Request) bool {
		n++
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	if _, err := h.List(t.Context(), mustName(t, "hf:org/name")); err == nil || !strings.Contains(err.Error(), "come back in 1h0m0s") || n != 1 {
		t.Errorf("an hour: %v after %d requests", err, n)
	}
}

// TestTokenGoesToTheHubOnly: neither the storage host, nor another port of the same name, nor the hub after a detour, nor
// the hub over http when its address is https gets it.
func TestTokenGoesToTheHubOnly(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	f.Token = "hf_secret"
	h := hubOf(t, f)
	h.Token = "hf_secret"
	if _, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(f.Leaked()) > 0 || f.Count("/storage/") == 0 {
		t.Errorf("the storage host got the token for %q", f.Leaked())
	}

	var seen []string
	other := &Hub{Endpoint: "https://hub.example", Token: "hf_secret", Transport: roundTrip(func(r *http.Request) *http.Response {
		seen = append(seen, fmt.Sprintf("%s %q", r.URL, r.Header.Get("Authorization")))
		w := httptest.NewRecorder()
		switch r.URL.String() {
		case "https://hub.example/a":
			http.Redirect(w, r, "https://HUB.example:443/b", http.StatusFound)
		case "https://HUB.example:443/b":
			http.Redirect(w, r, "https://cdn.hub.example/c", http.StatusTemporaryRedirect)
		case "https://cdn.hub.example/c":
			http.Redirect(w, r, "https://hub.example/d", http.StatusFound)
		case "https://hub.example/d":
			http.Redirect(w, r, "http://hub.example/e", http.StatusFound)
		case "https://hub.example/f":
			http.Redirect(w, r, "http://hub.example/g", http.StatusFound)
		case "https://hub.example/h":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}
		resp := w.Result()
		resp.Request = r
		return resp
	})}
	for _, c := range []struct {
		path    string
		checked bool
		says    string
		seen    []string
	}{
		{"/a", true, "", []string{
			`https://hub.example/a "Bearer hf_secret"`, `https://HUB.example:443/b "Bearer hf_secret"`, `https://cdn.hub.example/c ""`,
			`https://hub.example/d ""`, `http://hub.example/e ""`,
		}},
		{"/f", true, "", []string{`https://hub.example/f "Bearer hf_secret"`, `http://hub.example/g ""`}},
		{"/f", false, "redirects from https to http", []string{`https://hub.example/f "Bearer hf_secret"`}},
		{"/h", true, "no web address", []string{`https://hub.example/h "Bearer hf_secret"`}},
	} {
		seen = nil
		resp, err := other.send(t.Context(), request{method: http.MethodGet, url: "https://hub.example" + c.path, checked: c.checked})
		if err == nil {
			drain(resp.Response)
		}
		if got := fmt.Sprint(err); (err == nil) != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %v, want %q", c.path, err, c.says)
		}
		if fmt.Sprint(seen) != fmt.Sprint(c.seen) {
			t.Errorf("%s: requests %q, want %q", c.path, seen, c.seen)
		}
	}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// TestMirrorWithoutSizesBelowAPath: such a mirror is asked for each file's hash and size by HEAD.
func TestMirrorWithoutSizesBelowAPath(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	f.NoSizes, f.Prefix = true, "/mirror/hf"
	h := hubOf(t, f)
	p, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, p.Path, only(f.Files, wanted...))
	if n := f.Count("HEAD /mirror/hf/org/name/resolve/"); n != len(wanted) {
		t.Errorf("%d HEAD requests, want %d", n, len(wanted))
	}
	if _, err := h.Find(mustName(t, "hf:org/name")); err != nil {
		t.Error(err)
	}
}

// TestMirrorWithoutHashesOfLargeFiles says of LFS files that they are such, and no more: their hash comes from HEAD, and is checked.
func TestMirrorWithoutHashesOfLargeFiles(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, hubtest.Checkpoint())
	f.API = func(w http.ResponseWriter, _ *http.Request) bool {
		fmt.Fprintf(w, `{"sha":%q,"siblings":[`, hubtest.Commit)
		for i, name := range wanted {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"rfilename":%q,"size":%d,"blobId":%q`, name, len(f.Files[name]), strings.Repeat("d", 40))
			if f.LFS[name] {
				fmt.Fprint(w, `,"lfs":{}}`)
			} else {
				fmt.Fprintf(w, `,"blobId":%q}`, hubtest.GitHash(f.Files[name]))
			}
		}
		fmt.Fprint(w, "]}")
		return true
	}
	h := hubOf(t, f)
	for range 2 { // the second time with what is there
		p, err := h.Pull(t.Context(), mustName(t, "hf:org/name"), PullOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		checkSnapshot(t, p.Path, only(f.Files, wanted...))
	}
	if got, want := f.BytesOf("model.safetensors"), int64(len(f.Files["model.safetensors"])); got != want {
		t.Errorf("%d bytes of the weights were sent, want %d", got, want)
	}
}

// TestNamesWithoutAddressFailAtOnce: waiting does not help where there is no network.
func TestNamesWithoutAddressFailAtOnce(t *testing.T) {
	t.Parallel()
	h := &Hub{Cache: t.TempDir(), Endpoint: "https://no-such-host.invalid", Wait: func(time.Duration) { t.Error("waited") }}
	_, err := h.List(t.Context(), mustName(t, "hf:org/name"))
	var network *networkError
	if !errors.As(err, &network) || !strings.Contains(err.Error(), "no-such-host.invalid") {
		t.Skipf("SKIPPED: this network answers for names that do not exist: %v", err)
	}
	if !strings.Contains(err.Error(), "HF_ENDPOINT") {
		t.Errorf("%v", err)
	}
}
