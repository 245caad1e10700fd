package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/engine"
)

// TestTokensBeyondTheVocabulary: what a tokenizer has and the model does not is refused, whichever way it comes, since a device
// would read another token's row in its place.
func TestTokensBeyondTheVocabulary(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../internal/model/testdata/llama")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"tokenizer.json": `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 700}, "merges": ["a b"]},
			"added_tokens": [{"id": 9999, "content": "<x>", "special": true}],
			"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "decoder": {"type": "ByteLevel"}}`,
		"tokenizer_config.json": `{"chat_template": "{{ messages[0].content }}"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eng := open(t, "cpu", Options{Model: dir, Engine: engine.Config{MaxModelLen: 64}})
	text := func(s string) engine.Request { return engine.Request{Prompt: &s} }
	chat := func(s string) engine.Request {
		return engine.Request{Messages: []engine.Message{{Role: "user", Content: s}}}
	}
	for _, c := range []struct {
		req  engine.Request
		says string
	}{
		{text("ab"), "token id 700 at position 0 is not in the vocabulary of 512"},
		{text("b<x>"), "token id 9999 at position 1"},
		{chat("ab"), "token id 700"},
		{chat("<x>"), "token id 9999"},
		{engine.Request{TokenIDs: []int32{1, 512}}, "token id 512 at position 1"},
		{engine.Request{TokenIDs: []int32{-1}}, "token id -1"},
		{text("ba"), ""},
	} {
		c.req.Params = engine.Params{MaxTokens: 1, Temperature: zero()}
		var err error
		for _, e := range eng.Generate(t.Context(), c.req) {
			err = errors.Join(err, e)
		}
		if c.says == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var param *engine.ParamError
		if !errors.As(err, &param) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want an error of the request that says %q", err, c.says)
		}
	}
}
