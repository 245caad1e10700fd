package openai

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
)

func ptr[T any](v T) *T { return &v }

func TestParseReadsEveryFieldOfAChat(t *testing.T) {
	t.Parallel()
	got, err := ParseChat([]byte(`{
		"model": "ernie", "messages": [
			{"role": "developer", "content": "Be brief.", "name": "boss"},
			{"role": "user", "content": [{"type": "text", "text": "你"}, {"type": "text", "text": "好", "cache_control": {}}]},
			{"role": "assistant", "content": "", "refusal": null, "tool_calls": []},
			{"role": "user", "content": "again"}],
		"max_tokens": 5, "max_completion_tokens": 1.2e1, "temperature": 0.5, "top_p": 1, "top_k": -1, "min_p": 0, "seed": -9223372036854775808,
		"stop": ["a", "\n"], "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true, "zip": 1}, "user": "me",
		"add_generation_prompt": false, "ignore_eos": true, "skip_special_tokens": false,
		"n": 3.0, "tools": [ ], "tool_choice": "none", "response_format": { "type": "text" }, "echo": false,
		"presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 1.1, "logit_bias": {"0": -100, "7": 1e1}, "allowed_token_ids": [3, 4],
		"bad_words": ["x", " y"], "min_tokens": 12, "stop_token_ids": [9, 8], "include_stop_str_in_output": true,
		"logprobs": true, "top_logprobs": 20, "prompt_logprobs": 0, "priority": -4, "cache_salt": "pepper", "best": 1, "metadata": {"a": "b"}, "nothing": null, "Temperature": 9}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Call{
		Endpoint: ChatCompletions, Model: "ernie", Stream: true, IncludeUsage: true, ContinuousUsage: true, PromptLogprobs: true,
		Request: engine.Request{
			Messages:            []engine.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "你\n好"}, {Role: "assistant"}, {Role: "user", Content: "again"}},
			AddGenerationPrompt: ptr(false),
			Params: engine.Params{
				Temperature: ptr(0.5), TopP: ptr(1.0), TopK: ptr(-1), MinP: ptr(0.0), Seed: ptr(int64(math.MinInt64)),
				MaxTokens: 12, Stop: []string{"a", "\n"}, IgnoreEOS: true, KeepSpecial: true,
				PresencePenalty: ptr(-2.0), FrequencyPenalty: ptr(2.0), RepetitionPenalty: ptr(1.1), LogitBias: map[int32]float64{0: -100, 7: 10},
				AllowedTokenIDs: []int32{3, 4}, BadWords: []string{"x", " y"}, MinTokens: 12, StopTokenIDs: []int32{9, 8}, IncludeStop: true,
				Logprobs: ptr(20), PromptLogprobs: ptr(0),
			},
			N: 3, Priority: -4, CacheSalt: "pepper",
		},
		Ignored: []string{"Temperature", "best", "messages[].content[].cache_control", "messages[].name", "metadata", "stream_options.zip"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	chat, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],"temperature":null,"max_tokens":null,"stop":null,"stream":null}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Call{Endpoint: ChatCompletions, Ignored: []string{}, Request: engine.Request{Messages: []engine.Message{{Role: "user", Content: "x"}}}}); !reflect.DeepEqual(chat, want) {
		t.Errorf("chat: got %+v, want %+v", chat, want)
	}
	text, err := ParseCompletion([]byte(`{"prompt":"","max_tokens":null}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Call{Endpoint: Completions, Ignored: []string{}, Request: engine.Request{Prompt: ptr(""), Params: engine.Params{MaxTokens: 16}}}); !reflect.DeepEqual(text, want) {
		t.Errorf("completion: got %+v, want %+v", text, want)
	}
}

func TestParsePrompts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prompt string
		want   []Prompt
	}{
		{`"a"`, []Prompt{{Text: ptr("a")}}},
		{`["a"]`, []Prompt{{Text: ptr("a")}}},
		{`[1, 2, 2147483647]`, []Prompt{{TokenIDs: []int32{1, 2, math.MaxInt32}}}},
		{`[[0]]`, []Prompt{{TokenIDs: []int32{0}}}},
		{`["a", ""]`, []Prompt{{Text: ptr("a")}, {Text: ptr("")}}},
		{`[[1], [2, 3]]`, []Prompt{{TokenIDs: []int32{1}}, {TokenIDs: []int32{2, 3}}}},
		{`["a", [1]]`, []Prompt{{Text: ptr("a")}, {TokenIDs: []int32{1}}}},
	} {
		got, err := ParseCompletion([]byte(`{"prompt":` + c.prompt + `}`))
		if err != nil {
			t.Errorf("%s: %v", c.prompt, err)
			continue
		}
		prompts := got.Prompts
		if len(prompts) == 0 {
			prompts = []Prompt{{got.Request.Prompt, got.Request.TokenIDs}}
		} else if got.Request.Prompt != nil || got.Request.TokenIDs != nil {
			t.Errorf("%s: two places have prompts", c.prompt)
		}
		if !reflect.DeepEqual(prompts, c.want) {
			t.Errorf("%s: got %+v", c.prompt, prompts)
		}
	}
}

func TestParseCompletionsOwnFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields string
		want   Call
	}{
		{`"echo":true,"max_tokens":0`, Call{Echo: true, Request: engine.Request{Params: engine.Params{PromptOnly: true}}}},
		{`"echo":true,"max_tokens":0,"max_completion_tokens":3`, Call{Echo: true, Request: engine.Request{Params: engine.Params{MaxTokens: 3}}}},
		{`"echo":true,"logprobs":2`, Call{Echo: true, Request: engine.Request{Params: engine.Params{MaxTokens: 16, Logprobs: ptr(2), PromptLogprobs: ptr(2)}}}},
		{`"echo":true,"logprobs":2,"prompt_logprobs":5`, Call{
			Echo: true, PromptLogprobs: true, Request: engine.Request{Params: engine.Params{MaxTokens: 16, Logprobs: ptr(2), PromptLogprobs: ptr(5)}},
		}},
		{`"logprobs":0,"n":2,"best_of":2`, Call{Request: engine.Request{N: 2, Params: engine.Params{MaxTokens: 16, Logprobs: ptr(0)}}}},
		{`"best_of":1,"stop":[],"stop_token_ids":[],"bad_words":[],"logit_bias":{}`, Call{Request: engine.Request{Params: engine.Params{MaxTokens: 16}}}},
		{`"stream_options":{"continuous_usage_stats":true}`, Call{Request: engine.Request{Params: engine.Params{MaxTokens: 16}}}},
	} {
		c.want.Endpoint, c.want.Ignored, c.want.Request.Prompt = Completions, []string{}, ptr("x")
		if got, err := ParseCompletion([]byte(`{"prompt":"x",` + c.fields + `}`)); err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", c.fields, got, err, c.want)
		}
	}
}

func TestLastOfDuplicateFieldsCounts(t *testing.T) {
	t.Parallel()
	got, err := ParseCompletion([]byte(`{"prompt":"a","seed":1,"prompt":"b","seed":2}`))
	if err != nil || *got.Request.Prompt != "b" || *got.Request.Params.Seed != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const chat = `"messages":[{"role":"user","content":"x"}],`
	for _, c := range []struct {
		endpoint          Endpoint
		body              string
		code, param, says string
	}{
		{ChatCompletions, ``, CodeInvalidJSON, "", "the body is empty"},
		{ChatCompletions, ` `, CodeInvalidJSON, "", "the body is empty"},
		{ChatCompletions, `[]`, CodeInvalidType, "", "must be a JSON object, but is an array"},
		{ChatCompletions, `null`, CodeInvalidType, "", "but is null"},
		{ChatCompletions, `{"messages":`, CodeInvalidJSON, "", "not valid JSON: unexpected end of JSON input"},
		{ChatCompletions, `{"a":1}x`, CodeInvalidJSON, "", "at offset 8"},
		{ChatCompletions, "{\"a\":\"\xff\"}", CodeInvalidUTF8, "", "byte 0xff at offset 6"},
		{ChatCompletions, `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, CodeInvalidJSON, "", "max depth"},
		{ChatCompletions, `{}`, CodeMissing, "messages", "'messages' is missing"},
		{ChatCompletions, `{"messages":"x"}`, CodeInvalidType, "messages", "must be an array, but a string was given"},
		{ChatCompletions, `{"messages":[]}`, CodeInvalidValue, "messages", "must not be empty"},
		{ChatCompletions, `{"messages":[1]}`, CodeInvalidType, "messages[0]", "must be an object, but 1 was given"},
		{ChatCompletions, `{"messages":[{"content":"x"}]}`, CodeMissing, "messages[0].role", "is missing"},
		{ChatCompletions, `{"messages":[{"role":"tool","content":"x"}]}`, CodeUnsupported, "messages[0].role", "not supported yet"},
		{ChatCompletions, `{"messages":[{"role":"bot","content":"x"}]}`, CodeInvalidValue, "messages[0].role", "must be system"},
		{ChatCompletions, `{"messages":[{"role":"user"}]}`, CodeMissing, "messages[0].content", "is missing"},
		{ChatCompletions, `{"messages":[{"role":"user","content":null}]}`, CodeInvalidType, "messages[0].content", "but null was given"},
		{ChatCompletions, `{"messages":[{"role":"user","content":[]}]}`, CodeInvalidValue, "messages[0].content", "empty"},
		{ChatCompletions, `{"messages":[{"role":"user","content":["x"]}]}`, CodeInvalidType, "messages[0].content[0]", "must be an object"},
		{ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, CodeUnsupported, "messages[0].content[0].type", `"image_url" is not supported yet`},
		{ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"what"}]}]}`, CodeInvalidValue, "messages[0].content[0].type", "must be"},
		{ChatCompletions, `{"messages":[{"role":"user","content":[{"text":"x"}]}]}`, CodeMissing, "messages[0].content[0].type", "missing"},
		{ChatCompletions, `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, CodeMissing, "messages[0].content[0].text", "missing"},
		{ChatCompletions, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{}]}]}`, CodeUnsupported, "messages[1].tool_calls", "not supported yet"},
		{ChatCompletions, `{` + chat + `"model":1}`, CodeInvalidType, "model", "must be a string, but 1 was given"},
		{ChatCompletions, `{` + chat + `"temperature":"hot"}`, CodeInvalidType, "temperature", "must be a number, but a string was given"},
		{ChatCompletions, `{` + chat + `"temperature":-1e-9}`, CodeInvalidValue, "temperature", "at least 0, but is -1e-9"},
		{ChatCompletions, `{` + chat + `"temperature":1e999}`, CodeInvalidValue, "temperature", "but is 1e999"},
		{ChatCompletions, `{` + chat + `"top_p":0}`, CodeInvalidValue, "top_p", "greater than 0 and at most 1"},
		{ChatCompletions, `{` + chat + `"top_p":true}`, CodeInvalidType, "top_p", "but true was given"},
		{ChatCompletions, `{` + chat + `"top_k":-2}`, CodeInvalidValue, "top_k", "at least -1"},
		{ChatCompletions, `{` + chat + `"top_k":1.5}`, CodeInvalidType, "top_k", "must be an integer, but is 1.5"},
		{ChatCompletions, `{` + chat + `"min_p":1.01}`, CodeInvalidValue, "min_p", "from 0 to 1"},
		{ChatCompletions, `{` + chat + `"seed":9223372036854775808}`, CodeInvalidValue, "seed", "from -9223372036854775808 to 9223372036854775807"},
		{ChatCompletions, `{` + chat + `"max_tokens":0}`, CodeInvalidValue, "max_tokens", "at least 1, but is 0"},
		{ChatCompletions, `{` + chat + `"max_tokens":1e300}`, CodeInvalidValue, "max_tokens", "but is 1e300"},
		{ChatCompletions, `{` + chat + `"max_completion_tokens":[]}`, CodeInvalidType, "max_completion_tokens", "must be an integer, but an array was given"},
		{ChatCompletions, `{` + chat + `"stop":""}`, CodeInvalidValue, "stop", "must not be empty"},
		{ChatCompletions, `{` + chat + `"stop":["a",""]}`, CodeInvalidValue, "stop[1]", "must not be empty"},
		{ChatCompletions, `{` + chat + `"stop":[1]}`, CodeInvalidType, "stop[0]", "must be a string"},
		{ChatCompletions, `{` + chat + `"stop":{}}`, CodeInvalidType, "stop", "must be a string or an array of strings"},
		{ChatCompletions, `{` + chat + `"stop":[` + strings.Repeat(`"a",`, 16) + `"a"]}`, CodeInvalidValue, "stop", "at most 16 strings, but has 17"},
		{ChatCompletions, `{` + chat + `"stream":"yes"}`, CodeInvalidType, "stream", "must be true or false"},
		{ChatCompletions, `{` + chat + `"stream_options":true}`, CodeInvalidType, "stream_options", "must be an object"},
		{ChatCompletions, `{` + chat + `"stream_options":{"include_usage":1}}`, CodeInvalidType, "stream_options.include_usage", "true or false"},
		{ChatCompletions, `{` + chat + `"tools":[{"type":"function"}]}`, CodeUnsupported, "tools", "only [] is accepted, but an array was given"},
		{ChatCompletions, `{` + chat + `"tool_choice":"auto"}`, CodeUnsupported, "tool_choice", `only "none"`},
		{ChatCompletions, `{` + chat + `"functions":[{}]}`, CodeUnsupported, "functions", "not supported yet"},
		{ChatCompletions, `{` + chat + `"response_format":{"type":"json_object"}}`, CodeUnsupported, "response_format", "not supported yet"},
		{ChatCompletions, `{` + chat + `"guided_json":{},"guided_choice":[]}`, CodeUnsupported, "guided_choice", "not supported yet"},
		{ChatCompletions, `{` + chat + `"structured_outputs":{}}`, CodeUnsupported, "structured_outputs", "not supported yet"},
		{ChatCompletions, `{` + chat + `"add_special_tokens":true}`, CodeUnsupported, "add_special_tokens", "only false"},
		{Completions, `{}`, CodeMissing, "prompt", "is missing"},
		{Completions, `{"prompt":null}`, CodeMissing, "prompt", "is missing"},
		{Completions, `{"prompt":1}`, CodeInvalidType, "prompt", "must be a string, an array of token ids, or an array of several of these, but 1"},
		{Completions, `{"prompt":[]}`, CodeInvalidValue, "prompt", "empty"},
		{Completions, `{"prompt":[[]]}`, CodeInvalidValue, "prompt[0]", "empty"},
		{Completions, `{"prompt":[{}]}`, CodeInvalidType, "prompt[0]", "an object was given"},
		{Completions, `{"prompt":[1,"a"]}`, CodeInvalidType, "prompt[1]", "must be an integer"},
		{Completions, `{"prompt":[-1]}`, CodeInvalidValue, "prompt[0]", "at least 0"},
		{Completions, `{"prompt":[[1,2147483648]]}`, CodeInvalidValue, "prompt[0][1]", "2147483648"},
		{Completions, `{"prompt":"a","suffix":"b"}`, CodeUnsupported, "suffix", "not supported yet"},
		{Completions, `{"prompt":[[1],[]]}`, CodeInvalidValue, "prompt[1]", "empty"},
		{Completions, `{"prompt":["a",1]}`, CodeInvalidType, "prompt[1]", "must be a string or an array of token ids, but 1"},
		{Completions, `{"prompt":[` + strings.Repeat(`"a",`, 256) + `"a"]}`, CodeInvalidValue, "prompt", "at most 256 prompts, but has 257"},
		{Completions, `{"prompt":"a","best_of":2}`, CodeUnsupported, "best_of", "beyond 'n', which is 1, but is 2"},
		{Completions, `{"prompt":"a","logprobs":21}`, CodeInvalidValue, "logprobs", "from 0 to 20, but is 21"},
		{Completions, `{"prompt":"a","logprobs":-1}`, CodeInvalidValue, "logprobs", "from 0 to 20, but is -1"}, // the whole vocabulary in vLLM
		{Completions, `{"prompt":"a","logprobs":true}`, CodeInvalidType, "logprobs", "must be an integer, but true"},
		{Completions, `{"prompt":"a","min_tokens":17}`, CodeInvalidValue, "min_tokens", "at most 'max_tokens', 16, but is 17"},
		{Completions, `{"prompt":"a","echo":true,"max_tokens":0,"min_tokens":1}`, CodeInvalidValue, "min_tokens", "at most 'max_tokens', 0"},
		{Completions, `{"prompt":"a","echo":true,"max_tokens":-1}`, CodeInvalidValue, "max_tokens", "at least 0"},
		{ChatCompletions, `{` + chat + `"echo":true,"max_tokens":0}`, CodeInvalidValue, "max_tokens", "at least 1"},
		{ChatCompletions, `{` + chat + `"top_logprobs":1}`, CodeInvalidValue, "top_logprobs", "needs 'logprobs'"},
		{ChatCompletions, `{` + chat + `"logprobs":false,"top_logprobs":1}`, CodeInvalidValue, "top_logprobs", "needs 'logprobs'"},
		{ChatCompletions, `{` + chat + `"logprobs":1}`, CodeInvalidType, "logprobs", "true or false"},
		{"embeddings", `{}`, CodeInvalidValue, "endpoint", "must be"},
	} {
		name := c.body
		if len(name) > 80 {
			name = name[:80]
		}
		call, err := Parse(c.endpoint, []byte(c.body))
		var e *StatusError
		if !errors.As(err, &e) {
			t.Errorf("%s: got %+v, %v", name, call, err)
			continue
		}
		param := ""
		if e.Detail.Param != nil {
			param = *e.Detail.Param
		}
		if e.Status != 400 || *e.Detail.Code != c.code || param != c.param || !strings.Contains(e.Detail.Message, c.says) || e.Detail.Type != "invalid_request_error" {
			t.Errorf("%s: got %d %s %q %q\nwant %s %q %q", name, e.Status, *e.Detail.Code, param, e.Detail.Message, c.code, c.param, c.says)
		}
	}
}

func TestErrorsDoNotRepeatWhatPeopleWrote(t *testing.T) {
	t.Parallel()
	const secret = "my secret"
	for _, body := range []string{
		`{"messages":"my secret"}`, `{"messages":[{"role":"user","content":{"a":"my secret"}}]}`, `{"messages":[{"role":"my secret"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"my secret"}]}]}`, `{"messages":[{"role":"user","content":"my secret"}],"temperature":"my secret"}`,
		`{"messages":[{"role":"user","content":"my secret"}],"stop":[["my secret"]]}`, `{"messages":[{"role":"user","content":"my secret`,
	} {
		if _, err := ParseChat([]byte(body)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

func TestIgnoredHeaderIsSafeAndShort(t *testing.T) {
	t.Parallel()
	if got, want := IgnoredHeader([]string{"a_b-c.d[]", "x\r\nSet-Cookie: é", strings.Repeat("l", 100)}),
		"a_b-c.d[], x%0D%0ASet-Cookie%3A%20%C3%A9, "+strings.Repeat("l", 64)+"..."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = "f"
	}
	if got, want := IgnoredHeader(many), strings.Repeat("f, ", 32)+"and 8 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
