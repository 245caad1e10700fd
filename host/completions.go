package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pagelight/pagelight/internal/openai"
)

// complete answers POST /v1/chat/completions and /v1/completions.
func (s *Server) complete(endpoint openai.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		done, err := s.begin()
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		defer done()
		body, err := s.readBody(w, r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		call, err := openai.Parse(endpoint, body)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		sayIgnored(w, call.Ignored)
		eng, model, err := s.engineFor(call.Model)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		ctx, cancel := s.requestContext(r)
		defer cancel()
		e := entryOf(r)
		e.id = s.newID(endpoint)
		reply := openai.NewReply(call, e.id, model, "", s.now())
		answer := s.answerWhole
		if call.Stream {
			answer = s.answerStream
		}
		err = answer(ctx, w, eng, reply)
		e.usage, e.err = reply.Usage(), err
		s.note(eng, err)
		e.cancelled = errors.Is(err, context.Canceled)
	}
}

// sayIgnored names the fields that nobody understood.
func sayIgnored(w http.ResponseWriter, names []string) {
	if len(names) > 0 {
		w.Header().Set("X-Pagelight-Ignored", openai.IgnoredHeader(names))
	}
}

// engineFor returns the engine for a request that asks for a model by name, and the name for the answer.
func (s *Server) engineFor(asked string) (eng Engine, model string, err error) {
	if eng, err = s.currentEngine(); err == nil {
		model, err = s.servedModel(eng, asked)
	}
	return eng, model, err
}

// refuse answers a request that did not get as far as the engine.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := entryOf(r)
	e.err = err
	switch {
	case errors.Is(err, context.Canceled): // nobody is there to be told
		e.cancelled = true
	case !errors.Is(err, errAnswered):
		writeError(w, err)
	}
}

// generate runs a request and calls each for its events; it returns what went wrong, in the words for the client.
func (s *Server) generate(ctx context.Context, eng Engine, reply *openai.Reply, each func(openai.Event) error) error {
	for ev, err := range reply.Run(ctx, eng) {
		if err != nil {
			if ctx.Err() != nil { // however the engine words it
				return context.Cause(ctx)
			}
			return err
		}
		if err := each(ev); err != nil {
			return err
		}
	}
	return reply.Check(ctx)
}

// answerWhole answers in one piece.
func (s *Server) answerWhole(ctx context.Context, w http.ResponseWriter, eng Engine, reply *openai.Reply) error {
	err := s.generate(ctx, eng, reply, func(ev openai.Event) error { reply.Add(ev); return nil })
	switch {
	case errors.Is(err, context.Canceled): // nobody is there to be told
	case err != nil:
		writeError(w, err)
	default:
		writeJSON(w, http.StatusOK, reply.Completion())
	}
	return err
}

// readBody reads a body of at most MaxBodyBytes.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := s.cfg.MaxBodyBytes
	rc := http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		_ = rc.SetReadDeadline(time.Now().Add(s.bodyTimeout)) // not every transport has deadlines
	}
	if r.ContentLength > limit {
		return nil, s.tooLarge(w, r, rc)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		// The deadline stays, or net/http would wait for the rest of the body before it answers.
		w.Header().Set("Connection", "close")
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, openai.NewError(http.StatusRequestTimeout, openai.CodeTimeout, "", "the body did not arrive in time")
	case err != nil && r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil:
		return nil, openai.NewError(http.StatusBadRequest, openai.CodeInvalidJSON, "", "the body could not be read: "+err.Error())
	case int64(len(body)) > limit:
		return nil, s.tooLarge(w, r, rc)
	}
	if r.ProtoMajor == 1 {
		_ = rc.SetReadDeadline(time.Time{}) // from now on reading is how a disconnect is noticed
	}
	return body, nil
}

// Limits on what is read from a client that goes on sending a body that was refused.
const (
	lingerBytes = 64 << 20
	lingerTime  = 10 * time.Second
)

// tooLarge answers 413 at once and then goes on reading for a while: many clients look for an answer only when they have
// sent everything, and would see a broken connection instead. It returns the error that was answered, already written.
func (s *Server) tooLarge(w http.ResponseWriter, r *http.Request, rc *http.ResponseController) error {
	err := openai.NewError(http.StatusRequestEntityTooLarge, "request_too_large", "",
		fmt.Sprintf("the body is larger than the %d bytes that this server accepts", s.cfg.MaxBodyBytes))
	w.Header().Set("Connection", "close")
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") && r.ContentLength > s.cfg.MaxBodyBytes {
		return err // the client waits for leave to send
	}
	if r.ProtoMajor != 1 || rc.EnableFullDuplex() != nil {
		return err
	}
	writeError(w, err)
	if rc.Flush() == nil {
		_ = rc.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, r.Body, lingerBytes)
	}
	return fmt.Errorf("%w: %w", errAnswered, err)
}

// errAnswered wraps an error that the client has been told already.
var errAnswered = errors.New("answered")
