package chat

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
)

// The prompts are those that the ERNIE-Tiny model was evaluated with,
// rendered by transformers from the template of its tokenizer_config.json.
func TestErnieTemplateGivesGoldenPrompts(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/ernie.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Template string `json:"chat_template"`
		CLS      string `json:"cls_token"`
		SEP      string `json:"sep_token"`
		Cases    []struct {
			Messages []struct{ Role, Content string }
			Prompt   string
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	source, err := FindTemplate(raw, nil)
	if err != nil || source != file.Template {
		t.Fatalf("FindTemplate: %q, %v", source, err)
	}
	tmpl, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 20 {
		t.Fatalf("only %d cases", len(file.Cases))
	}
	yes, no := true, false
	for _, c := range file.Cases {
		var messages []Message
		for _, m := range c.Messages {
			messages = append(messages, Message{Role: m.Role, Content: m.Content})
		}
		special := map[string]string{"cls_token": file.CLS, "sep_token": file.SEP}
		for _, o := range []Options{{}, {AddGenerationPrompt: &yes}, {Special: special}} {
			got, err := tmpl.Render(t.Context(), messages, o)
			if err != nil || got != c.Prompt {
				t.Errorf("%v:\n got %q, %v\nwant %q", c.Messages, got, err, c.Prompt)
			}
		}
		got, err := tmpl.Render(t.Context(), messages, Options{AddGenerationPrompt: &no})
		if want := c.Prompt[:len(c.Prompt)-len("Assistant: ")]; err != nil || got != want {
			t.Errorf("without generation prompt:\n got %q, %v\nwant %q", got, err, want)
		}
	}
}

func TestFindTemplate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config, file string
		want         string
		err          error // nil with want "": any error
	}{
		{config: `{"chat_template": "a"}`, file: "b\n", want: "b\n"},
		{config: `{"chat_template": "a"}`, want: "a"},
		{config: `{"chat_template": "a"}`, file: "\n", want: "a"},
		{config: `{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}`, want: "d"},
		{config: `{"chat_template": [{"name": "tool_use", "template": "t"}]}`},
		{config: `{"chat_template": 5}`},
		{config: `{"chat_template"`},
		{config: `{"chat_template": null}`, err: ErrNoTemplate},
		{config: `{}`, err: ErrNoTemplate},
		{err: ErrNoTemplate},
	} {
		got, err := FindTemplate([]byte(c.config), []byte(c.file))
		switch {
		case got != c.want, c.want == "" && err == nil, c.want != "" && err != nil, c.err != nil && !errors.Is(err, c.err):
			t.Errorf("FindTemplate(%s, %q) = %q, %v", c.config, c.file, got, err)
		}
	}
}
