// Package chat turns a conversation into the text that a model was trained
// on, with the chat template that comes with the model.
//
// It owns where a template is found and what variables it gets; the language
// is internal/chat/jinja. It must not know of token ids, requests or devices.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pagelight/pagelight/internal/chat/jinja"
)

// RaisedError is the error of a template that refuses a conversation through
// raise_exception ("Conversation roles must alternate"): the request is at
// fault, not the template.
type RaisedError = jinja.RaisedError

// LimitError is the error of a template, or of a conversation, that would
// exceed a limit.
type LimitError = jinja.LimitError

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", "tool"
	Content string
	// Extra holds further members of the message, such as "tool_calls" or
	// "reasoning_content"; the order of members inside a json.RawMessage is
	// kept. An entry "content" takes the place of Content (null, or a list
	// of parts).
	Extra map[string]any
}

// Options are the other variables of a template.
type Options struct {
	// AddGenerationPrompt asks for the beginning of the assistant's turn at
	// the end. nil leaves the variable undefined, which templates treat
	// differently: ERNIE 4.5's as true, most as false.
	AddGenerationPrompt *bool
	// Special are the special tokens by name ("bos_token"), as variables.
	Special map[string]string
	// Kwargs are further variables ("tools", "enable_thinking"); they win
	// over Special. See jinja.Object and json.RawMessage for data whose
	// order matters, such as tools.
	Kwargs map[string]any
	// Now is the time that strftime_now tells; zero is the present.
	Now time.Time
}

// Template is a parsed chat template. It never changes, so any number of
// goroutines may render it.
type Template struct{ t *jinja.Template }

// Parse reads the source of a chat template. The error names the line.
func Parse(source string) (*Template, error) {
	t, err := jinja.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Template{t}, nil
}

// Render renders a conversation as apply_chat_template of transformers does.
// It takes bounded time and memory whatever the template: see
// jinja.DefaultLimits. The error wraps a *RaisedError if the template refuses
// the conversation, a *LimitError, ctx's error, or says what failed.
func (t *Template) Render(ctx context.Context, messages []Message, o Options) (string, error) {
	turns := make([]jinja.Object, len(messages))
	for i, m := range messages {
		turns[i] = m.object()
	}
	// transformers always passes these two, as None when they are not used.
	vars := map[string]any{"tools": nil, "documents": nil}
	for name, token := range o.Special {
		vars[name] = token
	}
	maps.Copy(vars, o.Kwargs)
	vars["messages"] = turns
	if o.AddGenerationPrompt != nil {
		vars["add_generation_prompt"] = *o.AddGenerationPrompt
	}
	list := make([]jinja.Var, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		list = append(list, jinja.Var{Name: name, Value: vars[name]})
	}
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	text, err := t.t.Render(ctx, list, now, jinja.DefaultLimits)
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return text, nil
}

// object returns the message as the mapping that templates read: role,
// content, then the rest by name.
func (m Message) object() jinja.Object {
	o := jinja.Object{{Key: "role", Value: m.Role}}
	if _, ok := m.Extra["content"]; !ok {
		o = append(o, jinja.Pair{Key: "content", Value: m.Content})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Extra)) {
		if name != "role" {
			o = append(o, jinja.Pair{Key: name, Value: m.Extra[name]})
		}
	}
	return o
}

// ErrNoTemplate is the error for a model that comes without a chat template.
var ErrNoTemplate = errors.New("the model has no chat template (neither chat_template.jinja nor chat_template in tokenizer_config.json)")

// FindTemplate returns the source of a model's chat template: the file
// chat_template.jinja if there is one, else chat_template of
// tokenizer_config.json, which is a string or a list of {name, template} of
// which "default" counts. Either argument may be nil. The error is
// ErrNoTemplate if there is none.
func FindTemplate(tokenizerConfigJSON, jinjaFile []byte) (string, error) {
	if len(strings.TrimSpace(string(jinjaFile))) > 0 {
		return string(jinjaFile), nil
	}
	if len(tokenizerConfigJSON) == 0 {
		return "", ErrNoTemplate
	}
	var config struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(tokenizerConfigJSON, &config); err != nil {
		return "", fmt.Errorf("tokenizer_config.json: %w", err)
	}
	if len(config.ChatTemplate) == 0 || string(config.ChatTemplate) == "null" {
		return "", ErrNoTemplate
	}
	var source string
	if json.Unmarshal(config.ChatTemplate, &source) == nil {
		return source, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(config.ChatTemplate, &list); err != nil {
		return "", errors.New("tokenizer_config.json: chat_template is neither a string nor a list of {name, template}")
	}
	names := make([]string, len(list))
	for i, t := range list {
		if t.Name == "default" {
			return t.Template, nil
		}
		names[i] = t.Name
	}
	return "", fmt.Errorf("tokenizer_config.json: chat_template has no entry \"default\" (it has %q)", names)
}
