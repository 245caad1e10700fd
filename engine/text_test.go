package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/tokenizer"
	"github.com/pagelight/pagelight/internal/weights"
)

// textSource is a model of files only.
type textSource struct {
	fakeSource
	files map[string]string
}

func (s textSource) Config() *weights.Config {
	return &weights.Config{VocabSize: 300, SyntheticTokenizer: true}
}

func (s textSource) File(_ context.Context, name string) ([]byte, error) {
	if text, ok := s.files[name]; ok {
		return []byte(text), nil
	}
	return nil, nil
}

// TestTemplateFaults tells a template that refuses a conversation, which is the request's fault, from one that is broken,
// which is the model's.
func TestTemplateFaults(t *testing.T) {
	t.Parallel()
	const jinja, config = "chat_template.jinja", "tokenizer_config.json"
	hi := []Message{{"user", "hi"}}
	for name, c := range map[string]struct {
		file, source string
		messages     []Message
		says         string // "" for none
		param        bool
	}{
		"good":            {jinja, "{{ messages[0].content }}", hi, "", false},
		"refuses":         {jinja, "{{ raise_exception('no system please') }}", hi, "refuses them: no system please", true},
		"loops":           {jinja, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", hi, "limit exceeded", false},
		"explodes":        {jinja, "{{ 'a' * 1000000000 }}", hi, "limit exceeded", false},
		"syntax":          {jinja, "{% if %}", hi, "line 1", false},
		"in the config":   {config, `{"chat_template":"{{ 'a' * 1000000000 }}"}`, hi, "limit exceeded", false},
		"config's syntax": {config, `{"chat_template":"{% if %}"}`, hi, "line 1", false},
		"long talk":       {jinja, "x", []Message{{"user", strings.Repeat("a", maxChatBytes)}, {"user", "b"}}, "more than 1048576 bytes", true},
		"not UTF-8":       {jinja, "x", []Message{{"user", "\xff"}}, "message 0 is not valid UTF-8", true},
		"nothing":         {jinja, "x", []Message{}, "must not be empty", true},
	} {
		text, err := OpenText(t.Context(), textSource{files: map[string]string{c.file: c.source}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = text.RenderChat(t.Context(), c.messages, nil)
		var param *ParamError
		var template *TemplateError
		switch {
		case c.says == "":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		case c.param != errors.As(err, &param) || c.param == errors.As(err, &template):
			t.Errorf("%s: %T", name, err)
		case template != nil && template.File != c.file:
			t.Errorf("%s: the error names %s", name, template.File)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text, err := OpenText(t.Context(), textSource{files: map[string]string{jinja: "{% for a in range(99999) %}{% endfor %}"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := text.RenderChat(ctx, hi, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestDetokenizeRefusesUnknownIDs(t *testing.T) {
	t.Parallel()
	text := &Text{tok: tokenizer.NewSynthetic(300)}
	for _, id := range []int32{-1, 300} {
		var p *ParamError
		if _, err := text.Detokenize([]int32{5, id}, false); !errors.As(err, &p) || !strings.Contains(err.Error(), "position 1") {
			t.Errorf("id %d: %v", id, err)
		}
	}
	if s, err := text.Detokenize([]int32{5}, false); err != nil || s != " 5" {
		t.Errorf("%q, %v", s, err)
	}
}

func TestMemoryErrorIsReadable(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]MemoryError{
		"not enough memory for the weights: needs 13334528 bytes (12.72 MiB), 1024 (1 KiB) are available": {What: "weights", Need: 13334528, Have: 1024},
		"not enough memory for the KV cache: needs 3221225472 bytes (3 GiB)":                              {What: "KV cache", Need: 3 << 30},
		"not enough memory for the KV cache: needs 9 bytes, 5 are available":                              {What: "KV cache", Need: 9, Have: 5},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
