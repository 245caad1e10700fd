package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Kinds of faults. A status other than 200 has the kind "http_" and the number.
const (
	KindConnect    = "connect"    // no connection
	KindTimeout    = "timeout"    // the request's own time was over
	KindTimeLimit  = "time_limit" // the measurement's time was over
	KindCancelled  = "cancelled"  // the measurement was given up
	KindDisconnect = "disconnect" // the connection or the stream ended too early
	KindStream     = "stream"     // the stream carried an error
	KindProtocol   = "protocol"   // the answer is not what the API says
	KindEmpty      = "empty"      // the answer has no output
	KindClient     = "client"     // the request could not be made
)

// Fault is why a request failed.
type Fault struct {
	Kind       string
	Status     int // of HTTP, where it is the reason
	Message    string
	RetryAfter time.Duration // what the server asks for with a 429; 0 where it does not say
}

func (f *Fault) Error() string { return f.Kind + ": " + f.Message }

// contextFault is the fault of a context that ended.
func contextFault(ctx context.Context) *Fault {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errRequestTimeout):
		return &Fault{Kind: KindTimeout, Message: cause.Error()}
	case errors.Is(cause, ErrTimeLimit):
		return &Fault{Kind: KindTimeLimit, Message: cause.Error()}
	}
	return &Fault{Kind: KindCancelled, Message: cause.Error()}
}

// transportFault is the fault of a request that got no answer.
func transportFault(ctx context.Context, err error) *Fault {
	if ctx.Err() != nil {
		return contextFault(ctx)
	}
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" {
		return &Fault{Kind: KindConnect, Message: err.Error()}
	}
	return &Fault{Kind: KindDisconnect, Message: err.Error()}
}

// streamFault is the fault of a stream that broke.
func streamFault(ctx context.Context, err error) *Fault {
	if ctx.Err() != nil {
		return contextFault(ctx)
	}
	return &Fault{Kind: KindDisconnect, Message: "the stream broke: " + err.Error()}
}

// statusFault is the fault of an answer with another status than 200.
func statusFault(res *http.Response) *Fault {
	body, _ := io.ReadAll(io.LimitReader(res.Body, 16<<10)) // what could be read is all there is to say
	f := &Fault{Kind: "http_" + strconv.Itoa(res.StatusCode), Status: res.StatusCode, Message: errorMessage(body)}
	if to := res.Header.Get("Location"); res.StatusCode >= 300 && res.StatusCode < 400 && to != "" {
		f.Message = fmt.Sprintf("redirected to %s, which is not followed", clip(to, 200))
	}
	if f.Message == "" {
		f.Message = http.StatusText(res.StatusCode)
	}
	f.RetryAfter = retryAfter(res.Header.Get("Retry-After"))
	return f
}

// retryAfter reads the header's value: seconds, or a date.
func retryAfter(value string) time.Duration {
	if s, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// errorMessage finds the message in the body of an error: {"error":{"message":…}}, {"error":"…"}, {"message":…},
// {"detail":…}, or the text itself.
func errorMessage(body []byte) string {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &e) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var text string
		switch {
		case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
			return clip(inner.Message, 300)
		case json.Unmarshal(e.Error, &text) == nil && text != "":
			return clip(text, 300)
		case e.Message != "":
			return clip(e.Message, 300)
		case len(e.Detail) > 0:
			return clip(string(e.Detail), 300)
		}
	}
	return clip(strings.TrimSpace(string(body)), 300)
}

// clip makes a text of a server fit for a terminal: short, valid, and without control characters.
func clip(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
