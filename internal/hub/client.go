package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxRedirects  = 10
	maxFailures   = 6               // in a row, without a byte gained
	maxRetryAfter = 5 * time.Minute // longer waits are for whoever called
	maxErrorBody  = 64 << 10
	headerTimeout = 30 * time.Second
)

// statusError is an answer that is not the one asked for.
type statusError struct {
	status  int
	host    string
	code    string // X-Error-Code of the hub: RepoNotFound, RevisionNotFound, EntryNotFound, GatedRepo
	message string // what the server says, in one line
	after   time.Duration
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s answered %d %s", e.host, e.status, http.StatusText(e.status))
	if e.message != "" {
		s += ": " + e.message
	}
	return s
}

// temporary says whether the same request may be answered later.
func (e *statusError) temporary() bool {
	return e.status >= 500 && e.status != http.StatusNotImplemented || e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout
}

// webPageError says that a page for people came where data was asked for.
type webPageError struct{ host, title string }

func (e *webPageError) Error() string {
	s := "a web page"
	if e.title != "" {
		s += fmt.Sprintf(" (%q)", e.title)
	}
	return fmt.Sprintf("%s answered with %s instead of data: a log-in page of the network, a proxy, or HF_ENDPOINT names what is no hub", e.host, s)
}

// reply is an answer at the end of a chain of redirects.
type reply struct {
	*http.Response
	first http.Header // of the hub itself, before it sent to a storage host: X-Repo-Commit, X-Linked-Etag, X-Linked-Size
}

// request is what send sends.
type request struct {
	method, url string
	header      http.Header
	// stay ends at the first redirect to another host and gives that answer: the hub states a file's hash and size there.
	stay bool
	// checked says that a hash from the hub decides about the content. Only then may redirects lead from https to http.
	checked bool
}

// send makes a request and follows redirects. The token goes to the hub's own address only: a host that the hub redirects
// to does not get it, nor does the hub itself over a connection that is not encrypted when its address is. Any status but
// 2xx is an error.
func (h *Hub) send(ctx context.Context, r request) (*reply, error) {
	home, err := url.Parse(h.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	at, err := url.Parse(r.url)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	out := &reply{}
	away := false // once the chain has left the hub, it is not trusted with the token again
	for range maxRedirects {
		req, err := http.NewRequestWithContext(ctx, r.method, at.String(), http.NoBody)
		if err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
		for k, v := range r.header {
			req.Header[k] = v
		}
		req.Header.Set("User-Agent", h.UserAgent)
		away = away || !sameOrigin(at, home)
		if h.Token != "" && !away {
			req.Header.Set("Authorization", "Bearer "+h.Token)
		}
		resp, err := h.transport().RoundTrip(req)
		if err != nil {
			return nil, &networkError{at.Host, err}
		}
		if out.first == nil {
			out.first = resp.Header
		}
		to, err := redirect(resp, at)
		switch {
		case err != nil:
			drain(resp)
			return nil, err
		case to == nil:
			out.Response = resp
			return out, checkStatus(resp)
		case r.stay && !sameOrigin(to, home):
			out.Response = resp
			return out, nil
		case at.Scheme == "https" && to.Scheme == "http" && !r.checked:
			drain(resp)
			return nil, fmt.Errorf("%s redirects from https to http (%s), where anybody could change the answer", at.Host, to.Host)
		}
		if out.first.Get("X-Linked-Etag") == "" && sameOrigin(to, home) { // a repository that was renamed: the hash comes later
			out.first = nil
		}
		drain(resp)
		at = to
	}
	return nil, fmt.Errorf("%s: more than %d redirects", at.Host, maxRedirects)
}

// redirect is where an answer sends to; nil when it is no redirect.
func redirect(resp *http.Response, at *url.URL) (*url.URL, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	to, err := at.Parse(resp.Header.Get("Location"))
	if err != nil || (to.Scheme != "http" && to.Scheme != "https") || to.Host == "" {
		return nil, fmt.Errorf("%s redirects to what is no web address", at.Host)
	}
	to.User = nil
	return to, nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// checkStatus turns an answer that is not 2xx into an error; the body is then closed.
func checkStatus(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	defer drain(resp)
	e := &statusError{
		status: resp.StatusCode, host: resp.Request.URL.Host, code: resp.Header.Get("X-Error-Code"),
		message: oneLine(resp.Header.Get("X-Error-Message")), after: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
	if e.message == "" {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came of it will do
		e.message = errorText(resp.Header.Get("Content-Type"), body)
	}
	return e
}

var jsonError = regexp.MustCompile(`^\s*\{\s*"error"\s*:\s*"((?:[^"\\]|\\.)*)"`)

// errorText is what the body of an error says in a line: {"error": "..."}, the title of a page, or plain text.
func errorText(contentType string, body []byte) string {
	if title, ok := webPage(contentType, body); ok {
		return oneLine(title)
	}
	if m := jsonError.FindSubmatch(body); m != nil {
		if s, err := strconv.Unquote(`"` + string(m[1]) + `"`); err == nil {
			return oneLine(s)
		}
		return ""
	}
	if strings.HasPrefix(contentType, "text/plain") {
		return oneLine(string(body))
	}
	return ""
}

var (
	pageStart = regexp.MustCompile(`(?is)^[\s\x{feff}]*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b`)
	pageTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
)

// webPage says whether an answer is a page for people, and its title.
func webPage(contentType string, body []byte) (title string, ok bool) {
	if !strings.HasPrefix(contentType, "text/html") && !strings.HasPrefix(contentType, "application/xhtml") && !pageStart.Match(body) {
		return "", false
	}
	if m := pageTitle.FindSubmatch(body); m != nil {
		title = oneLine(string(m[1]))
	}
	return title, true
}

// oneLine makes text from elsewhere fit to be printed: one line, of bounded length, without control characters.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool { return r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }), " ")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "…"
	}
	return s
}

// retryAfter reads seconds or a date; 0 when there is neither.
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil && t.After(now) {
		return t.Sub(now)
	}
	return 0
}

// drain reads the little that is left of an answer, so that its connection can be used again, and closes it.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
	_ = resp.Body.Close()
}

// networkError says that there was no answer, or not all of it. It leaves out the address, which may hold a signature.
type networkError struct {
	host string
	err  error
}

func (e *networkError) Error() string {
	var dns *net.DNSError
	switch {
	case errors.As(e.err, &dns):
		return fmt.Sprintf("cannot reach %s: its name is not known (is there a network? HF_ENDPOINT names a mirror)", e.host)
	case isCertificate(e.err):
		return fmt.Sprintf("cannot trust %s: %v (a proxy that looks into connections?)", e.host, innermost(e.err))
	}
	return fmt.Sprintf("connection to %s: %v", e.host, innermost(e.err))
}

func (e *networkError) Unwrap() error { return e.err }

// temporary says whether another attempt makes sense.
func (e *networkError) temporary() bool {
	var dns *net.DNSError
	return !isCertificate(e.err) && (!errors.As(e.err, &dns) || dns.IsTemporary || dns.IsTimeout)
}

func isCertificate(err error) bool {
	var cert *tls.CertificateVerificationError
	return errors.As(err, &cert)
}

// innermost takes addresses of requests out of an error.
func innermost(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (h *Hub) transport() http.RoundTripper {
	h.once.Do(func() {
		if h.Transport != nil {
			h.made = h.Transport
			return
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.ResponseHeaderTimeout = headerTimeout
		t.DisableCompression = true // sizes and ranges count the bytes of the file
		t.MaxIdleConnsPerHost = 16
		h.made = t
	})
	return h.made
}

// retry calls try until it succeeds, fails for good, or has failed too often in a row. try says whether it got further than
// ever before; then the count begins anew.
func (h *Hub) retry(ctx context.Context, note func(string), try func() (further bool, err error)) error {
	for failures := 1; ; failures++ {
		further, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var t interface{ temporary() bool }
		if !errors.As(err, &t) || !t.temporary() {
			return err
		}
		if further {
			failures = 1
		}
		if failures >= maxFailures {
			return fmt.Errorf("%w (%d attempts)", err, failures)
		}
		pause := time.Second << (failures - 1)
		var status *statusError
		if errors.As(err, &status) && status.after > 0 {
			if pause = status.after; pause > maxRetryAfter {
				return fmt.Errorf("%w; it asks to come back in %s", err, pause.Round(time.Second))
			}
		}
		if note != nil {
			note(fmt.Sprintf("%v; trying again in %s", err, pause.Round(time.Second)))
		}
		if err := h.pause(ctx, pause); err != nil {
			return err
		}
	}
}

func (h *Hub) pause(ctx context.Context, d time.Duration) error {
	if h.Wait != nil {
		h.Wait(d)
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
