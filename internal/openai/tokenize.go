package openai

import (
	"math"

	"github.com/pagelight/pagelight/engine"
)

// TokenizeCall is a body of /tokenize: either a prompt or a conversation.
type TokenizeCall struct {
	Model  string // as asked for; "" means the served one
	Prompt *string
	// AddSpecial says whether the tokens that the tokenizer's configuration puts around a text are wanted: for a prompt
	// unless told otherwise, never for a conversation.
	AddSpecial          bool
	Messages            []engine.Message
	AddGenerationPrompt *bool // default true
	Pieces              bool  // return_token_strs
	Ignored             []string
}

// TokenizeAnswer is the answer of /tokenize.
type TokenizeAnswer struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []int32  `json:"tokens"`
	Pieces      []string `json:"token_strs"` // as the vocabulary spells them; null unless asked for
}

// DetokenizeCall is a body of /detokenize.
type DetokenizeCall struct {
	Model   string
	Tokens  []int32
	Ignored []string
}

// DetokenizeAnswer is the answer of /detokenize.
type DetokenizeAnswer struct {
	Prompt string `json:"prompt"` // special tokens included
}

// ParseTokenize reads a body of /tokenize. The error is always a *StatusError with status 400.
func ParseTokenize(body []byte) (*TokenizeCall, error) {
	o, err := readBody(body)
	if err != nil {
		return nil, err
	}
	c := &TokenizeCall{Pieces: o.flag("return_token_strs")}
	if s := o.str("model"); s != nil {
		c.Model = *s
	}
	raw, isChat := o.fields["messages"]
	isChat = isChat && kindOf(raw) != 'n'
	c.Prompt = o.str("prompt")
	switch {
	case isChat && c.Prompt != nil:
		o.r.fail(CodeInvalidValue, "prompt", "either 'prompt' or 'messages' must be given, not both")
	case isChat:
		c.Messages = o.messages()
		c.AddGenerationPrompt = o.boolean("add_generation_prompt")
		o.refuse("add_special_tokens", "false") // the template writes them
		for _, f := range notInChat {
			o.refuse(f.name, f.neutral)
		}
	case c.Prompt == nil:
		o.r.fail(CodeMissing, "prompt", "'prompt' or 'messages' is missing")
	default:
		v := o.boolean("add_special_tokens")
		c.AddSpecial = v == nil || *v
	}
	o.done()
	if o.r.err != nil {
		return nil, o.r.err
	}
	c.Ignored = o.r.ignoredNames()
	return c, nil
}

// ParseDetokenize reads a body of /detokenize. The error is always a *StatusError with status 400.
func ParseDetokenize(body []byte) (*DetokenizeCall, error) {
	o, err := readBody(body)
	if err != nil {
		return nil, err
	}
	c := &DetokenizeCall{}
	if s := o.str("model"); s != nil {
		c.Model = *s
	}
	ids, there := o.ids("tokens", math.MaxInt)
	if !there {
		o.r.fail(CodeMissing, "tokens", "'tokens' is missing")
	}
	c.Tokens = ids
	o.done()
	if o.r.err != nil {
		return nil, o.r.err
	}
	c.Ignored = o.r.ignoredNames()
	return c, nil
}
