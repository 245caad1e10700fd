package openai

import (
	"errors"
	"reflect"
	"testing"

	"github.com/pagelight/pagelight/engine"
)

func TestParseTokenize(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]TokenizeCall{
		`{"prompt":""}`: {Prompt: ptr(""), AddSpecial: true, Ignored: []string{}},
		`{"prompt":"a","model":"m","add_special_tokens":false,"return_token_strs":true,"messages":null,"x":1}`: {
			Model: "m", Prompt: ptr("a"), Pieces: true, Ignored: []string{"x"},
		},
		`{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false,"add_special_tokens":false,"prompt":null}`: {
			Messages: []engine.Message{{Role: "user", Content: "a"}}, AddGenerationPrompt: ptr(false), Ignored: []string{},
		},
	} {
		if got, err := ParseTokenize([]byte(body)); err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, %v", body, got, err)
		}
	}
	if got, err := ParseDetokenize([]byte(`{"tokens":[0,5],"model":"m","x":1}`)); err != nil || !reflect.DeepEqual(*got, DetokenizeCall{"m", []int32{0, 5}, []string{"x"}}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := ParseDetokenize([]byte(`{"tokens":[]}`)); err != nil || len(got.Tokens) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	refused := func(body, code, param string, err error) {
		var e *StatusError
		if !errors.As(err, &e) || e.Status != 400 || *e.Detail.Code != code || e.Detail.Param == nil || *e.Detail.Param != param {
			t.Errorf("%s: got %v", body, err)
		}
	}
	for _, c := range [][3]string{
		{`{}`, CodeMissing, "prompt"},
		{`{"prompt":5}`, CodeInvalidType, "prompt"},
		{`{"prompt":"a","messages":[{"role":"user","content":"a"}]}`, CodeInvalidValue, "prompt"},
		{`{"messages":[]}`, CodeInvalidValue, "messages"},
		{`{"messages":[{"role":"user","content":"a"}],"tools":[{}]}`, CodeUnsupported, "tools"},
		{`{"messages":[{"role":"user","content":"a"}],"add_special_tokens":true}`, CodeUnsupported, "add_special_tokens"},
		{`{"prompt":"a","return_token_strs":1}`, CodeInvalidType, "return_token_strs"},
	} {
		_, err := ParseTokenize([]byte(c[0]))
		refused(c[0], c[1], c[2], err)
	}
	for _, c := range [][3]string{
		{`{}`, CodeMissing, "tokens"},
		{`{"tokens":"a"}`, CodeInvalidType, "tokens"},
		{`{"tokens":[-1]}`, CodeInvalidValue, "tokens[0]"},
		{`{"tokens":[1.5]}`, CodeInvalidType, "tokens[0]"},
	} {
		_, err := ParseDetokenize([]byte(c[0]))
		refused(c[0], c[1], c[2], err)
	}
}
