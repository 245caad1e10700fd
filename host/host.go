// Package host is the native home of Pagelight: an http.Handler with the OpenAI API, the WebSocket protocol, the page and
// the files of models for the tab. It can be mounted into a bigger server, or serve a listener with Serve.
//
//	POST /v1/chat/completions, /v1/completions   OpenAI requests, as a stream of server-sent events where asked for
//	GET  /v1/models, /v1/models/{id}             the served model under each of its names
//	GET  /v1/stream                              WebSocket: many requests over one connection
//	GET  /api/info                               what the engine is and what it is doing
//	POST /api/bench                              takes what the page of measurements (/bench) found, where Config.Reports is set
//	POST /tokenize, /detokenize                  text to token ids and back
//	GET  /health, /version, /metrics             for machines; no key needed
//	GET  /models/...                             model files for the tab
//	GET  /...                                    the page
//
// The handler works before there is an engine: SetProgress and SetEngine say how far it is. It knows an engine by
// an interface and no device.
package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
)

const (
	defaultMaxBodyBytes = 8 << 20
	defaultDrainTimeout = 30 * time.Second

	// keepAliveAfter is the silence after which a stream says that it is still there: below the 30 and 60 seconds after
	// which proxies give up.
	keepAliveAfter = 15 * time.Second
	// writeTimeout is how long one write may take before the client counts as gone.
	writeTimeout = 30 * time.Second
	// bodyTimeout is how long a client may take to send a body.
	bodyTimeout  = 2 * time.Minute
	pingInterval = 30 * time.Second
)

// Engine is what the host needs of *engine.Engine.
type Engine interface {
	openai.Engine
	Tokenize(text string, special bool) ([]int32, error)
	TokenizeBare(text string, special bool) ([]int32, error)
	Piece(id int32) (piece string, ok bool)
	RenderChat(ctx context.Context, messages []engine.Message, addGenerationPrompt *bool) (string, error)
}

// Config says what to serve.
type Config struct {
	Engine Engine // nil: it comes later, by SetEngine
	// ServedModelNames are the names that requests may use; answers to requests without a name use the first. Empty: the
	// engine's own name.
	ServedModelNames []string
	// APIKey, if not empty, must come with every request under /v1 and /api, to /tokenize and /detokenize: as "Authorization: Bearer KEY", or, since a
	// page cannot set headers for a WebSocket, as the subprotocol "bearer.KEY" beside "pagelight".
	APIKey string
	// AllowedOrigins are the origins ("https://chat.example") whose pages may use the API; "null" is one of them. The page
	// of the host itself always may. An entry without a scheme ("chat.example") allows that host with any scheme, and
	// makes it, as every origin here does, a name under which this host may be reached. "*" allows everything.
	AllowedOrigins []string
	// ListenHost is a name under which this host is reached. Addresses and localhost need not be told.
	ListenHost string

	MaxBodyBytes int64 // default 8 MiB
	Static       fs.FS // the page; nil: none
	Models       fs.FS // the files under /models/, index.json at its root; nil: those in Static
	Logger       *slog.Logger
	Version      string
	DrainTimeout time.Duration // how long Serve lets requests finish; default 30 s
	// Reports takes the reports of the page of measurements, JSON objects; nil: none are taken. It may be called by several
	// goroutines at a time.
	Reports func(report []byte) error
}

// Server is the handler. Make one with New.
type Server struct {
	cfg     Config
	log     *slog.Logger
	handler http.Handler
	keySum  [sha256.Size]byte
	created time.Time
	metrics *metrics

	// The lifetime of every request; ended with errDraining when a drain has waited long enough.
	lifetime context.Context
	end      context.CancelCauseFunc

	mu       sync.Mutex // guards what follows
	engine   Engine
	progress engine.Progress
	failed   error         // why there will be no engine
	lost     error         // the device, as the last request found it
	draining chan struct{} // closed when a drain begins
	active   sync.WaitGroup

	// Replaced by tests.
	newID        func(openai.Endpoint) string
	newRequestID func() string
	now          func() time.Time
	keepAlive    time.Duration
	writeTimeout time.Duration
	bodyTimeout  time.Duration
	pingInterval time.Duration
}

var errDraining = openai.NewError(http.StatusServiceUnavailable, openai.CodeDraining, "", "the server is shutting down")

// New makes a server.
func New(cfg Config) (*Server, error) {
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = defaultMaxBodyBytes
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = defaultDrainTimeout
	}
	if cfg.MaxBodyBytes < 0 || cfg.DrainTimeout < 0 {
		return nil, errors.New("host: MaxBodyBytes and DrainTimeout must not be negative")
	}
	if slices.Contains(cfg.ServedModelNames, "") {
		return nil, errors.New("host: a served model name is empty")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, created: time.Now(), metrics: newMetrics(), draining: make(chan struct{}),
		keySum: sha256.Sum256([]byte(cfg.APIKey)),
		newID:  openai.NewID, newRequestID: newRequestID, now: time.Now,
		keepAlive: keepAliveAfter, writeTimeout: writeTimeout, bodyTimeout: bodyTimeout, pingInterval: pingInterval,
	}
	s.lifetime, s.end = context.WithCancelCause(context.Background())
	access, err := newAccess(cfg.AllowedOrigins, cfg.ListenHost)
	if err != nil {
		return nil, err
	}
	s.handler = s.routes(access)
	if cfg.Engine != nil {
		s.SetEngine(cfg.Engine)
	}
	return s, nil
}

func (s *Server) routes(access *access) http.Handler {
	r := chi.NewRouter()
	// No Compress, Timeout or RealIP of chi: the first two break streams, the last believes any client.
	r.Use(s.observe, s.recoverPanics, secure, access.cors)
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { // of methods that no standard knows
		writeError(w, openai.NewError(http.StatusMethodNotAllowed, "method_not_allowed", "", "method "+clip(r.Method)+" is not allowed here"))
	})
	r.Handle("/health", only(s.health, http.MethodGet))
	r.Handle("/version", only(s.version, http.MethodGet))
	r.Handle("/metrics", only(s.metrics.handler.ServeHTTP, http.MethodGet))
	r.Group(func(r chi.Router) { // beside /v1, as in vLLM
		r.Use(access.guard, s.authenticate)
		r.Handle("/tokenize", only(s.tokenize, http.MethodPost))
		r.Handle("/detokenize", only(s.detokenize, http.MethodPost))
	})
	r.Route("/v1", func(r chi.Router) {
		r.Use(access.guard, s.authenticate)
		r.Handle("/chat/completions", only(s.complete(openai.ChatCompletions), http.MethodPost))
		r.Handle("/completions", only(s.complete(openai.Completions), http.MethodPost))
		r.Handle("/models", only(s.models, http.MethodGet))
		r.Handle("/models/*", only(s.model, http.MethodGet))
		r.Handle("/stream", only(s.webSocket, http.MethodGet))
		r.Handle("/*", http.HandlerFunc(unknownPath))
	})
	r.Route("/api", func(r chi.Router) {
		r.Use(access.guard, s.authenticate)
		r.Handle("/info", only(s.info, http.MethodGet))
		if s.cfg.Reports != nil {
			r.Handle("/bench", only(s.report, http.MethodPost))
		}
		r.Handle("/*", http.HandlerFunc(unknownPath))
	})
	if s.cfg.Models != nil {
		r.Handle("/models/*", only(newFileServer(s.cfg.Models).serve, http.MethodGet))
	}
	if s.cfg.Static != nil {
		r.Handle("/*", only(newFileServer(s.cfg.Static).serve, http.MethodGet))
	} else {
		r.Handle("/*", http.HandlerFunc(unknownPath))
	}
	return r
}

// ServeHTTP answers a request. The server can be mounted under a prefix with http.StripPrefix or chi's Mount.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// SetProgress says how far the engine is while there is none yet.
func (s *Server) SetProgress(p engine.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = p
}

// SetEngine puts an engine into service, the first or another one. The host does not close engines.
func (s *Server) SetEngine(e Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine, s.failed, s.lost = e, nil, nil
	s.metrics.setEngine(e, s.modelNames(e)[0])
}

// Observer is what an engine must be opened with (engine.Config) for /metrics to count what it does; without, /metrics has
// only what engine.Stats knows. What comes before SetEngine is not counted.
func (s *Server) Observer() engine.Observer { return s.metrics }

// SetFailed says that there will be no engine, and why.
func (s *Server) SetFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine, s.failed = nil, err
}

// currentEngine returns the engine for a new request, or the error to answer with.
func (s *Server) currentEngine() (Engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isDraining():
		return nil, errDraining
	case s.engine != nil:
		return s.engine, nil
	case s.failed != nil:
		_, e := openai.ErrorFor(s.failed)
		return nil, &openai.StatusError{Status: http.StatusServiceUnavailable, Detail: e}
	}
	msg := "the model is loading"
	if s.progress.Phase != "" {
		msg += fmt.Sprintf(" (%s)", s.progress.Phase)
	}
	return nil, openai.NewError(http.StatusServiceUnavailable, openai.CodeLoading, "", msg)
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// begin counts a request that a drain waits for; done is called at its end.
func (s *Server) begin() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		return nil, errDraining
	}
	s.active.Add(1)
	return s.active.Done, nil
}

// requestContext ends with the request's own context and with the server's lifetime.
func (s *Server) requestContext(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(s.lifetime, func() { cancel(context.Cause(s.lifetime)) })
	return ctx, func() { stop(); cancel(nil) }
}

// wildcard is what the "*" of a route stands for, unescaped.
func wildcard(r *http.Request) string {
	v := chi.URLParam(r, "*")
	if r.URL.RawPath != "" { // then chi has matched that one
		if plain, err := url.PathUnescape(v); err == nil {
			return plain
		}
	}
	return v
}

// modelNames are the names under which the model is served.
func (s *Server) modelNames(e Engine) []string {
	if len(s.cfg.ServedModelNames) > 0 {
		return s.cfg.ServedModelNames
	}
	return []string{e.Info().Model}
}

// servedModel turns the name of a request into the one for the answer.
func (s *Server) servedModel(e Engine, asked string) (string, error) {
	names := s.modelNames(e)
	switch {
	case asked == "":
		return names[0], nil
	case slices.Contains(names, asked):
		return asked, nil
	}
	return "", openai.NewError(http.StatusNotFound, openai.CodeModelNotFound, "model",
		fmt.Sprintf("the model %q is not served here; this is: %s", clip(asked), strings.Join(names, ", ")))
}
