package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxGrowth bounds how many times longer normalization may make a text, all
// steps together, so that a hostile file cannot turn a short text into
// gigabytes. That of NFKD is 18.
const maxGrowth = 1024

// parseNormalizer reads the normalizer of a tokenizer.json as one function.
func parseNormalizer(raw json.RawMessage) (func(string) string, error) {
	items, err := flatten(raw, "normalizers")
	if err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	var steps []func(string) string
	growth := 1
	for i, item := range items {
		step, times, err := parseNormalizerStep(item)
		if err != nil {
			return nil, fmt.Errorf("normalizer %d (%s): %w", i, item.kind, err)
		}
		if growth *= times; growth > maxGrowth {
			return nil, fmt.Errorf("normalizer %d (%s): the steps up to here can make a text more than %d times longer", i, item.kind, maxGrowth)
		}
		steps = append(steps, step)
	}
	return func(text string) string {
		for _, step := range steps {
			text = step(text)
		}
		return text
	}, nil
}

// parseNormalizerStep also returns how many times longer the step can make a
// text.
func parseNormalizerStep(item typed) (step func(string) string, growth int, err error) {
	var o struct {
		Prepend    string          `json:"prepend"`
		Pattern    json.RawMessage `json:"pattern"`
		Content    string          `json:"content"`
		StripLeft  bool            `json:"strip_left"`
		StripRight bool            `json:"strip_right"`
	}
	if err := json.Unmarshal(item.raw, &o); err != nil {
		return nil, 0, err
	}
	switch item.kind {
	case "NFC":
		return norm.NFC.String, 3, nil
	case "NFD":
		return norm.NFD.String, 4, nil
	case "NFKC":
		return norm.NFKC.String, 11, nil
	case "NFKD":
		return norm.NFKD.String, 18, nil
	case "Prepend":
		return func(text string) string {
			if text == "" {
				return text
			}
			return o.Prepend + text
		}, 1 + len(o.Prepend), nil
	case "Replace":
		find, err := parsePattern(o.Pattern)
		return func(text string) string {
			var sb strings.Builder
			done := 0
			find(text, func(start, end int) {
				sb.WriteString(text[done:start])
				sb.WriteString(o.Content)
				done = end
			})
			if done == 0 && sb.Len() == 0 {
				return text
			}
			sb.WriteString(text[done:])
			return sb.String()
		}, 1 + len(o.Content), err
	case "Strip":
		return func(text string) string {
			if o.StripLeft {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if o.StripRight {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text
		}, 1, nil
	}
	return nil, 0, errors.New("this type is not supported; NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip and Sequence are")
}
