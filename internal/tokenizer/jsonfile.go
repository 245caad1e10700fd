package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxJSONBytes bounds the tokenizer.json that is read: the largest in public
// use has about 35 MB.
const maxJSONBytes = 64 << 20

// jsonFile is a tokenizer.json, with the parts that have types of their own
// left for later.
type jsonFile struct {
	AddedTokens []struct {
		ID         int32  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         struct {
		Type         string          `json:"type"`
		Dropout      *float64        `json:"dropout"`
		Unk          *string         `json:"unk_token"`
		Prefix       string          `json:"continuing_subword_prefix"`
		Suffix       string          `json:"end_of_word_suffix"`
		FuseUnk      bool            `json:"fuse_unk"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Vocab        json.RawMessage `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
	} `json:"model"`
}

// parseJSONFile reads a tokenizer.json and refuses models that are not BPE.
func parseJSONFile(data []byte) (*jsonFile, error) {
	if len(data) > maxJSONBytes {
		return nil, fmt.Errorf("file has %d bytes, more than the limit of %d", len(data), maxJSONBytes)
	}
	if len(data) == 0 {
		return nil, errors.New("file is empty")
	}
	var f jsonFile
	var typ *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &f); errors.As(err, &typ) {
		return nil, fmt.Errorf("%s is of JSON type %s, which does not fit there", cmp.Or(typ.Field, "the file"), typ.Value)
	} else if err != nil {
		return nil, fmt.Errorf("broken JSON: %w", err)
	}
	m := &f.Model
	switch {
	case m.Type != "BPE" && (m.Type != "" || m.Merges == nil):
		return nil, fmt.Errorf("model is of type %q; only BPE is supported", m.Type)
	case m.Prefix != "":
		return nil, errors.New("model: continuing_subword_prefix is not supported")
	case m.Suffix != "":
		return nil, errors.New("model: end_of_word_suffix is not supported")
	case m.Dropout != nil && *m.Dropout > 0:
		return nil, errors.New("model: dropout is not supported, for it makes ids random")
	}
	return &f, nil
}

// tokens returns the tokens of the vocabulary by id, "" for ids that do not
// exist.
func (f *jsonFile) tokens() ([]string, error) {
	count := 0
	if err := eachMember(f.Model.Vocab, func(_, _ []byte) error { count++; return nil }); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	// Holes cost memory, and a file of a few bytes must not ask for much.
	limit := min(count+maxAddedGap, maxVocabulary)
	out := make([]string, 0, count)
	err := eachMember(f.Model.Vocab, func(key, value []byte) error {
		id, err := strconv.Atoi(string(value))
		if err != nil || id < 0 || id >= limit {
			return fmt.Errorf("the id %s of %q is not in 0 to %d, with %d tokens", clip(value), clip(key), limit-1, count)
		}
		for len(out) <= id {
			out = append(out, "")
		}
		if out[id] != "" {
			return fmt.Errorf("id %d is both %q and %q", id, clip([]byte(out[id])), clip(key))
		}
		out[id] = string(key)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	return out, nil
}

// countMerges is the length of the list of merges.
func (f *jsonFile) countMerges() (n int, err error) {
	err = eachElement(f.Model.Merges, func([]byte) error { n++; return nil })
	if err == nil && n > maxMerges {
		err = fmt.Errorf("%d merges, more than the limit of %d", n, maxMerges)
	}
	return n, err
}

// merges visits the pairs of the list of merges, which are strings "a b" or
// pairs ["a", "b"].
func (f *jsonFile) merges(visit func(left, right []byte) error) error {
	n := 0
	return eachElement(f.Model.Merges, func(value []byte) error {
		defer func() { n++ }()
		if value[0] == '"' {
			text, err := unquote(value)
			if err != nil {
				return err
			}
			left, right, ok := bytes.Cut(text, []byte(" "))
			if !ok || len(left) == 0 || len(right) == 0 || bytes.IndexByte(right, ' ') >= 0 {
				return fmt.Errorf("merge %d: %q is no pair", n, clip(text))
			}
			return visit(left, right)
		}
		var pair [2][]byte
		i := 0
		err := eachElement(value, func(item []byte) (err error) {
			if i >= len(pair) || item[0] != '"' {
				return fmt.Errorf("merge %d is no pair of strings", n)
			}
			pair[i], err = unquote(item)
			i++
			return err
		})
		if err == nil && (i != len(pair) || len(pair[0]) == 0 || len(pair[1]) == 0) {
			err = fmt.Errorf("merge %d is no pair of strings", n)
		}
		if err != nil {
			return err
		}
		return visit(pair[0], pair[1])
	})
}

// A vocabulary has some 150,000 members and as many merges. encoding/json
// would make a map and a string of each; these walk over text that it has
// already found to be valid JSON.

// eachMember visits the members of a JSON object.
func eachMember(raw []byte, visit func(key, value []byte) error) error {
	return eachItem(raw, '{', func(item []byte) ([]byte, error) {
		end := stringEnd(item)
		key, err := unquote(item[:end])
		if err != nil {
			return nil, err
		}
		item = bytes.TrimLeft(item[end:], " \t\r\n")
		item = bytes.TrimLeft(item[1:], " \t\r\n") // past the colon
		end = valueEnd(item)
		return item[end:], visit(key, item[:end])
	})
}

// eachElement visits the elements of a JSON array.
func eachElement(raw []byte, visit func(value []byte) error) error {
	return eachItem(raw, '[', func(item []byte) ([]byte, error) {
		end := valueEnd(item)
		return item[end:], visit(item[:end])
	})
}

// eachItem walks over what stands between the brackets; item reads one and
// returns the rest.
func eachItem(raw []byte, open byte, item func([]byte) ([]byte, error)) error {
	if len(raw) == 0 || raw[0] != open {
		if open == '{' {
			return errors.New("is no object")
		}
		return errors.New("is no array")
	}
	raw = raw[1:]
	for {
		raw = bytes.TrimLeft(raw, " \t\r\n,")
		if raw[0] == open+2 { // the closing bracket, of both kinds
			return nil
		}
		var err error
		if raw, err = item(raw); err != nil {
			return err
		}
	}
}

// valueEnd is the length of the JSON value that raw starts with.
func valueEnd(raw []byte) int {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i += stringEnd(raw[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}

// stringEnd is the length of the JSON string that raw starts with.
func stringEnd(raw []byte) int {
	for i := 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// unquote returns the text of a JSON string. It may alias it.
func unquote(quoted []byte) ([]byte, error) {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var s string
		err := json.Unmarshal(quoted, &s)
		return []byte(s), err
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%q is not valid UTF-8", clip(text))
	}
	return text, nil
}

// affixes reads which tokens the post_processor puts before and after a
// text.
func (f *jsonFile) affixes() (before, after []int32, err error) {
	items, err := flatten(f.PostProcessor, "processors")
	if err != nil {
		return nil, nil, fmt.Errorf("post_processor: %w", err)
	}
	for _, item := range items {
		switch item.kind {
		case "ByteLevel": // offsets only
		case "TemplateProcessing":
			if before, after, err = templateAffixes(item.raw); err != nil {
				return nil, nil, fmt.Errorf("post_processor (TemplateProcessing): %w", err)
			}
		default:
			return nil, nil, fmt.Errorf("post_processor: the type %s is not supported; ByteLevel, TemplateProcessing and Sequence are", item.kind)
		}
	}
	return before, after, nil
}

func templateAffixes(raw []byte) (before, after []int32, err error) {
	var template struct {
		Single []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			}
			Sequence *struct {
				ID string `json:"id"`
			}
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &template); err != nil {
		return nil, nil, err
	}
	texts := 0
	for _, part := range template.Single {
		switch {
		case part.Sequence != nil:
			texts++
		case part.SpecialToken == nil:
			return nil, nil, errors.New("a part of single is neither a Sequence nor a SpecialToken")
		default:
			token, ok := template.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("%q is not in special_tokens", part.SpecialToken.ID)
			}
			if texts == 0 {
				before = append(before, token.IDs...)
			} else {
				after = append(after, token.IDs...)
			}
		}
	}
	if texts != 1 {
		return nil, nil, fmt.Errorf("single has the text %d times, want once", texts)
	}
	return before, after, nil
}
