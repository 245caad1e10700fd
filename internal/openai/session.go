package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// Types of messages that both transports have. The worker has some more, which it handles itself.
const (
	TypeGenerate = "generate"
	TypeCancel   = "cancel"
	TypeStats    = "stats"
	TypeChunk    = "chunk"
	TypeDone     = "done"
	TypeError    = "error"
)

const maxIDBytes = 128

// ClientMessage is a message from the page.
type ClientMessage struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"` // of the page's choosing, unique among its running requests
	Endpoint Endpoint        `json:"endpoint,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"` // an OpenAI request
}

// ChunkMessage carries one object of a stream.
type ChunkMessage struct {
	Type string `json:"type"` // TypeChunk
	ID   string `json:"id"`
	Data Chunk  `json:"data"`
}

// DoneMessage ends a request that succeeded.
type DoneMessage struct {
	Type string `json:"type"` // TypeDone
	ID   string `json:"id"`
}

// ErrorMessage ends a request that did not. ID is "" when the message at fault had none.
type ErrorMessage struct {
	Type   string `json:"type"` // TypeError
	ID     string `json:"id"`
	Status int    `json:"status"`
	Error  Error  `json:"error"`
}

// StatsMessage answers TypeStats.
type StatsMessage struct {
	Type  string       `json:"type"` // TypeStats
	ID    string       `json:"id"`
	Info  engine.Info  `json:"info"`
	Stats engine.Stats `json:"stats"`
}

// NewErrorMessage wraps an error for the wire.
func NewErrorMessage(id string, err error) ErrorMessage {
	status, e := ErrorFor(err)
	return ErrorMessage{Type: TypeError, ID: id, Status: status, Error: e}
}

// DecodeMessage reads a message from the page. The error is a *StatusError; the message then still has its id where that
// could be read.
func DecodeMessage(data []byte) (ClientMessage, error) {
	var m ClientMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return m, NewError(400, CodeInvalidJSON, "", "the message is not one of the protocol: "+err.Error())
	}
	return m, nil
}

// SessionConfig says what a Session talks to.
type SessionConfig struct {
	// Engine returns the engine that takes new requests, or why there is none.
	Engine func() (Engine, error)
	// Model turns the name that was asked for ("" for none) into the served one, or an error. nil: the engine's own name,
	// whatever was asked for.
	Model func(asked string) (string, error)
	// Send passes one message to the client. It is called by one goroutine at a time and may block; when it fails the
	// request that it belongs to is given up.
	Send        func(msg any) error
	Place       string // "tab" or "server"
	MaxRequests int    // running at the same time; 0: no limit
	// Log, if not nil, is called when a request has ended.
	Log func(Record)
}

// Record says how a request of a Session ended.
type Record struct {
	ID       string // of the answer: "chatcmpl-..."
	Endpoint Endpoint
	Status   int   // 200, or that of the error
	Err      error // nil when it succeeded
	Usage    engine.Usage
	Duration time.Duration
}

// Session is one client of the protocol: many requests at once, each with its own end. The WebSocket of the host and the
// worker of the page both are one.
type Session struct {
	cfg    SessionConfig
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	sending sync.Mutex // held while cfg.Send runs

	mu      sync.Mutex
	running map[string]context.CancelFunc
	closed  error // why new requests are refused
}

// NewSession starts a session. When ctx ends its requests are cancelled, and they end with the cause of ctx.
func NewSession(ctx context.Context, cfg SessionConfig) *Session {
	ctx, cancel := context.WithCancel(ctx)
	return &Session{cfg: cfg, ctx: ctx, cancel: cancel, running: map[string]context.CancelFunc{}}
}

// Close cancels what runs and returns when it has ended.
func (s *Session) Close() {
	s.cancel()
	s.Drain(context.Canceled)
}

// Drain refuses new requests with err and returns when those that run have ended.
func (s *Session) Drain(err error) {
	s.mu.Lock()
	if s.closed == nil {
		s.closed = err
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Running is the number of requests that have not ended.
func (s *Session) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// Handle acts on a message and does not wait for what it started.
//
// A message that cannot be acted on is answered with an error that has its id. So is a second generate with the id of a
// running one: the first goes on. A cancel for a request that is not there says nothing, since it may have just ended.
func (s *Session) Handle(m ClientMessage) {
	switch m.Type {
	case TypeGenerate:
		if err := s.generate(m); err != nil {
			s.Fail(m.ID, err)
		}
	case TypeCancel:
		s.mu.Lock()
		cancel := s.running[m.ID]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case TypeStats:
		eng, err := s.cfg.Engine()
		if err != nil {
			s.Fail(m.ID, err)
			return
		}
		_ = s.send(StatsMessage{Type: TypeStats, ID: m.ID, Info: eng.Info(), Stats: eng.Stats()})
	default:
		s.Fail(m.ID, NewError(400, CodeInvalidValue, "type", fmt.Sprintf("messages of type %.40q are not part of the protocol here", m.Type)))
	}
}

// Fail answers with an error.
func (s *Session) Fail(id string, err error) {
	_ = s.send(NewErrorMessage(id, err)) // a transport that fails ends the session by itself
}

func (s *Session) send(msg any) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.cfg.Send(msg)
}

func (s *Session) generate(m ClientMessage) error {
	if m.ID == "" || len(m.ID) > maxIDBytes {
		return NewError(400, CodeInvalidValue, "id", fmt.Sprintf("'id' must have 1 to %d bytes", maxIDBytes))
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	err := error(nil)
	switch {
	case s.closed != nil:
		err = s.closed
	case s.running[m.ID] != nil:
		err = NewError(400, CodeInvalidValue, "id", "'id' is that of a request that is still running")
	case s.cfg.MaxRequests > 0 && len(s.running) >= s.cfg.MaxRequests:
		err = NewError(429, CodeTooManyRequests, "", fmt.Sprintf("this connection has %d requests running already", len(s.running)))
	}
	if err != nil {
		cancel()
		return err
	}
	s.running[m.ID] = cancel
	s.wg.Go(func() {
		defer cancel()
		s.run(ctx, m)
	})
	return nil
}

// run answers one request and sends its last message.
func (s *Session) run(ctx context.Context, m ClientMessage) {
	start := time.Now()
	rec := Record{Endpoint: m.Endpoint, Status: 200}
	rec.Err = s.answer(ctx, m, &rec)

	// The id is free again before the client learns that the request has ended.
	s.mu.Lock()
	delete(s.running, m.ID)
	s.mu.Unlock()

	if rec.Err == nil {
		rec.Err = s.send(DoneMessage{Type: TypeDone, ID: m.ID})
	} else {
		// However the engine words the end of a cancelled request, the client hears the same.
		if ctx.Err() != nil {
			rec.Err = context.Cause(ctx)
		}
		s.Fail(m.ID, rec.Err)
	}
	if rec.Err != nil {
		rec.Status, _ = ErrorFor(rec.Err)
	}
	rec.Duration = time.Since(start)
	if s.cfg.Log != nil {
		s.cfg.Log(rec)
	}
}

func (s *Session) answer(ctx context.Context, m ClientMessage, rec *Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	call, err := Parse(m.Endpoint, m.Body)
	if err != nil {
		return err
	}
	eng, err := s.cfg.Engine()
	if err != nil {
		return err
	}
	model := eng.Info().Model
	if s.cfg.Model != nil {
		if model, err = s.cfg.Model(call.Model); err != nil {
			return err
		}
	}
	rec.ID = NewID(call.Endpoint)
	reply := NewReply(call, rec.ID, model, s.cfg.Place, time.Now())
	for ev, err := range reply.Run(ctx, eng) {
		if err != nil {
			return err
		}
		for _, c := range reply.Chunks(ev) {
			if err := s.send(ChunkMessage{Type: TypeChunk, ID: m.ID, Data: c}); err != nil {
				return err
			}
		}
		rec.Usage = reply.Usage()
	}
	return reply.Check(ctx)
}
