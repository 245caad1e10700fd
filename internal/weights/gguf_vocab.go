package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Types of tokens in tokenizer.ggml.token_type, which are those of SentencePiece; ggufControl is another.
const (
	ggufNormal      = 1
	ggufUnknown     = 2
	ggufUserDefined = 4
	ggufUnused      = 5
	ggufByte        = 6
)

// ggufVocab is what the metadata say about the tokenizer.
type ggufVocab struct {
	kv     metadata
	tokens []string
	types  []int32        // [tokens]
	ids    map[string]int // the inverse of tokens
}

// ggufVocabulary gives the tokenizer's files that stand for a vocabulary: tokenizer.model for one of SentencePiece,
// tokenizer.json for one of byte-level BPE, and tokenizer_config.json with the special tokens and the chat template. It gives
// none for a file without a vocabulary.
//
// Source: llama.cpp (src/llama-vocab.cpp, gguf-py/gguf/constants.py), v0.4.0.
func ggufVocabulary(kv metadata) (map[string][]byte, error) {
	model, err := kv.text("tokenizer.ggml.model", "")
	if err != nil {
		return nil, err
	}
	switch model {
	case "", "none", "no_vocab":
		return nil, nil
	case "llama", "gpt2":
	default:
		return nil, fmt.Errorf("tokenizer.ggml.model is %q; only llama (SentencePiece) and gpt2 (byte-level BPE) are supported", model)
	}
	v, err := newGGUFVocab(kv)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	var config ggufTokenizerConfig
	if model == "llama" {
		files["tokenizer.model"], err = v.sentencePiece(&config)
	} else {
		files["tokenizer.json"], err = v.byteLevel(&config)
	}
	if err != nil {
		return nil, err
	}
	if err := v.special(&config); err != nil {
		return nil, err
	}
	files["tokenizer_config.json"], err = json.Marshal(config)
	return files, err
}

func newGGUFVocab(kv metadata) (*ggufVocab, error) {
	v := &ggufVocab{kv: kv}
	var err error
	if v.tokens, err = kv.texts("tokenizer.ggml.tokens"); err != nil {
		return nil, err
	}
	if v.types, err = kv.integers("tokenizer.ggml.token_type"); err != nil {
		return nil, err
	}
	switch n := len(v.tokens); {
	case n == 0:
		return nil, errors.New("tokenizer.ggml.tokens is missing")
	case v.types == nil:
		v.types = make([]int32, n)
	case len(v.types) < n:
		return nil, fmt.Errorf("tokenizer.ggml.token_type has %d elements for %d tokens", len(v.types), n)
	}
	// Rows of the matrix that pad it to a round size: no tokens, and never to be sampled.
	for n := len(v.tokens); n > 0 && v.types[n-1] == ggufUnused; n-- {
		v.tokens = v.tokens[:n-1]
	}
	v.types = append([]int32(nil), v.types[:len(v.tokens)]...)
	v.ids = make(map[string]int, len(v.tokens))
	for id, text := range v.tokens {
		if text == "" {
			text = v.placeholder(id)
		}
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("tokenizer.ggml.tokens: token %d is not valid UTF-8", id)
		}
		if other, ok := v.ids[text]; ok {
			return nil, fmt.Errorf("tokenizer.ggml.tokens: %.40q is token %d and token %d", text, other, id)
		}
		v.ids[text] = id
		if v.types[id] < ggufNormal || v.types[id] > ggufByte {
			v.types[id] = ggufNormal
		}
	}
	return v, nil
}

// placeholder makes a name for a token without one, which is then of no use: llama.cpp does the same.
func (v *ggufVocab) placeholder(id int) string {
	if &v.tokens[0] == &v.kv["tokenizer.ggml.tokens"].texts[0] {
		v.tokens = append([]string(nil), v.tokens...) // the metadata are not ours to write
	}
	v.tokens[id] = "[EMPTY_" + strconv.Itoa(id) + "]"
	v.types[id] = ggufUnused
	return v.tokens[id]
}

// token gives the text of the token that tokenizer.ggml.NAME_token_id names; "" when it names none.
func (v *ggufVocab) token(name string, absent int64) (string, error) {
	id, err := v.kv.integer("tokenizer.ggml."+name+"_token_id", absent)
	if err != nil || id < 0 || id >= int64(len(v.tokens)) {
		return "", err // converters write -1 or 2^32-1 for none
	}
	return v.tokens[id], nil
}

// ggufTokenizerConfig is the tokenizer_config.json of a vocabulary.
type ggufTokenizerConfig struct {
	Class       string   `json:"tokenizer_class"`
	AddBOS      bool     `json:"add_bos_token"`
	AddEOS      bool     `json:"add_eos_token"`
	PrefixSpace bool     `json:"add_prefix_space"`
	BOS         string   `json:"bos_token,omitempty"`
	EOS         string   `json:"eos_token,omitempty"`
	UNK         string   `json:"unk_token,omitempty"`
	PAD         string   `json:"pad_token,omitempty"`
	CLS         string   `json:"cls_token,omitempty"`
	SEP         string   `json:"sep_token,omitempty"`
	MASK        string   `json:"mask_token,omitempty"`
	Additional  []string `json:"additional_special_tokens,omitempty"`
	Template    string   `json:"chat_template,omitempty"`
}

// special fills in the tokens with a meaning, and the chat template. AddBOS holds what applies when the file does not say.
func (v *ggufVocab) special(c *ggufTokenizerConfig) error {
	none := int64(-1)
	bos, eos, unk := none, none, none
	if c.Class == llamaTokenizer {
		bos, eos, unk = 1, 2, 0
	}
	for _, t := range []struct {
		name   string
		absent int64
		to     *string
	}{
		{"bos", bos, &c.BOS},
		{"eos", eos, &c.EOS},
		{"unknown", unk, &c.UNK},
		{"padding", none, &c.PAD},
		{"cls", none, &c.CLS},
		{"seperator", none, &c.SEP}, //nolint:misspell // the key is spelled that way
		{"mask", none, &c.MASK},
	} {
		var err error
		if *t.to, err = v.token(t.name, t.absent); err != nil {
			return err
		}
	}
	for _, name := range []string{"eot", "eom"} {
		text, err := v.token(name, none)
		if err != nil {
			return err
		}
		if text != "" {
			c.Additional = append(c.Additional, text)
		}
	}
	var err error
	if c.AddBOS, err = v.kv.flag("tokenizer.ggml.add_bos_token", c.AddBOS); err != nil {
		return err
	}
	if c.AddEOS, err = v.kv.flag("tokenizer.ggml.add_eos_token", false); err != nil {
		return err
	}
	if c.Template, err = v.kv.text("tokenizer.chat_template", ""); err != nil {
		return err
	}
	if !utf8.ValidString(c.Template) {
		return errors.New("tokenizer.chat_template is not valid UTF-8")
	}
	return nil
}
