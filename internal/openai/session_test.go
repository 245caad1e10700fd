package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// fakeEngine answers by the request's prompt: "slow" until cancelled, "panic", "fail", "silent", else in letters.
type fakeEngine struct{}

func (fakeEngine) Info() engine.Info { return engine.Info{Model: "fake"} }
func (fakeEngine) Detokenize(ids []int32, _ bool) (string, error) {
	return fmt.Sprint(ids), nil
}
func (fakeEngine) Stats() engine.Stats { return engine.Stats{Running: 1} }

func (fakeEngine) Generate(ctx context.Context, r engine.Request) iter.Seq2[engine.Event, error] {
	return func(yield func(engine.Event, error) bool) {
		switch *r.Prompt {
		case "slow":
			if !yield(engine.Event{Text: "s"}, nil) {
				return
			}
			<-ctx.Done()
			yield(engine.Event{}, fmt.Errorf("step: %w", ctx.Err()))
		case "panic":
			panic("secret")
		case "fail":
			yield(engine.Event{}, &engine.ContextLengthError{PromptTokens: 2, MaxModelLen: 1})
		case "silent":
		default:
			for i, c := range *r.Prompt {
				ev := engine.Event{Text: string(c), TokenIDs: []int32{c}}
				if i == len(*r.Prompt)-1 {
					ev.FinishReason = engine.FinishLength
				}
				if !yield(ev, nil) {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// recorder collects what a session sends, in short form, by id.
type recorder struct {
	mu   sync.Mutex
	sent map[string][]string
	fail bool
}

func (r *recorder) send(msg any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail {
		return errors.New("gone")
	}
	if r.sent == nil {
		r.sent = map[string][]string{}
	}
	switch m := msg.(type) {
	case ChunkMessage:
		text := ""
		if len(m.Data.Choices) > 0 {
			text = *m.Data.Choices[0].Text
		}
		r.sent[m.ID] = append(r.sent[m.ID], text)
	case DoneMessage:
		r.sent[m.ID] = append(r.sent[m.ID], "done")
	case ErrorMessage:
		r.sent[m.ID] = append(r.sent[m.ID], fmt.Sprintf("%d %s", m.Status, *m.Error.Code))
	case StatsMessage:
		r.sent[m.ID] = append(r.sent[m.ID], fmt.Sprintf("stats %s %d", m.Info.Model, m.Stats.Running))
	}
	return nil
}

func (r *recorder) got(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.sent[id], " ")
}

func prompt(id, text string) ClientMessage {
	return ClientMessage{Type: TypeGenerate, ID: id, Endpoint: Completions, Body: json.RawMessage(fmt.Sprintf(`{"prompt":%q}`, text))}
}

func TestSessionRunsManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		var logged []Record
		var mu sync.Mutex
		s := NewSession(t.Context(), SessionConfig{
			Engine: func() (Engine, error) { return fakeEngine{}, nil }, Send: rec.send, Place: "tab",
			Log: func(r Record) { mu.Lock(); logged = append(logged, r); mu.Unlock() },
		})
		for _, m := range []ClientMessage{
			prompt("a", "abc"), prompt("b", "slow"), prompt("c", "xyz"), prompt("b", "again"), prompt("", "x"), prompt("p", "panic"), prompt("f", "fail"), prompt("q", "silent"),
			{Type: TypeGenerate, ID: "bad", Endpoint: Completions, Body: json.RawMessage(`{}`)},
			{Type: TypeGenerate, ID: "none", Endpoint: Completions},
			{Type: TypeGenerate, ID: "end", Endpoint: "embeddings"},
			{Type: TypeStats, ID: "s"},
			{Type: TypeCancel, ID: "unknown"},
			{Type: "load", ID: "l"},
		} {
			s.Handle(m)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		for id, want := range map[string]string{
			"a": "a b c done", "c": "x y z done", "": "400 invalid_value", "p": "500 error", "f": "400 context_length_exceeded", "q": "500 error",
			"bad": "400 missing_required_parameter", "none": "400 invalid_json", "end": "400 invalid_value", "s": "stats fake 1", "unknown": "", "l": "400 invalid_value",
		} {
			if got := rec.got(id); got != want {
				t.Errorf("%q: got %q, want %q", id, got, want)
			}
		}
		if got := rec.got("b"); got != "400 invalid_value s" && got != "s 400 invalid_value" { // the refusal does not wait for the first
			t.Errorf("b: got %q", got)
		}
		if s.Running() != 1 {
			t.Errorf("%d running", s.Running())
		}
		s.Handle(ClientMessage{Type: TypeCancel, ID: "b"})
		synctest.Wait()
		if got := rec.got("b"); !strings.HasSuffix(got, "s 499 cancelled") || s.Running() != 0 {
			t.Errorf("b: got %q, %d running", got, s.Running())
		}
		s.Handle(prompt("b", "ok")) // the id is free again
		s.Handle(prompt("late", "slow"))
		time.Sleep(time.Second)
		s.Close()
		if got := rec.got("b"); !strings.HasSuffix(got, "o k done") {
			t.Errorf("b: got %q", got)
		}
		if got := rec.got("late"); got != "s 499 cancelled" {
			t.Errorf("late: got %q", got)
		}
		s.Handle(prompt("closed", "x"))
		if got := rec.got("closed"); got != "499 cancelled" {
			t.Errorf("closed: got %q", got)
		}
		for _, r := range logged {
			want := 200
			if r.Err != nil {
				want, _ = ErrorFor(r.Err)
			}
			if r.Status != want {
				t.Errorf("logged %+v", r)
			}
		}
		if len(logged) != 11 {
			t.Errorf("%d records", len(logged))
		}
	})
}

func TestSessionLimitsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		s := NewSession(t.Context(), SessionConfig{Engine: func() (Engine, error) { return fakeEngine{}, nil }, Send: rec.send, MaxRequests: 1})
		defer s.Close()
		s.Handle(prompt("a", "slow"))
		s.Handle(prompt("b", "x"))
		if got := rec.got("b"); got != "429 too_many_requests" {
			t.Errorf("got %q", got)
		}
	})
}

func TestSessionRefusesByModelAndWithoutEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		var none error
		s := NewSession(t.Context(), SessionConfig{
			Engine: func() (Engine, error) { return fakeEngine{}, none }, Send: rec.send,
			Model: func(asked string) (string, error) {
				if asked != "" {
					return "", NewError(404, CodeModelNotFound, "model", "no")
				}
				return "m", nil
			},
		})
		defer s.Close()
		m := prompt("a", "x")
		m.Body = json.RawMessage(`{"prompt":"x","model":"other"}`)
		s.Handle(m)
		synctest.Wait()
		none = NewError(503, CodeLoading, "", "wait")
		s.Handle(prompt("b", "x"))
		s.Handle(ClientMessage{Type: TypeStats, ID: "s"})
		synctest.Wait()
		if a, b, s := rec.got("a"), rec.got("b"), rec.got("s"); a != "404 model_not_found" || b != "503 loading" || s != "503 loading" {
			t.Errorf("got %q, %q, %q", a, b, s)
		}
	})
}

func TestSessionDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		ctx, stop := context.WithCancelCause(t.Context())
		s := NewSession(ctx, SessionConfig{Engine: func() (Engine, error) { return fakeEngine{}, nil }, Send: rec.send})
		defer s.Close()
		s.Handle(prompt("a", "abc"))
		s.Handle(prompt("b", "slow"))
		drained := make(chan struct{})
		go func() {
			s.Drain(NewError(503, CodeDraining, "", "soon gone"))
			close(drained)
		}()
		synctest.Wait()
		s.Handle(prompt("c", "x"))
		time.Sleep(time.Second)
		stop(NewError(503, CodeDraining, "", "gone"))
		<-drained
		if a, b, c := rec.got("a"), rec.got("b"), rec.got("c"); a != "a b c done" || b != "s 503 shutting_down" || c != "503 shutting_down" {
			t.Errorf("got %q, %q, %q", a, b, c)
		}
	})
}

func TestSessionGivesUpWhenTheClientIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := recorder{fail: true}
		done := make(chan Record, 1)
		s := NewSession(t.Context(), SessionConfig{Engine: func() (Engine, error) { return fakeEngine{}, nil }, Send: rec.send, Log: func(r Record) { done <- r }})
		defer s.Close()
		s.Handle(prompt("a", "slow"))
		if r := <-done; r.Err == nil || r.Status == 200 || s.Running() != 0 {
			t.Errorf("got %+v", r)
		}
	})
}

func TestDecodeMessageKeepsTheID(t *testing.T) {
	t.Parallel()
	m, err := DecodeMessage([]byte(`{"type":"generate","id":"a","endpoint":5}`))
	if status, _ := ErrorFor(err); m.ID != "a" || status != 400 {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := DecodeMessage([]byte(`{`)); err == nil {
		t.Error("accepted")
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add([]byte(`{"type":"generate","id":"r","endpoint":"completions","body":{"prompt":"x","n":1}}`))
	f.Add([]byte(`{"type":"cancel","id":"r"}`))
	f.Add([]byte(`{"type":1,"id":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeMessage(data)
		if err != nil {
			if status, _ := ErrorFor(err); status != 400 {
				t.Errorf("status %d", status)
			}
			return
		}
		var sent []any
		s := NewSession(t.Context(), SessionConfig{
			Engine: func() (Engine, error) { return nil, NewError(503, CodeLoading, "", "none") },
			Send:   func(msg any) error { sent = append(sent, msg); return nil },
		})
		s.Handle(m)
		s.wg.Wait()
		s.Close()
		if want := m.Type != TypeCancel; (len(sent) == 1) != want {
			t.Errorf("%+v: sent %v", m, sent)
		}
	})
}
