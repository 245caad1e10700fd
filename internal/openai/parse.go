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
	maxPrompts              = 256
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
	c.Echo = o.flag("echo")
	o.chatLogprobs(&c.Request.Params)
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
	switch prompts := o.prompts(); len(prompts) {
	case 0: // refused
	case 1:
		c.Request.Prompt, c.Request.TokenIDs = prompts[0].Text, prompts[0].TokenIDs
	default:
		c.Prompts = prompts
	}
	p := &c.Request.Params
	p.MaxTokens = defaultCompletionTokens
	c.Echo = o.flag("echo")
	if p.Logprobs = o.count("logprobs", 0, engine.MaxLogprobs); c.Echo {
		p.PromptLogprobs = p.Logprobs // what is echoed gets the same
	}
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
	{"suffix", `""`}, {"prompt_embeds", ``},
}

var notInEither = []field{
	{"response_format", `{"type":"text"}`},
	{"structured_outputs", ``},
	{"grammar", `""`},
	{"json_schema", ``},
	{"length_penalty", `1`},
	{"use_beam_search", `false`},
	{"spaces_between_special_tokens", `true`},
	{"truncate_prompt_tokens", ``},
	{"return_token_ids", `false`},
	{"return_tokens_as_token_ids", `false`},
	{"logits_processors", `[]`},
	{"kv_transfer_params", ``},
}

// finish reads what both endpoints have in common.
func finish(o *object, c *Call) (*Call, error) {
	p := &c.Request.Params
	if s := o.str("model"); s != nil {
		c.Model = *s
	}
	o.sampling(p)
	o.limits(p, c.Echo && c.Endpoint == Completions)
	o.stops(p)
	if v := o.count("prompt_logprobs", 0, engine.MaxLogprobs); v != nil {
		p.PromptLogprobs, c.PromptLogprobs = v, true
	}
	o.answers(c)
	if v := o.integer("priority", math.MinInt32, math.MaxInt32); v != nil {
		c.Request.Priority = int(*v)
	}
	if s := o.str("cache_salt"); s != nil {
		if *s == "" {
			o.r.fail(CodeInvalidValue, "cache_salt", "'cache_salt' must not be empty")
		}
		c.Request.CacheSalt = *s
	}
	c.Stream = o.flag("stream")
	o.streamOptions(c)
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

func (o *object) streamOptions(c *Call) {
	raw, ok := o.take("stream_options")
	if !ok {
		return
	}
	opts := o.r.object("stream_options.", "stream_options.", raw)
	if opts == nil {
		o.r.failType("stream_options", "an object", raw)
		return
	}
	c.IncludeUsage = opts.flag("include_usage")
	c.ContinuousUsage = opts.flag("continuous_usage_stats") && c.IncludeUsage // as in vLLM
	opts.boolean("include_obfuscation")                                       // padding against eavesdroppers who measure lengths: there is none
	opts.done()
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

// prompts reads text, or token ids, or an array with several of either; nil when it is none of these.
func (o *object) prompts() []Prompt {
	const want = "a string, an array of token ids, or an array of several of these"
	raw, ok := o.take("prompt")
	if !ok {
		o.r.fail(CodeMissing, "prompt", "'prompt' is missing")
		return nil
	}
	if s, ok := stringOf(raw); ok {
		return []Prompt{{Text: &s}}
	}
	elems, ok := array(raw)
	switch {
	case !ok:
		o.r.failType("prompt", want, raw)
		return nil
	case len(elems) == 0:
		o.r.fail(CodeInvalidValue, "prompt", "'prompt' must not be an empty array")
		return nil
	case kindOf(elems[0]) == '0':
		return []Prompt{{TokenIDs: o.r.tokenIDs("prompt", elems)}}
	case len(elems) > maxPrompts:
		o.r.fail(CodeInvalidValue, "prompt", "'prompt' must have at most %d prompts, but has %d", maxPrompts, len(elems))
		return nil
	}
	prompts := make([]Prompt, len(elems))
	for i, e := range elems {
		param := fmt.Sprintf("prompt[%d]", i)
		if s, ok := stringOf(e); ok {
			prompts[i].Text = &s
			continue
		}
		ids, ok := array(e)
		switch {
		case !ok:
			o.r.failType(param, "a string or an array of token ids", e)
			return nil
		case len(ids) == 0:
			o.r.fail(CodeInvalidValue, param, "'%s' must not be an empty array", param)
			return nil
		}
		if prompts[i].TokenIDs = o.r.tokenIDs(param, ids); prompts[i].TokenIDs == nil {
			return nil
		}
	}
	return prompts
}

// tokenIDs reads ids; nil when one is none.
func (r *reader) tokenIDs(param string, elems []json.RawMessage) []int32 {
	ids := make([]int32, 0, len(elems))
	for i, e := range elems {
		v := r.integer(fmt.Sprintf("%s[%d]", param, i), e, 0, math.MaxInt32)
		if v == nil {
			return nil
		}
		ids = append(ids, int32(*v))
	}
	return ids
}
