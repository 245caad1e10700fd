package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"nhooyr.io/websocket"

	"github.com/pagelight/pagelight/internal/openai"
)

const (
	subprotocol = "pagelight"
	// maxStreams is how many requests one connection may have running.
	maxStreams = 64
	// envelopeBytes is what a message may have beyond the body of its request.
	envelopeBytes = 4 << 10
)

// webSocket speaks the page's protocol: many requests over one connection, each with its own stream, end and cancel. A
// connection that breaks cancels what it has running.
func (s *Server) webSocket(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		writeError(w, openai.NewError(http.StatusUpgradeRequired, "upgrade_required", "", "this is a WebSocket"))
		return
	}
	done, err := s.begin()
	if err != nil {
		writeError(w, err)
		return
	}
	defer done()
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{subprotocol},
		InsecureSkipVerify: true, // guard has checked the origin
	})
	if err != nil {
		entryOf(r).err = err
		return // Accept has answered
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(s.cfg.MaxBodyBytes + envelopeBytes)

	ctx, cancel := s.requestContext(r)
	defer cancel()
	session := openai.NewSession(ctx, openai.SessionConfig{
		Engine: func() (openai.Engine, error) { return s.currentEngine() },
		Model: func(asked string) (string, error) {
			_, model, err := s.engineFor(asked)
			return model, err
		},
		Send: func(msg any) error {
			b, err := openai.Marshal(msg)
			if err != nil {
				return err
			}
			// Not the session's context: that one's end must not keep the last words from the client.
			write, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.writeTimeout)
			defer cancel()
			if err := c.Write(write, websocket.MessageText, b); err != nil {
				return fmt.Errorf("%w: %w", errClientGone, err)
			}
			return nil
		},
		Place:       "server",
		MaxRequests: maxStreams,
		Log:         func(rec openai.Record) { s.logRecord(r, rec) },
	})
	ended := make(chan struct{})
	defer close(ended)
	go s.attend(c, session, ended)
	// Whatever ends the reading ends the connection.
	err = s.readMessages(r.Context(), c, session)
	cancel()
	session.Close()
	s.log.Debug("websocket closed", "request_id", entryOf(r).requestID, "reason", err)
}

func (s *Server) readMessages(ctx context.Context, c *websocket.Conn, session *openai.Session) error {
	for {
		kind, data, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			return c.Close(websocket.StatusUnsupportedData, "messages are JSON text")
		}
		m, err := openai.DecodeMessage(data)
		if err != nil {
			session.Fail(m.ID, err)
			continue
		}
		session.Handle(m)
	}
}

// attend pings the client, so that one that vanished is noticed and proxies see traffic, and says goodbye when the server
// drains: after the last running request has ended.
func (s *Server) attend(c *websocket.Conn, session *openai.Session, ended <-chan struct{}) {
	tick := time.NewTicker(s.pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-s.draining:
			session.Drain(errDraining)
			_ = c.Close(websocket.StatusGoingAway, "the server is shutting down")
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(context.Background(), s.writeTimeout)
			err := c.Ping(ctx)
			cancel()
			if err != nil {
				_ = c.CloseNow()
				return
			}
		}
	}
}

func (s *Server) logRecord(r *http.Request, rec openai.Record) {
	if e, err := s.currentEngine(); err == nil && rec.ID != "" {
		s.note(e, rec.Err)
	}
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("method", "WEBSOCKET"), slog.String("path", r.URL.Path), slog.String("endpoint", string(rec.Endpoint)), slog.Int("status", rec.Status),
		slog.Float64("ms", milliseconds(rec.Duration)), slog.String("request_id", entryOf(r).requestID), slog.String("id", rec.ID),
		slog.Int("prompt_tokens", rec.Usage.PromptTokens), slog.Int("completion_tokens", rec.Usage.CompletionTokens),
	}
	if rec.Err != nil && !errors.Is(rec.Err, context.Canceled) {
		attrs = append(attrs, slog.String("error", rec.Err.Error()))
		if rec.Status >= 500 && rec.Status != http.StatusServiceUnavailable {
			level = slog.LevelError
		}
	}
	s.log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
}
