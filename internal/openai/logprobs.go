package openai

import (
	"strconv"
	"unicode/utf8"

	"github.com/pagelight/pagelight/engine"
)

// leastLogprob stands for everything below it, as in vLLM: JSON has no infinity.
const leastLogprob = -9999.0

func wireLogprob(v float64) float64 { return max(v, leastLogprob) }

// ChatLogprobs are the log-probabilities of a chat's tokens.
type ChatLogprobs struct {
	Content []ChatToken `json:"content"`
}

// ChatToken is one token of an answer.
type ChatToken struct {
	TopToken
	TopLogprobs []TopToken `json:"top_logprobs"` // the most probable first
}

// TopToken is a token that could have stood there.
type TopToken struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func topToken(t *engine.TokenLogprob) TopToken {
	b := make([]int, len(t.Bytes))
	for i, c := range t.Bytes {
		b[i] = int(c)
	}
	return TopToken{t.Text, wireLogprob(t.Logprob), b}
}

func chatLogprobs(tokens []engine.TokenLogprob) *ChatLogprobs {
	l := &ChatLogprobs{Content: make([]ChatToken, len(tokens))}
	for i := range tokens {
		c := &l.Content[i]
		c.TopToken, c.TopLogprobs = topToken(&tokens[i]), make([]TopToken, len(tokens[i].Top))
		for k := range tokens[i].Top {
			c.TopLogprobs[k] = topToken(&tokens[i].Top[k])
		}
	}
	return l
}

// TextLogprobs are the log-probabilities of a completion's tokens, in the older shape: four lists of equal length.
type TextLogprobs struct {
	TextOffset    []int      `json:"text_offset"`    // where the token begins in the text, in characters
	TokenLogprobs []*float64 `json:"token_logprobs"` // null for the first token of an echoed prompt
	Tokens        []string   `json:"tokens"`
	// TopLogprobs are the most probable tokens, and the token itself where it is not among them; null for the first token
	// of an echoed prompt.
	TopLogprobs []map[string]float64 `json:"top_logprobs"`
}

func textLogprobs(tokens []engine.TokenLogprob, at *offset) *TextLogprobs {
	n := len(tokens)
	l := &TextLogprobs{make([]int, n), make([]*float64, n), make([]string, n), make([]map[string]float64, n)}
	for i := range tokens {
		t := &tokens[i]
		l.TextOffset[i], l.Tokens[i] = at.chars, t.Text
		at.advance(t.Bytes)
		if t.Rank == 0 { // nothing comes before it
			continue
		}
		v := wireLogprob(t.Logprob)
		l.TokenLogprobs[i] = &v
		top := make(map[string]float64, len(t.Top)+1)
		for k := len(t.Top) - 1; k >= 0; k-- { // of tokens with the same text the most probable counts
			top[t.Top[k].Text] = wireLogprob(t.Top[k].Logprob)
		}
		if _, there := top[t.Text]; !there {
			top[t.Text] = v
		}
		l.TopLogprobs[i] = top
	}
	return l
}

// offset counts the characters of a text that comes in tokens, which may end within a character.
type offset struct {
	chars int
	rest  []byte // of a character that is not complete
}

func (o *offset) advance(token []byte) {
	b := append(o.rest, token...)
	for len(b) > 0 && utf8.FullRune(b) {
		_, n := utf8.DecodeRune(b)
		b = b[n:]
		o.chars++
	}
	o.rest = append([]byte(nil), b...)
}

// PromptLogprobs are the tokens that could have stood at one place of a prompt, by their ids: the prompt's own and the most
// probable ones. The first place has none, which is null.
type PromptLogprobs map[string]PromptLogprob

// PromptLogprob is one of them.
type PromptLogprob struct {
	Logprob float64 `json:"logprob"`
	Rank    int     `json:"rank"` // 1 for the most probable
	Token   string  `json:"decoded_token"`
}

func promptLogprobs(tokens []engine.TokenLogprob) []PromptLogprobs {
	list := make([]PromptLogprobs, len(tokens))
	for i := range tokens {
		t := &tokens[i]
		if t.Rank == 0 {
			continue
		}
		list[i] = make(PromptLogprobs, len(t.Top)+1)
		add := func(t *engine.TokenLogprob) {
			list[i][strconv.Itoa(int(t.ID))] = PromptLogprob{wireLogprob(t.Logprob), t.Rank, t.Text}
		}
		for k := range t.Top {
			add(&t.Top[k])
		}
		add(t)
	}
	return list
}
