package host

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestGoldenExchanges sends whole HTTP requests and compares whole answers, byte for byte but for the Date and the carriage
// returns. Chunked streams show what was flushed together. Run with -update to rewrite, and read the diff.
func TestGoldenExchanges(t *testing.T) {
	t.Parallel()
	const chat = `"messages":[{"role":"user","content":"count 3"}]`
	plain := Config{Static: testFiles(), Version: "1.2.3"}
	named := Config{ServedModelNames: []string{"ernie", "baidu/ernie"}}
	for _, c := range []struct {
		name   string
		cfg    Config
		start  string // the request line without the protocol
		header []string
		body   string
	}{
		{"chat", plain, "POST /v1/chat/completions", nil, `{` + chat + `}`},
		{"chat_stream", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"stream":true}`},
		{"chat_stream_usage", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"stream":true,"stream_options":{"include_usage":true}}`},
		{"chat_ignored_fields", plain, "POST /v1/chat/completions", []string{"X-Request-Id: mine"}, `{` + chat + `,"zeta":1,"alpha":{},"top_k":5}`},
		{"completion", plain, "POST /v1/completions", nil, `{"prompt":"count 2"}`},
		{"completion_stream", plain, "POST /v1/completions", nil, `{"prompt":"count 2","stream":true,"stream_options":{"include_usage":true}}`},
		{"stream_error_before", plain, "POST /v1/completions", nil, `{"prompt":"too long","stream":true}`},
		{"stream_error_within", plain, "POST /v1/completions", nil, `{"prompt":"lost","stream":true}`},
		{"silent", plain, "POST /v1/completions", nil, `{"prompt":"silent"}`},
		{"panic", plain, "POST /v1/completions", nil, `{"prompt":"panic"}`},
		{"late_panic", plain, "POST /v1/completions", nil, `{"prompt":"late panic","stream":true}`},
		{"context_length", plain, "POST /v1/completions", nil, `{"prompt":"too long"}`},
		{"engine_param", plain, "POST /v1/completions", nil, `{"prompt":"what?"}`},
		{"bad_json", plain, "POST /v1/chat/completions", nil, `{"messages":[`},
		{"bad_type", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"temperature":"hot"}`},
		{"bad_utf8", plain, "POST /v1/chat/completions", nil, "{\"messages\":\"\xff\"}"},
		{"unsupported", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"tools":[{"type":"function"}]}`},
		{"empty_body", plain, "POST /v1/completions", nil, ``},
		{"model_named", named, "POST /v1/completions", nil, `{"model":"baidu/ernie","prompt":"count 1"}`},
		{"model_default", named, "POST /v1/completions", nil, `{"model":"","prompt":"count 1"}`},
		{"model_unknown", named, "POST /v1/completions", nil, `{"model":"gpt-4","prompt":"count 1"}`},
		{"chat_logprobs", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"logprobs":true,"top_logprobs":2}`},
		{"chat_logprobs_stream", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"logprobs":true,"stream":true}`},
		{"chat_prompt_logprobs", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"prompt_logprobs":1}`},
		{"chat_n", plain, "POST /v1/chat/completions", nil, `{` + chat + `,"n":2}`},
		{"chat_n_stream", plain, "POST /v1/chat/completions", nil, `{"messages":[{"role":"user","content":"count 2"}],"n":2,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`},
		{"completion_logprobs", plain, "POST /v1/completions", nil, `{"prompt":"count 2","logprobs":2}`},
		{"completion_logprobs_stream", plain, "POST /v1/completions", nil, `{"prompt":"count 2","logprobs":0,"stream":true}`},
		{"completion_echo", plain, "POST /v1/completions", nil, `{"prompt":"count 2","echo":true,"logprobs":1}`},
		{"completion_echo_only", plain, "POST /v1/completions", nil, `{"prompt":"count 2","echo":true,"max_tokens":0,"logprobs":0}`},
		{"completion_echo_only_stream", plain, "POST /v1/completions", nil, `{"prompt":"count 2","echo":true,"max_tokens":0,"stream":true}`},
		{"completion_echo_ids_stream", plain, "POST /v1/completions", nil, `{"prompt":[104,105],"echo":true,"stream":true}`},
		{"completion_prompt_logprobs", plain, "POST /v1/completions", nil, `{"prompt":"count 1","prompt_logprobs":2}`},
		{"completion_prompts", plain, "POST /v1/completions", nil, `{"prompt":["count 1","count 3",[5,6]],"n":2,"echo":true}`},
		{"completion_stop_token", plain, "POST /v1/completions", nil, `{"prompt":"stopped","stop_token_ids":[9],"include_stop_str_in_output":true}`},
		{"completion_prompts_one_bad", plain, "POST /v1/completions", nil, `{"prompt":["what?","hang"]}`},
		{"completion_prompts_panic", plain, "POST /v1/completions", nil, `{"prompt":["panic","hang"]}`},
		{"queue_full", plain, "POST /v1/completions", nil, `{"prompt":"full"}`},
		{"queue_full_stream", plain, "POST /v1/completions", nil, `{"prompt":["full","hang"],"stream":true}`},
		{"param_range", plain, "POST /v1/completions", nil, `{"prompt":"count 1","presence_penalty":2.5}`},
		{"tokenize", plain, "POST /tokenize", nil, `{"prompt":"hé"}`},
		{"tokenize_bare", plain, "POST /tokenize", nil, `{"prompt":"","add_special_tokens":false}`},
		{"tokenize_pieces", plain, "POST /tokenize", nil, `{"prompt":"h","return_token_strs":true,"extra":1}`},
		{"tokenize_chat", plain, "POST /tokenize", nil, `{"messages":[{"role":"user","content":"h"}],"add_generation_prompt":false}`},
		{"tokenize_refused", plain, "POST /tokenize", nil, `{"prompt":"\u0000"}`},
		{"tokenize_model_unknown", named, "POST /tokenize", nil, `{"model":"gpt-4","prompt":"h"}`},
		{"tokenize_key_missing", Config{APIKey: "k"}, "POST /tokenize", nil, `{"prompt":"h"}`},
		{"detokenize", plain, "POST /detokenize", nil, `{"tokens":[104,233]}`},
		{"detokenize_unknown", plain, "POST /detokenize", nil, `{"tokens":[104,2000000]}`},
		{"detokenize_missing", plain, "POST /detokenize", nil, `{"prompt":"h"}`},
		{"models", named, "GET /v1/models", nil, ``},
		{"models_one", named, "GET /v1/models/baidu/ernie", nil, ``},
		{"models_one_escaped", named, "GET /v1/models/baidu%2Fernie", nil, ``},
		{"models_none", named, "GET /v1/models/gpt-4", nil, ``},
		{"models_head", named, "HEAD /v1/models", nil, ``},
		{"health", plain, "GET /health", nil, ``},
		{"version", plain, "GET /version", nil, ``},
		{"unknown_path", plain, "GET /v1/nothing", nil, ``},
		{"method", plain, "GET /v1/completions", nil, ``},
		{"method_unknown", plain, "BREW /v1/completions", nil, ``},
		{"key_missing", Config{APIKey: "k"}, "GET /v1/models", nil, ``},
		{"key_wrong", Config{APIKey: "k"}, "GET /v1/models", []string{"Authorization: Bearer x"}, ``},
		{"foreign_host", plain, "GET /v1/models", []string{"Host: evil.example:8000"}, ``},
		{"foreign_origin", plain, "POST /v1/completions", []string{"Origin: https://evil.example"}, `{"prompt":"count 1"}`},
		{"preflight", Config{AllowedOrigins: []string{"https://chat.example"}, APIKey: "k"}, "OPTIONS /v1/completions", []string{
			"Origin: https://chat.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type,x-stainless-os", "Access-Control-Request-Private-Network: true",
		}, ``},
		{"cross_origin", Config{AllowedOrigins: []string{"https://chat.example"}}, "GET /v1/models", []string{"Origin: https://chat.example"}, ``},
		{"page", plain, "GET /", nil, ``},
		{"page_missing", plain, "GET /nothing.html", nil, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := newTestServer(t, c.cfg)
			var req strings.Builder
			fmt.Fprintf(&req, "%s HTTP/1.1\r\n", c.start)
			if !strings.HasPrefix(strings.Join(c.header, ""), "Host:") {
				req.WriteString("Host: localhost:8000\r\n")
			}
			for _, h := range c.header {
				req.WriteString(h + "\r\n")
			}
			if c.body != "" || strings.HasPrefix(c.start, "POST") {
				fmt.Fprintf(&req, "Content-Length: %d\r\n", len(c.body))
			}
			req.WriteString("Connection: close\r\n\r\n" + c.body)
			answer := exchange(t, serve(t, s), req.String())
			answer = regexp.MustCompile(`(?m)^Date: .*\r\n`).ReplaceAll(answer, nil)
			got := strings.ReplaceAll(fmt.Sprintf("%s\n\n-----\n%s", strings.ToValidUTF8(req.String(), "<ff>"), answer), "\r\n", "\n")

			file := filepath.Join("testdata", c.name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// exchange sends bytes and returns all that comes back until the server closes.
func exchange(t *testing.T, url, request string) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, conn); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
