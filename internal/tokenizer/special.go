package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// SpecialTokens are the texts of a tokenizer's special tokens; one that is
// not set is empty.
type SpecialTokens struct {
	BOS, EOS, CLS, SEP, PAD, UNK, MASK string
	// Others holds further entries of tokenizer_config.json whose name ends
	// in _token, by that name.
	Others map[string]string
	// Additional are the texts of additional_special_tokens (and of
	// extra_special_tokens when it is a list).
	Additional []string
}

// field returns where the token of this name is kept, nil for Others.
func (s *SpecialTokens) field(name string) *string {
	switch name {
	case "bos_token":
		return &s.BOS
	case "eos_token":
		return &s.EOS
	case "cls_token":
		return &s.CLS
	case "sep_token":
		return &s.SEP
	case "pad_token":
		return &s.PAD
	case "unk_token":
		return &s.UNK
	case "mask_token":
		return &s.MASK
	}
	return nil
}

var specialNames = []string{"bos_token", "eos_token", "cls_token", "sep_token", "pad_token", "unk_token", "mask_token"}

// Special returns the tokens that are set, by the names that chat templates
// use: bos_token, eos_token, cls_token, sep_token, pad_token, unk_token,
// mask_token and those of Others.
func (s SpecialTokens) Special() map[string]string {
	m := map[string]string{}
	maps.Copy(m, s.Others)
	for _, name := range specialNames {
		if v := *s.field(name); v != "" {
			m[name] = v
		}
	}
	return m
}

// ParseSpecialTokens reads the special tokens of tokenizer_config.json and,
// for those it does not name, of special_tokens_map.json. Either may be nil.
// A token is a string or an object with the member "content".
func ParseSpecialTokens(config, specialMap []byte) (SpecialTokens, error) {
	s := SpecialTokens{Others: map[string]string{}}
	for _, file := range []struct {
		name string
		data []byte
	}{{"special_tokens_map.json", specialMap}, {"tokenizer_config.json", config}} {
		if len(file.data) == 0 {
			continue
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(file.data, &members); err != nil {
			return s, fmt.Errorf("%s: %w", file.name, err)
		}
		for name, raw := range members {
			if name == "additional_special_tokens" || name == "extra_special_tokens" {
				list, err := parseTokenList(raw)
				if err != nil {
					return s, fmt.Errorf("%s: %s: %w", file.name, name, err)
				}
				s.Additional = append(s.Additional, list...)
				continue
			}
			if !strings.HasSuffix(name, "_token") {
				continue
			}
			text, ok := parseTokenText(raw)
			switch at := s.field(name); {
			case at != nil && !ok && string(raw) != "null":
				return s, fmt.Errorf("%s: %s is neither a string nor an object with a content", file.name, name)
			case !ok: // null, or an option such as add_bos_token
			case at != nil:
				*at = text
			default:
				s.Others[name] = text
			}
		}
	}
	return s, nil
}

func parseTokenText(raw json.RawMessage) (string, bool) {
	var text string
	if string(raw) != "null" && json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	var object struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(raw, &object) != nil || object.Content == nil {
		return "", false
	}
	return *object.Content, true
}

func parseTokenList(raw json.RawMessage) ([]string, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) == nil {
		// The newer form of extra_special_tokens: {"name": token}.
		var list []string
		for _, item := range object {
			if text, ok := parseTokenText(item); ok {
				list = append(list, text)
			}
		}
		return list, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, err
	}
	list := make([]string, 0, len(items))
	for i, item := range items {
		text, ok := parseTokenText(item)
		if !ok {
			return nil, fmt.Errorf("entry %d is no token", i)
		}
		list = append(list, text)
	}
	return list, nil
}
