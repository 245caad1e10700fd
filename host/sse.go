package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/pagelight/pagelight/internal/openai"
)

// answerStream answers with server-sent events: one for each chunk, flushed with the engine's event that it came from, and
// "[DONE]" at the end. The header is sent with the first event, so that a request that fails before has a proper status. An
// error after that is an event too, and no [DONE] follows it: the answer is not whole.
func (s *Server) answerStream(ctx context.Context, w http.ResponseWriter, eng Engine, reply *openai.Reply) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st := newEventStream(w, s.keepAlive, cancel)
	defer st.stop()
	err := s.generate(ctx, eng, reply, func(ev openai.Event) error {
		chunks := reply.Chunks(ev)
		if len(chunks) == 0 {
			return nil
		}
		var b bytes.Buffer
		for _, c := range chunks {
			if err := appendEvent(&b, c); err != nil {
				return err
			}
		}
		return st.write(b.Bytes())
	})
	st.stop()
	switch {
	case errors.Is(err, context.Canceled): // nobody is there to be told
		return err
	case err != nil && !st.begun:
		writeError(w, err)
		return err
	case err != nil:
		_, e := openai.ErrorFor(err)
		var b bytes.Buffer
		if bad := appendEvent(&b, openai.ErrorBody{Error: e}); bad == nil {
			_ = st.write(b.Bytes())
		}
		return err
	}
	return st.write([]byte("data: [DONE]\n\n"))
}

// appendEvent adds an event with v as its data.
func appendEvent(b *bytes.Buffer, v any) error {
	data, err := openai.Marshal(v) // one line
	if err != nil {
		return err
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
	return nil
}

// eventStream writes server-sent events, and a comment when nothing was written for a while.
type eventStream struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	keepAlive time.Duration
	cancel    context.CancelCauseFunc // called when the client is found gone while nothing else would notice

	mu      sync.Mutex // guards what follows, and the writing
	begun   bool       // the header is sent
	stopped bool       // no more comments
	timer   *time.Timer
}

func newEventStream(w http.ResponseWriter, keepAlive time.Duration, cancel context.CancelCauseFunc) *eventStream {
	st := &eventStream{w: w, rc: http.NewResponseController(w), keepAlive: keepAlive, cancel: cancel}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.timer = time.AfterFunc(keepAlive, st.comment)
	return st
}

// stop ends the comments. After it nothing but the caller writes.
func (st *eventStream) stop() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stopped = true
	st.timer.Stop()
}

func (st *eventStream) write(b []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.writeLocked(b)
}

func (st *eventStream) writeLocked(b []byte) error {
	if !st.begun {
		st.begun = true
		h := st.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // nginx would hold events back
		st.w.WriteHeader(http.StatusOK)
	}
	_, err := st.w.Write(b)
	if err == nil {
		err = st.rc.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil // a transport without Flush still gets the whole
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	if !st.stopped {
		st.timer.Reset(st.keepAlive)
	}
	return nil
}

// errClientGone is context.Canceled by another way.
var errClientGone = fmt.Errorf("the client does not read: %w", context.Canceled)

func (st *eventStream) comment() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.stopped {
		return
	}
	if err := st.writeLocked([]byte(": keep-alive\n\n")); err != nil {
		st.cancel(err)
	}
}
