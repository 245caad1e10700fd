package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Backend is which of the two endpoints is measured; the names are vLLM's.
type Backend string

// The endpoints.
const (
	Completions Backend = "openai"      // /v1/completions
	Chat        Backend = "openai-chat" // /v1/chat/completions
)

// Path is the endpoint's usual path.
func (b Backend) Path() string {
	if b == Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// ClientOptions say which server is measured.
type ClientOptions struct {
	// BaseURL is the server's address, http or https, with any path that comes before /v1; a /v1 at its end is cut off.
	BaseURL  string
	Backend  Backend
	Endpoint string // path of the endpoint; "" is the Backend's
	Model    string // "" asks the server for its first one: see FindModel
	APIKey   string // sent as a bearer token
	Header   http.Header
	// Transport is what sends; nil is HTTP/1.1 with a connection for each request that runs.
	Transport http.RoundTripper
}

// Client talks to one server. It sends to the address it was given and nowhere else: it follows no redirect and uses no
// proxy.
type Client struct {
	opt  ClientOptions
	base string // without a slash at its end
	http *http.Client
}

// NewClient makes a client.
func NewClient(opt ClientOptions) (*Client, error) {
	u, err := url.Parse(opt.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no address of a server: write http://127.0.0.1:8080", opt.BaseURL)
	}
	if opt.Backend != Completions && opt.Backend != Chat {
		return nil, fmt.Errorf("there is no backend %q", opt.Backend)
	}
	if opt.Endpoint == "" {
		opt.Endpoint = opt.Backend.Path()
	}
	if !strings.HasPrefix(opt.Endpoint, "/") {
		return nil, fmt.Errorf("the endpoint %q is no path: write %s", opt.Endpoint, opt.Backend.Path())
	}
	if opt.Transport == nil {
		opt.Transport = &http.Transport{
			MaxIdleConnsPerHost: 1 << 16, // a connection that ends with its request would be paid for by the next one
			DisableCompression:  true,    // a compressed stream arrives in other pieces
			IdleConnTimeout:     time.Minute,
		}
	}
	base := strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1")
	return &Client{opt: opt, base: base, http: &http.Client{
		Transport:     opt.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// URL is the address that requests go to.
func (c *Client) URL() string { return c.base + c.opt.Endpoint }

// Close ends connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) request(ctx context.Context, method, address string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range c.opt.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if c.opt.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.opt.APIKey)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// send does one request and measures it. Times count from epoch. The clock is read by the caller before this, so that
// connecting and writing are part of what is measured.
func (c *Client) send(ctx context.Context, body []byte, epoch time.Time) (x Exchange) {
	defer func() { x.End = time.Since(epoch) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := c.request(ctx, http.MethodPost, c.URL(), body)
	if err != nil {
		x.Err = &Fault{Kind: KindClient, Message: err.Error()}
		return x
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := c.http.Do(req)
	if err != nil {
		x.Err = transportFault(ctx, err)
		return x
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		x.Err = statusFault(res)
		return x
	}
	if ct := res.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		x.Err = &Fault{Kind: KindProtocol, Message: fmt.Sprintf("the answer is no stream of events, but %q", clip(ct, 80))}
		return x
	}
	x.read(ctx, res.Body, epoch)
	if x.Done {
		// What is left is the end of the body. Reading it lets the connection be used again; a server that does not end it
		// must not hold up the next request.
		t := time.AfterFunc(100*time.Millisecond, cancel)
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
		t.Stop()
	}
	return x
}

// GetJSON reads a JSON document of the server, such as /api/info. path begins with a slash.
func (c *Client) GetJSON(ctx context.Context, path string) (json.RawMessage, error) {
	return c.json(ctx, http.MethodGet, path, nil)
}

func (c *Client) json(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var data []byte
	if body != nil {
		data = marshal(body)
	}
	req, err := c.request(ctx, method, c.base+path, data)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, transportFault(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, statusFault(res)
	}
	data, err = io.ReadAll(io.LimitReader(res.Body, maxEvent))
	if err != nil {
		return nil, transportFault(ctx, err)
	}
	if !json.Valid(data) {
		return nil, &Fault{Kind: KindProtocol, Message: path + " is no JSON"}
	}
	return data, nil
}

// Model is the name that requests ask for.
func (c *Client) Model() string { return c.opt.Model }

// FindModel asks the server for its models, takes the first where none was named, and returns the server's description
// of it; nil where the server lists none of that name.
func (c *Client) FindModel(ctx context.Context) (json.RawMessage, error) {
	raw, err := c.GetJSON(ctx, "/v1/models")
	if err != nil {
		return nil, fmt.Errorf("asking %s for its models: %w", c.base, err)
	}
	var list struct{ Data []json.RawMessage }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("asking %s for its models: %w", c.base, err)
	}
	for _, entry := range list.Data {
		var m struct{ ID string }
		if json.Unmarshal(entry, &m) != nil || m.ID == "" || c.opt.Model != "" && m.ID != c.opt.Model {
			continue
		}
		c.opt.Model = m.ID
		return entry, nil
	}
	if c.opt.Model == "" {
		return nil, fmt.Errorf("%s has no model", c.base)
	}
	return nil, nil
}

// errNoTokenize says that the server does not tokenize.
var errNoTokenize = errors.New("the server has no /tokenize")

// tokenize gives the ids of a text, without those that the server adds to prompts, by vLLM's /tokenize.
func (c *Client) tokenize(ctx context.Context, text string) ([]int32, error) {
	raw, err := c.json(ctx, http.MethodPost, "/tokenize", map[string]any{
		"model": c.opt.Model, "prompt": text, "add_special_tokens": false,
	})
	if f := (*Fault)(nil); errors.As(err, &f) && f.Status >= 400 && f.Status < 500 && f.Status != http.StatusTooManyRequests {
		return nil, errNoTokenize
	}
	if err != nil {
		return nil, err
	}
	var answer struct{ Tokens []int32 }
	if json.Unmarshal(raw, &answer) != nil || len(answer.Tokens) == 0 {
		return nil, errNoTokenize // one of another kind
	}
	return answer.Tokens, nil
}

// marshal is for values that are always valid.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("BUG: " + err.Error())
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
