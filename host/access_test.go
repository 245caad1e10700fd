package host

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHostsAndOrigins(t *testing.T) {
	t.Parallel()
	open := Config{}
	listed := Config{AllowedOrigins: []string{"https://Chat.example/", "http://plain.example:80", "bare.example:9000", "null"}, ListenHost: "box.lan"}
	all := Config{AllowedOrigins: []string{"*"}}
	for _, c := range []struct {
		cfg          Config
		host, origin string
		want         int
		cors         bool
	}{
		{open, "localhost", "", 200, false},
		{open, "LOCALHOST:8000", "", 200, false},
		{open, "localhost.", "", 200, false},
		{open, "127.0.0.1:8000", "", 200, false},
		{open, "[::1]:8000", "", 200, false},
		{open, "[::1]", "", 200, false},
		{open, "192.168.1.5:8000", "", 200, false}, // an address is not a matter of DNS
		{open, "evil.example", "", 403, false},
		{open, "localhost.evil.example", "", 403, false},
		{open, "127.0.0.1.evil.example", "", 403, false},
		{open, "box.lan", "", 403, false},
		{open, "localhost:8000", "http://localhost:8000", 200, false},
		{open, "192.168.1.5:8000", "http://192.168.1.5:8000", 200, false},
		{open, "localhost:8000", "http://localhost:3000", 403, false},
		{open, "localhost:8000", "http://127.0.0.1:8000", 403, false},
		{open, "localhost:8000", "https://evil.example", 403, false},
		{open, "evil.example:8000", "http://evil.example:8000", 403, false}, // DNS rebinding
		{open, "localhost:8000", "null", 403, false},
		{open, "localhost:8000", "file://", 403, false},
		{open, "0.0.0.0:8000", "http://evil.example", 403, false},
		{listed, "box.lan:8000", "http://box.lan:8000", 200, false},
		{listed, "localhost:8000", "https://chat.example", 200, true},
		{listed, "localhost:8000", "https://chat.example:444", 403, false},
		{listed, "localhost:8000", "http://chat.example", 403, false},
		{listed, "localhost:8000", "http://plain.example", 200, true},
		{listed, "localhost:8000", "https://bare.example:9000", 200, true},
		{listed, "localhost:8000", "https://bare.example", 403, false},
		{listed, "localhost:8000", "null", 200, true},
		{listed, "chat.example", "", 200, false}, // behind a proxy
		{listed, "other.example", "", 403, false},
		{all, "any.example", "https://other.example", 200, true},
		{all, "any.example", "null", 200, true},
	} {
		s, _ := newTestServer(t, c.cfg)
		for _, path := range []string{"/v1/models", "/api/info"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			cors := w.Header().Get("Access-Control-Allow-Origin")
			if w.Code != c.want || (cors != "") != c.cors || c.cors && cors != c.origin {
				t.Errorf("Host %s, Origin %s, %s: got %d, CORS %q; want %d, %v", c.host, c.origin, path, w.Code, cors, c.want, c.cors)
			}
		}
		// The page and /health are for everybody.
		r := httptest.NewRequest(http.MethodGet, "/health", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("/health: %d", w.Code)
		}
	}
}

func TestPreflightOfForeignOriginIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{AllowedOrigins: []string{"https://chat.example"}})
	r := httptest.NewRequest(http.MethodOptions, "http://localhost/v1/chat/completions", nil)
	r.Header.Set("Origin", "https://evil.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != 403 || w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestAPIKey(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{APIKey: "k3y", Static: testFiles()})
	for _, c := range []struct {
		path, header, value string
		want                int
	}{
		{"/v1/models", "", "", 401},
		{"/v1/none", "", "", 401},
		{"/v1/stream", "", "", 401},
		{"/api/info", "", "", 401},
		{"/v1/models", "Authorization", "Bearer k3y", 200},
		{"/v1/models", "Authorization", "bearer  k3y ", 200},
		{"/v1/models", "Authorization", "Basic k3y", 401},
		{"/v1/models", "Authorization", "Bearer k3", 401},
		{"/v1/models", "Authorization", "Bearer ", 401},
		{"/v1/models", "Sec-Websocket-Protocol", "pagelight, bearer.k3y", 200},
		{"/v1/models", "Sec-Websocket-Protocol", "pagelight, bearer.no", 401},
		{"/health", "", "", 200},
		{"/version", "", "", 200},
		{"/", "", "", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+c.path, nil)
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s with %s %q: got %d, want %d", c.path, c.header, c.value, w.Code, c.want)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	s, _ := newTestServer(t, Config{})
	s.newRequestID = newRequestID
	seen := map[string]bool{}
	for _, sent := range []string{"abc-123", "", "", "with space", "é", string(make([]byte, 200))} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/health", nil)
		r.Header.Set("X-Request-Id", sent)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		got := w.Header().Get("X-Request-Id")
		if sent == "abc-123" && got != sent || got == "" || sent != "abc-123" && got == sent || seen[got] {
			t.Errorf("sent %q, got %q", sent, got)
		}
		seen[got] = true
	}
}
