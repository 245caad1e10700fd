package host

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
)

// contentSecurityPolicy lets the page load its own files and talk to its own host, and nothing else.
const contentSecurityPolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// workerPolicy is that of the worker, which shows nothing and runs nothing that it fetches: it may also fetch models from addresses
// that the reader types. A worker's policy is that of its own script's answer, not the page's.
const workerPolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' https: http:; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types pagelight"

// secure sets the headers that every answer has.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		policy := contentSecurityPolicy
		if path.Base(r.URL.Path) == "worker.js" {
			policy = workerPolicy
		}
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// writer counts what is written and gives every write its own deadline, so that a client that stopped reading is noticed
// although a stream as a whole may take as long as it likes.
type writer struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // 0: none
	status  int           // 0 until the header is written
	bytes   int64
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) extend() {
	if w.timeout > 0 {
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.timeout)) // not every transport has deadlines
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// FlushError is for http.ResponseController.
func (w *writer) FlushError() error {
	w.extend()
	return w.rc.Flush()
}

// Hijack implements http.Hijacker, which the WebSocket library asks for by name.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return w.rc.Hijack()
}

// entry is what the access log says about a request beyond what its writer knows.
type entry struct {
	requestID string
	id        string // of the answer
	usage     engine.Usage
	cancelled bool
	err       error
}

type entryKey struct{}

// entryOf returns the log entry of a request.
func entryOf(r *http.Request) *entry {
	e, _ := r.Context().Value(entryKey{}).(*entry)
	return e
}

// observe names each request, watches its writes and logs it at its end. It never logs a body or a query.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		start := time.Now()
		w := &writer{ResponseWriter: rw, rc: http.NewResponseController(rw)}
		if r.ProtoMajor == 1 { // in HTTP/2 a deadline ends a stream even when nothing is being written
			w.timeout = s.writeTimeout
		}
		w.extend()
		e := &entry{requestID: r.Header.Get("X-Request-Id")}
		if !usableID(e.requestID) {
			e.requestID = s.newRequestID()
		}
		w.Header().Set("X-Request-Id", e.requestID)
		defer func() { s.logRequest(r, w, e, time.Since(start)) }()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), entryKey{}, e)))
	})
}

func (s *Server) logRequest(r *http.Request, w *writer, e *entry, took time.Duration) {
	status := w.status
	switch {
	case e.cancelled:
		status = openai.StatusCancelled
	case status == 0:
		status = http.StatusOK
	}
	level := slog.LevelInfo
	switch {
	case status >= 500 && e.err != nil && status != http.StatusServiceUnavailable:
		level = slog.LevelError
	case r.URL.Path == "/health" || e.id == "" && r.Method != http.MethodPost && status < 400:
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", status),
		slog.Float64("ms", milliseconds(took)), slog.Int64("bytes", w.bytes), slog.String("request_id", e.requestID),
	}
	if e.id != "" {
		attrs = append(attrs, slog.String("id", e.id), slog.Int("prompt_tokens", e.usage.PromptTokens), slog.Int("completion_tokens", e.usage.CompletionTokens))
	}
	if e.err != nil {
		attrs = append(attrs, slog.String("error", e.err.Error()))
	}
	s.log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// usableID says whether a client's own request id can be repeated.
func usableID(id string) bool {
	const long = 128
	return id != "" && len(id) <= long && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' })
}

func newRequestID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "req_" + hex.EncodeToString(b[:])
}

// recoverPanics turns a panic into a 500, or, when the answer has begun, cuts the connection so that nobody takes what was
// sent for the whole.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && err == http.ErrAbortHandler { //nolint:errorlint // a panic's value is never wrapped
				panic(v)
			}
			s.log.Error("panic", "value", v, "path", r.URL.Path, "stack", string(debug.Stack()))
			if ours, ok := w.(*writer); ok && ours.status != 0 {
				panic(http.ErrAbortHandler)
			}
			writeError(w, openai.NewError(http.StatusInternalServerError, openai.CodeOther, "", "internal error; the server's log says more"))
		}()
		next.ServeHTTP(w, r)
	})
}

// only answers 405 to other methods. HEAD goes with GET.
func only(h http.HandlerFunc, method string) http.HandlerFunc {
	allow := method
	if method == http.MethodGet {
		allow = "GET, HEAD"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (r.Method != http.MethodHead || method != http.MethodGet) {
			w.Header().Set("Allow", allow)
			writeError(w, openai.NewError(http.StatusMethodNotAllowed, "method_not_allowed", "",
				"method "+clip(r.Method)+" is not allowed here, only "+allow))
			return
		}
		h(w, r)
	}
}

// clip bounds what is repeated from a request.
func clip(s string) string {
	const long = 100
	if len(s) > long {
		return strings.ToValidUTF8(s[:long], "") + "..."
	}
	return s
}
