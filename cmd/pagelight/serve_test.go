package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestServe starts the server as a person would, asks it something and ends it.
func TestServe(t *testing.T) {
	t.Parallel()
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	var out, notes screen
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--device", "cpu", "--host", "0.0.0.0", "--port", "0", "--served-model-name", "one,two"}, strings.NewReader(""), &out, &notes)
	}()
	out.waitFor(t, "HTTP server started on ")
	m := regexp.MustCompile(`(?s)^model ernie-tiny, weights .*, context 2048 tokens, .*\nHTTP server started on http://0\.0\.0\.0:(\d+)\n$`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("standard output %q", out.String())
	}
	if !strings.Contains(notes.String(), "--api-key") {
		t.Errorf("no warning that everybody may use the model: %q", notes.String())
	}
	url := "http://127.0.0.1:" + m[1]
	get := func(path string) (int, string) {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	if status, body := get("/health"); status != http.StatusOK || !strings.Contains(body, `"ok"`) {
		t.Errorf("/health: %d %s", status, body)
	}
	if status, body := get("/v1/models"); status != http.StatusOK || !strings.Contains(body, `"one"`) || !strings.Contains(body, `"two"`) {
		t.Errorf("/v1/models: %d %s", status, body)
	}
	if status, body := get("/models/index.json"); status != http.StatusOK || !strings.Contains(body, `"builtin"`) || !strings.Contains(body, "synthetic:ernie-4.5-0.3b") {
		t.Errorf("/models/index.json: %d %s", status, body)
	}
	if status, body := get("/"); status != http.StatusOK || !strings.Contains(body, "<html") {
		t.Errorf("the page: %d %.100s", status, body)
	}
	// generation_config.json says: no sampling, at most 256 tokens.
	res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"two","messages":[{"role":"user","content":"Hello!"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Model   string
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Model != "two" || len(answer.Choices) != 1 || answer.Choices[0].Message.Content != "Hello! Nice to meet you." {
		t.Errorf("%+v", answer)
	}
	fails(t, exitFailed, "", []string{"cannot listen", m[1]}, "serve", "--device", "cpu", "--port", m[1])
	terminate()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d after SIGTERM, %s", code, notes.String())
	}
}

// TestServeAModelThatDoesNotOpen must not leave the port taken.
func TestServeAModelThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	fails(t, exitModel, "", []string{"config.json is missing"}, "serve", t.TempDir(), "--device", "cpu", "--port", port)
	if ln, err = net.Listen("tcp", "127.0.0.1:"+port); err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	ln.Close()
}
