package host

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func postReport(t *testing.T, s *Server, body string, header ...string) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://localhost/api/bench", strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

func TestReports(t *testing.T) {
	var kept []string
	fail := false
	s, err := New(Config{APIKey: "key", Reports: func(report []byte) error {
		if fail {
			return errors.New("disk full")
		}
		kept = append(kept, string(report))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	key := []string{"Authorization", "Bearer key"}
	const good = `{"schema":1,"runs":[]}`
	for _, c := range []struct {
		what, body string
		header     []string
		status     int
	}{
		{"without the key", good, nil, http.StatusUnauthorized},
		{"of another page", good, append(key, "Origin", "https://evil.example"), http.StatusForbidden},
		{"that is no JSON", "x", key, http.StatusBadRequest},
		{"that is no object", "[1]", key, http.StatusBadRequest},
		{"without a schema", `{"a":1}`, key, http.StatusBadRequest},
		{"that is too large", `{"schema":1,"a":"` + strings.Repeat("x", maxReportBytes) + `"}`, key, http.StatusRequestEntityTooLarge},
		{"that is right", good, key, http.StatusNoContent},
	} {
		if got := postReport(t, s, c.body, c.header...); got != c.status {
			t.Errorf("a report %s is answered by %d, want %d", c.what, got, c.status)
		}
	}
	if len(kept) != 1 || kept[0] != good {
		t.Errorf("kept %q", kept)
	}
	fail = true
	if got := postReport(t, s, good, key...); got != http.StatusInternalServerError {
		t.Errorf("a report that cannot be kept is answered by %d", got)
	}
	if s, err = New(Config{}); err != nil {
		t.Fatal(err)
	}
	if got := postReport(t, s, good); got != http.StatusNotFound {
		t.Errorf("where no reports are taken the answer is %d", got)
	}
}

// Pages are served without their ending too.
func TestPagesWithoutEnding(t *testing.T) {
	s, err := New(Config{Static: fstest.MapFS{"bench.html": {Data: []byte("<p>bench")}, "index.html": {Data: []byte("<p>page")}}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/bench": "<p>bench", "/bench.html": "<p>bench", "/": "<p>page", "/bench.txt": "404", "/other": "404"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if got := w.Body.String(); !strings.HasPrefix(got, want) {
			t.Errorf("%s gives %q, want %q", path, got, want)
		}
		if want != "404" && w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s has the type %q", path, w.Header().Get("Content-Type"))
		}
	}
}
