package host

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := openai.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error()) // only own types come here
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that is gone needs no answer
}

func writeError(w http.ResponseWriter, err error) {
	status, e := openai.ErrorFor(err)
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "2")
	}
	if errors.Is(err, errDraining) {
		w.Header().Set("Connection", "close")
	}
	writeJSON(w, status, openai.ErrorBody{Error: e})
}

func unknownPath(w http.ResponseWriter, r *http.Request) {
	writeError(w, openai.NewError(http.StatusNotFound, "not_found", "", "there is nothing at "+clip(r.URL.Path)))
}

// health is the body of /health.
type health struct {
	Status string `json:"status"` // "ok", "loading", "failed", "device_lost" or "draining"
	// While loading:
	Phase engine.Phase `json:"phase,omitempty"`
	Done  int64        `json:"done,omitempty"`
	Total int64        `json:"total,omitempty"`
	Name  string       `json:"name,omitempty"`
	// When failed or lost:
	Error *openai.Error `json:"error,omitempty"`
}

// health says whether requests can be answered: 200, else 503.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	status, h := s.currentHealth()
	writeJSON(w, status, h)
}

func (s *Server) currentHealth() (int, health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	with := func(status string, err error) health {
		_, e := openai.ErrorFor(err)
		return health{Status: status, Error: &e}
	}
	switch {
	case s.isDraining():
		return http.StatusServiceUnavailable, health{Status: "draining"}
	case s.engine != nil && s.lost != nil:
		return http.StatusServiceUnavailable, with("device_lost", s.lost)
	case s.engine != nil:
		return http.StatusOK, health{Status: "ok"}
	case s.failed != nil:
		return http.StatusServiceUnavailable, with("failed", s.failed)
	}
	p := s.progress
	return http.StatusServiceUnavailable, health{Status: "loading", Phase: p.Phase, Done: p.Done, Total: p.Total, Name: p.Name}
}

// note remembers for /health whether the last request found the device lost.
func (s *Server) note(e Engine, err error) {
	if err != nil && !errors.Is(err, engine.ErrDeviceLost) && !errors.Is(err, engine.ErrClosed) {
		return // says nothing about the device
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine == e {
		s.lost = err
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Version string `json:"version"`
	}{s.cfg.Version})
}

func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	e, err := s.currentEngine()
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Info  engine.Info  `json:"info"`
		Stats engine.Stats `json:"stats"`
	}{e.Info(), e.Stats()})
}

// modelObject describes the served model under one of its names.
type modelObject struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // "model"
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"` // "pagelight"
	Root        string `json:"root"`     // the engine's own name of the model
	MaxModelLen int    `json:"max_model_len"`
}

func (s *Server) modelObject(e Engine, name string) modelObject {
	info := e.Info()
	return modelObject{ID: name, Object: "model", Created: s.created.Unix(), OwnedBy: "pagelight", Root: info.Model, MaxModelLen: info.MaxModelLen}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	e, err := s.currentEngine()
	if err != nil {
		writeError(w, err)
		return
	}
	list := struct {
		Object string        `json:"object"` // "list"
		Data   []modelObject `json:"data"`
	}{Object: "list"}
	for _, name := range s.modelNames(e) {
		list.Data = append(list.Data, s.modelObject(e, name))
	}
	writeJSON(w, http.StatusOK, list)
}

// model answers for one name, which may have slashes.
func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	e, err := s.currentEngine()
	if err != nil {
		writeError(w, err)
		return
	}
	name := wildcard(r)
	if name == "" {
		unknownPath(w, r)
		return
	}
	if name, err = s.servedModel(e, name); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s.modelObject(e, name))
}
