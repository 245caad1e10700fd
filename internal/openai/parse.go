package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/pagelight/pagelight/engine"
)

const (
	defaultCompletionTokens = 16 // of /v1/completions, as in the API
	maxStopStrings          = 16
)

// Parse reads a body of an endpoint. The error is always a *StatusError with status 400.
//
// A field that is null is one that is not there. When max_tokens and max_completion_tokens are both given, the latter
// counts. stream_options are accepted without stream, since an answer in one piece has the usage anyway.
func Parse(e Endpoint, body []byte) (*Call, error) {
	switch e {
	case ChatCompletions:
		return ParseChat(body)
	case Completions:
		return ParseCompletion(body)
	}
	return nil, NewError(400, CodeInvalidValue, "endpoint",
		fmt.Sprintf("'endpoint' must be %q or %q", ChatCompletions, Completions))
}

// ParseChat reads a body of /v1/chat/completions.
func ParseChat(body []byte) (*Call, error) {
	o, err := readBody(body)
	if err != nil {
		return nil, err
	}
	c := &Call{Endpoint: ChatCompletions}
	c.Request.Messages = o.messages()
	c.Request.AddGenerationPrompt = o.boolean("add_generation_prompt")
	o.refuse("add_special_tokens", "false") // the template writes them
	for _, f := range notInChat {
		o.refuse(f.name, f.neutral)
	}
	return finish(o, c)
}

// ParseCompletion reads a body of /v1/completions.
func ParseCompletion(body []byte) (*Call, error) {
	o, err := readBody(body)
	if err != nil {
		return nil, err
	}
	c := &Call{Endpoint: Completions}
	c.Request.Prompt, c.Request.TokenIDs = o.prompt()
	c.Request.Params.MaxTokens = defaultCompletionTokens
	o.refuse("add_special_tokens", "true")
	for _, f := range notInCompletions {
		o.refuse(f.name, f.neutral)
	}
	return finish(o, c)
}

// field is one that the API knows and Pagelight does not support yet. Null and the neutral value pass.
type field struct{ name, neutral string }

var notInChat = []field{
	{"tools", `[]`},
	{"tool_choice", `"none"`},
	{"functions", `[]`},
	{"function_call", `"none"`},
	{"top_logprobs", `0`},
	{"continue_final_message", `false`},
	{"chat_template", ``},
	{"chat_template_kwargs", `{}`},
	{"documents", `[]`},
	{"audio", ``},
	{"modalities", `["text"]`},
	{"prediction", ``},
	{"web_search_options", ``},
}

var notInCompletions = []field{
	{"best_of", `1`}, {"suffix", `""`}, {"prompt_embeds", ``},
}

var notInEither = []field{
	{"n", `1`},
	{"logprobs", `false`},
	{"prompt_logprobs", ``},
	{"echo", `false`},
	{"response_format", `{"type":"text"}`},
	{"structured_outputs", ``},
	{"grammar", `""`},
	{"json_schema", ``},
	{"logit_bias", `{}`},
	{"presence_penalty", `0`},
	{"frequency_penalty", `0`},
	{"repetition_penalty", `1`},
	{"length_penalty", `1`},
	{"use_beam_search", `false`},
	{"stop_token_ids", `[]`},
	{"min_tokens", `0`},
	{"bad_words", `[]`},
	{"allowed_token_ids", ``},
	{"include_stop_str_in_output", `false`},
	{"spaces_between_special_tokens", `true`},
	{"truncate_prompt_tokens", ``},
	{"return_token_ids", `false`},
	{"return_tokens_as_token_ids", `false`},
	{"logits_processors", `[]`},
	{"kv_transfer_params", ``},
	{"priority", `0`},
}

// finish reads what both endpoints have in common.
func finish(o *object, c *Call) (*Call, error) {
	p := &c.Request.Params
	if s := o.str("model"); s != nil {
		c.Model = *s
	}
	p.Temperature = o.number("temperature", "from 0 to 2", func(v float64) bool { return v >= 0 && v <= 2 })
	p.TopP = o.number("top_p", "greater than 0 and at most 1", func(v float64) bool { return v > 0 && v <= 1 })
	p.MinP = o.number("min_p", "from 0 to 1", func(v float64) bool { return v >= 0 && v <= 1 })
	if v := o.integer("top_k", -1, math.MaxInt32); v != nil {
		k := int(*v)
		p.TopK = &k
	}
	p.Seed = o.integer("seed", math.MinInt64, math.MaxInt64)
	if v := o.integer("max_tokens", 1, math.MaxInt32); v != nil {
		p.MaxTokens = int(*v)
	}
	if v := o.integer("max_completion_tokens", 1, math.MaxInt32); v != nil {
		p.MaxTokens = int(*v)
	}
	p.Stop = o.stop()
	if v := o.boolean("ignore_eos"); v != nil {
		p.IgnoreEOS = *v
	}
	if v := o.boolean("skip_special_tokens"); v != nil {
		p.KeepSpecial = !*v
	}
	if v := o.boolean("stream"); v != nil {
		c.Stream = *v
	}
	c.IncludeUsage = o.streamOptions()
	o.take("user")
	for _, f := range notInEither {
		o.refuse(f.name, f.neutral)
	}
	o.refusePrefix("guided_")
	o.done()
	if o.r.err != nil {
		return nil, o.r.err
	}
	c.Ignored = o.r.ignoredNames()
	return c, nil
}

func (o *object) stop() []string {
	raw, ok := o.take("stop")
	if !ok {
		return nil
	}
	const want = "a string or an array of strings"
	if s, ok := stringOf(raw); ok {
		return o.checkStop("stop", nil, s)
	}
	elems, ok := array(raw)
	if !ok {
		o.r.failType("stop", want, raw)
		return nil
	}
	if len(elems) > maxStopStrings {
		o.r.fail(CodeInvalidValue, "stop", "'stop' must have at most %d strings, but has %d", maxStopStrings, len(elems))
		return nil
	}
	var stop []string
	for i, e := range elems {
		param := fmt.Sprintf("stop[%d]", i)
		s, ok := stringOf(e)
		if !ok {
			o.r.failType(param, "a string", e)
			return nil
		}
		stop = o.checkStop(param, stop, s)
	}
	return stop
}

func (o *object) checkStop(param string, stop []string, s string) []string {
	if s == "" {
		o.r.fail(CodeInvalidValue, param, "'%s' must not be empty", param)
	}
	return append(stop, s)
}

func (o *object) streamOptions() (includeUsage bool) {
	raw, ok := o.take("stream_options")
	if !ok {
		return false
	}
	opts := o.r.object("stream_options.", "stream_options.", raw)
	if opts == nil {
		o.r.failType("stream_options", "an object", raw)
		return false
	}
	if v := opts.boolean("include_usage"); v != nil {
		includeUsage = *v
	}
	opts.boolean("include_obfuscation") // padding against eavesdroppers who measure lengths: there is none
	opts.refuse("continuous_usage_stats", `false`)
	opts.done()
	return includeUsage
}

func (o *object) messages() []engine.Message {
	raw, ok := o.take("messages")
	if !ok {
		o.r.fail(CodeMissing, "messages", "'messages' is missing")
		return nil
	}
	elems, ok := array(raw)
	if !ok {
		o.r.failType("messages", "an array", raw)
		return nil
	}
	if len(elems) == 0 {
		o.r.fail(CodeInvalidValue, "messages", "'messages' must not be empty")
		return nil
	}
	msgs := make([]engine.Message, 0, len(elems))
	for i, e := range elems {
		param := fmt.Sprintf("messages[%d]", i)
		m := o.r.object(param+".", "messages[].", e)
		if m == nil {
			o.r.failType(param, "an object", e)
			return nil
		}
		msgs = append(msgs, m.message())
		if o.r.err != nil {
			return nil
		}
	}
	return msgs
}

func (o *object) message() engine.Message {
	var m engine.Message
	role := o.str("role")
	switch {
	case role == nil:
		o.r.fail(CodeMissing, o.path+"role", "'%srole' is missing", o.path)
		return m
	case *role == "system", *role == "user", *role == "assistant":
		m.Role = *role
	case *role == "developer": // the newer name of system
		m.Role = "system"
	case *role == "tool", *role == "function":
		o.r.fail(CodeUnsupported, o.path+"role", "'%srole' %q is not supported yet", o.path, *role)
	default:
		o.r.fail(CodeInvalidValue, o.path+"role", "'%srole' must be system, developer, user or assistant", o.path)
	}
	o.refuse("tool_calls", `[]`)
	o.refuse("function_call", ``)
	o.refuse("audio", ``)
	m.Content = o.content()
	o.done()
	return m
}

// content reads a string or an array of text parts, which are joined by line breaks as vLLM and llama.cpp do.
func (o *object) content() string {
	const want = "a string or an array of text parts"
	param := o.path + "content"
	raw, there := o.fields["content"]
	delete(o.fields, "content")
	if !there {
		o.r.fail(CodeMissing, param, "'%s' is missing", param)
		return ""
	}
	if s, ok := stringOf(raw); ok {
		return s
	}
	elems, ok := array(raw)
	if !ok {
		o.r.failType(param, want, raw)
		return ""
	}
	if len(elems) == 0 {
		o.r.fail(CodeInvalidValue, param, "'%s' must not be an empty array", param)
		return ""
	}
	texts := make([]string, 0, len(elems))
	for i, e := range elems {
		part := o.r.object(fmt.Sprintf("%s[%d].", param, i), "messages[].content[].", e)
		if part == nil {
			o.r.failType(fmt.Sprintf("%s[%d]", param, i), "an object", e)
			return ""
		}
		texts = append(texts, part.textPart())
		if o.r.err != nil {
			return ""
		}
	}
	return strings.Join(texts, "\n")
}

func (o *object) textPart() string {
	switch kind := o.str("type"); {
	case kind == nil:
		o.r.fail(CodeMissing, o.path+"type", "'%stype' is missing", o.path)
		return ""
	case *kind == "text":
	case *kind == "image_url", *kind == "input_audio", *kind == "audio_url", *kind == "video_url", *kind == "file", *kind == "refusal":
		o.r.fail(CodeUnsupported, o.path+"type", "'%stype' %q is not supported yet: only text parts are", o.path, *kind)
		return ""
	default:
		o.r.fail(CodeInvalidValue, o.path+"type", "'%stype' must be \"text\"", o.path)
		return ""
	}
	text := o.str("text")
	if text == nil {
		o.r.fail(CodeMissing, o.path+"text", "'%stext' is missing", o.path)
		return ""
	}
	o.done()
	return *text
}

// prompt reads text, or token ids, or an array with one of either.
func (o *object) prompt() (text *string, ids []int32) {
	const want = "a string or an array of token ids"
	raw, ok := o.take("prompt")
	if !ok {
		o.r.fail(CodeMissing, "prompt", "'prompt' is missing")
		return nil, nil
	}
	if s, ok := stringOf(raw); ok {
		return &s, nil
	}
	elems, ok := array(raw)
	if !ok {
		o.r.failType("prompt", want, raw)
		return nil, nil
	}
	if len(elems) == 0 {
		o.r.fail(CodeInvalidValue, "prompt", "'prompt' must not be an empty array")
		return nil, nil
	}
	switch kindOf(elems[0]) {
	case '0':
		return nil, o.tokenIDs("prompt", elems)
	case '"', '[':
		if len(elems) > 1 {
			o.r.fail(CodeUnsupported, "prompt", "'prompt' with several prompts is not supported yet: it has %d", len(elems))
			return nil, nil
		}
	}
	if s, ok := stringOf(elems[0]); ok {
		return &s, nil
	}
	inner, ok := array(elems[0])
	if !ok {
		o.r.failType("prompt[0]", "a string or a token id", elems[0])
		return nil, nil
	}
	if len(inner) == 0 {
		o.r.fail(CodeInvalidValue, "prompt[0]", "'prompt[0]' must not be an empty array")
		return nil, nil
	}
	return nil, o.tokenIDs("prompt[0]", inner)
}

func (o *object) tokenIDs(param string, elems []json.RawMessage) []int32 {
	ids := make([]int32, 0, len(elems))
	for i, e := range elems {
		v := o.r.integer(fmt.Sprintf("%s[%d]", param, i), e, 0, math.MaxInt32)
		if v == nil {
			return nil
		}
		ids = append(ids, int32(*v))
	}
	return ids
}
