package openai

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// TestRanges has the first value beyond each end of every range, and the ends themselves.
func TestRanges(t *testing.T) {
	t.Parallel()
	list := func(elem string, n int) string { return "[" + strings.Repeat(elem+",", n-1) + elem + "]" }
	biases := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%d":0`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	for _, c := range []struct {
		field   string
		in, out []string
		param   string // "" for the field itself
	}{
		{"temperature", []string{"0", "2", "100"}, []string{"-0.01", "1e999"}, ""},
		{"top_p", []string{"1e-9", "1"}, []string{"0", "1.01"}, ""},
		{"min_p", []string{"0", "1"}, []string{"-0.01", "1.01"}, ""},
		{"top_k", []string{"-1", "0", "2147483647"}, []string{"-2", "2147483648"}, ""},
		{"seed", []string{"-9223372036854775808", "9223372036854775807"}, []string{"-9223372036854775809", "9223372036854775808"}, ""},
		{"presence_penalty", []string{"-2", "2"}, []string{"-2.01", "2.01"}, ""},
		{"frequency_penalty", []string{"-2", "2"}, []string{"-2.01", "2.01"}, ""},
		{"repetition_penalty", []string{"0.01", "3"}, []string{"0", "-1", "1e999"}, ""},
		{"logit_bias", []string{`{"5":-1e9}`, `{"2147483647":100}`, biases(1024)}, []string{
			`{"5":1e999}`, `{"-1":0}`, `{"2147483648":0}`, `{"x":0}`, `{"01":0}`, `{"":0}`, biases(1025),
		}, ""},
		{"allowed_token_ids", []string{"[0,2147483647]"}, []string{"[]"}, ""},
		{"allowed_token_ids", nil, []string{"[-1]", "[2147483648]"}, "allowed_token_ids[0]"},
		{"bad_words", []string{`["a"]`, list(`"a"`, 1024)}, []string{list(`"a"`, 1025)}, ""},
		{"bad_words", nil, []string{`[""]`}, "bad_words[0]"},
		{"stop", []string{`"a"`, list(`"a"`, 16)}, []string{`""`, list(`"a"`, 17)}, ""},
		{"stop_token_ids", []string{"[0]", list("1", 1024)}, []string{list("1", 1025)}, ""},
		{"stop_token_ids", nil, []string{"[-1]"}, "stop_token_ids[0]"},
		{"max_tokens", []string{"1", "2147483647"}, []string{"0", "2147483648"}, ""},
		{"max_completion_tokens", []string{"1"}, []string{"0"}, ""},
		{"min_tokens", []string{"0", "2147483647"}, []string{"-1", "2147483648"}, ""},
		{"n", []string{"1", "128"}, []string{"0", "129"}, ""},
		{"prompt_logprobs", []string{"0", "20"}, []string{"-1", "21"}, ""},
		{"logprobs\":true,\"top_logprobs", []string{"0", "20"}, []string{"-1", "21"}, "top_logprobs"},
		{"priority", []string{"-2147483648", "2147483647"}, []string{"-2147483649", "2147483648"}, ""},
		{"cache_salt", []string{`"a"`}, []string{`""`}, ""},
	} {
		parse := func(value string) error {
			_, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],"` + c.field + `":` + value + `}`))
			return err
		}
		for _, v := range c.in {
			if err := parse(v); err != nil {
				t.Errorf("%s %.40s: %v", c.field, v, err)
			}
		}
		want := c.param
		if want == "" {
			want = c.field
		}
		for _, v := range c.out {
			var e *StatusError
			if err := parse(v); !errors.As(err, &e) || e.Status != 400 || *e.Detail.Code != CodeInvalidValue || *e.Detail.Param != want {
				t.Errorf("%s %.40s: got %v", c.field, v, err)
			}
		}
		for _, v := range []string{`{"a":[]}`, `[[]]`, `"x"`, `true`, `1.5`} {
			var e *StatusError
			if err := parse(v); err != nil && (!errors.As(err, &e) || e.Status != 400 || e.Detail.Param == nil || !strings.HasPrefix(*e.Detail.Param, strings.TrimSuffix(want, "[0]"))) {
				t.Errorf("%s %s: got %v", c.field, v, err)
			}
		}
	}
}

func TestBiasesAreCutAsInVLLM(t *testing.T) {
	t.Parallel()
	c, err := ParseChat([]byte(`{"messages":[{"role":"user","content":"x"}],"logit_bias":{"1":-100.5,"2":1e30,"3":100,"4":-0.5}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Request.Params.LogitBias, (map[int32]float64{1: -100, 2: 100, 3: 100, 4: -0.5}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
