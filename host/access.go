package host

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/pagelight/pagelight/internal/openai"
)

// access decides which pages may use the API and under which names this host may be reached. A browser that was tricked by
// DNS into taking this host for evil.example sends "Host: evil.example"; a page of another origin sends its Origin. Both
// are refused.
type access struct {
	all     bool
	origins map[string]bool // "https://chat.example", "null"
	hosts   map[string]bool // names without port
	anyHow  map[string]bool // entries without a scheme: with port where they have one
}

func newAccess(entries []string, listenHost string) (*access, error) {
	a := &access{origins: map[string]bool{}, hosts: map[string]bool{"localhost": true}, anyHow: map[string]bool{}}
	if listenHost != "" {
		a.hosts[hostName(listenHost)] = true
	}
	for _, entry := range entries {
		entry = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(entry), "/"))
		switch {
		case entry == "*":
			a.all = true
		case entry == "null":
			a.origins[entry] = true
		case strings.Contains(entry, "://"):
			u, err := url.Parse(entry)
			if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil || strings.Contains(u.Host, "*") {
				return nil, fmt.Errorf("host: %q is not an origin such as https://chat.example", entry)
			}
			host := u.Host
			switch u.Scheme { // browsers leave the usual port out
			case "https":
				host = strings.TrimSuffix(host, ":443")
			case "http":
				host = strings.TrimSuffix(host, ":80")
			}
			a.origins[u.Scheme+"://"+host] = true
			a.hosts[hostName(host)] = true
		case entry == "" || strings.ContainsAny(entry, "/*?#@ "):
			return nil, fmt.Errorf("host: %q is not an origin such as https://chat.example", entry)
		default:
			a.anyHow[entry] = true
			a.hosts[hostName(entry)] = true
		}
	}
	return a, nil
}

// hostName is a host without its port, in lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// hostAllowed says whether this host may be reached under the name in the Host header. Addresses always do: DNS has no
// part in them.
func (a *access) hostAllowed(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return a.all || a.hosts[name]
}

// originListed says whether an origin is one of the configured ones.
func (a *access) originListed(origin string) bool {
	origin = strings.ToLower(origin)
	if a.all || a.origins[origin] {
		return true
	}
	_, host, ok := strings.Cut(origin, "://")
	return ok && a.anyHow[host]
}

// sameOrigin says whether the request comes from a page of this very host. The scheme is not compared: behind a proxy that
// ends TLS it is not known here.
func sameOrigin(r *http.Request, origin string) bool {
	_, host, ok := strings.Cut(origin, "://")
	return ok && strings.EqualFold(host, r.Host)
}

// guard refuses foreign hosts and origins.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.hostAllowed(r.Host) {
			writeError(w, openai.NewError(http.StatusForbidden, "host_not_allowed", "",
				fmt.Sprintf("this server does not answer as host %.100q; --allowed-origins can allow it", r.Host)))
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && !sameOrigin(r, origin) && !a.originListed(origin) {
			writeError(w, openai.NewError(http.StatusForbidden, "origin_not_allowed", "",
				fmt.Sprintf("pages of origin %.100q may not use this server; --allowed-origins can allow them", origin)))
			return
		}
		if r.Method == http.MethodOptions { // a preflight; cors has set its headers
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cors tells browsers that pages of the configured origins may read answers.
func (a *access) cors(next http.Handler) http.Handler {
	if !a.all && len(a.origins)+len(a.anyHow) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		h := w.Header()
		h.Add("Vary", "Origin")
		if origin != "" && a.originListed(origin) {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", "X-Request-Id, X-Pagelight-Ignored, Retry-After")
			if r.Method == http.MethodOptions {
				h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
				// Client libraries send many headers of their own; none of them means anything here.
				if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
					h.Set("Access-Control-Allow-Headers", asked)
				}
				if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
					h.Set("Access-Control-Allow-Private-Network", "true")
				}
				h.Set("Access-Control-Max-Age", "600")
			}
		}
		next.ServeHTTP(w, r)
	})
}

// keySubprotocol begins the subprotocol by which a page gives the key for a WebSocket.
const keySubprotocol = "bearer."

// authenticate asks for the key where one is configured.
func (s *Server) authenticate(next http.Handler) http.Handler {
	if s.cfg.APIKey == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.keyMatches(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="pagelight"`)
			writeError(w, openai.NewError(http.StatusUnauthorized, "invalid_api_key", "",
				"this server needs its API key, as the header \"Authorization: Bearer KEY\""))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) keyMatches(r *http.Request) bool {
	matches := func(key string) bool {
		sum := sha256.Sum256([]byte(key)) // equal lengths, so that comparing tells nothing of the key's
		return subtle.ConstantTimeCompare(sum[:], s.keySum[:]) == 1
	}
	if scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return matches(strings.TrimSpace(key))
	}
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			if key, ok := strings.CutPrefix(strings.TrimSpace(name), keySubprotocol); ok {
				return matches(key)
			}
		}
	}
	return false
}
