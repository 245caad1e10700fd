package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pagelight/pagelight/internal/tokenizer/pattern"
)

// gpt2Pattern is the expression that the pre-tokenizer ByteLevel has built
// in.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// stage is a step of pre-tokenization: it cuts a piece of text into pieces,
// and calls emit with each, in order. atStart says that the piece stands at
// the start of the text that was given to Encode. emit may get "".
type stage func(piece string, atStart bool, emit func(piece string, atStart bool))

// finder calls visit with the parts of a text that something is about, in
// order and apart from each other.
type finder func(text string, visit func(start, end int))

// maxStages bounds the stages of a sequence, and the depth of sequences.
const maxStages = 32

// parseStages reads a pre_tokenizer. byteLevel says that the last stage is
// ByteLevel, after which each byte stands for itself.
func parseStages(raw json.RawMessage) (stages []stage, byteLevel bool, err error) {
	kinds, err := flatten(raw, "pretokenizers")
	if err != nil {
		return nil, false, fmt.Errorf("pre_tokenizer: %w", err)
	}
	for i, item := range kinds {
		if byteLevel {
			return nil, false, fmt.Errorf("pre_tokenizer: %s after ByteLevel is not supported", item.kind)
		}
		s, err := parseStage(item)
		if err != nil {
			return nil, false, fmt.Errorf("pre_tokenizer %d (%s): %w", i, item.kind, err)
		}
		stages = append(stages, s...)
		byteLevel = item.kind == "ByteLevel"
	}
	return stages, byteLevel, nil
}

// typed is one object of tokenizer.json with the member "type".
type typed struct {
	kind string
	raw  json.RawMessage
}

// flatten gives the items of an object that may be a Sequence, whose items
// are in the member list, or null.
func flatten(raw json.RawMessage, list string) ([]typed, error) {
	var out []typed
	var walk func(raw json.RawMessage, depth int) error
	walk = func(raw json.RawMessage, depth int) error {
		if len(raw) == 0 || string(raw) == "null" {
			return nil
		}
		var members map[string]json.RawMessage
		var kind string
		if err := json.Unmarshal(raw, &members); err != nil {
			return err
		}
		if err := json.Unmarshal(members["type"], &kind); err != nil {
			return errors.New("has no type")
		}
		if len(out) >= maxStages || depth > maxStages {
			return fmt.Errorf("more than %d steps", maxStages)
		}
		if kind != "Sequence" {
			out = append(out, typed{kind, raw})
			return nil
		}
		var items []json.RawMessage
		if err := json.Unmarshal(members[list], &items); err != nil {
			return fmt.Errorf("a Sequence has no list of %s", list)
		}
		for _, item := range items {
			if err := walk(item, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	err := walk(raw, 0)
	return out, err
}

func parseStage(item typed) ([]stage, error) {
	var o struct {
		AddPrefixSpace   *bool           `json:"add_prefix_space"`
		UseRegex         *bool           `json:"use_regex"`
		Pattern          json.RawMessage `json:"pattern"`
		Behavior         string          `json:"behavior"`
		Invert           bool            `json:"invert"`
		IndividualDigits bool            `json:"individual_digits"`
		metaspace
	}
	if err := json.Unmarshal(item.raw, &o); err != nil {
		return nil, err
	}
	split := func(find finder, behavior string) ([]stage, error) {
		s, err := newSplit(find, behavior, o.Invert)
		return []stage{s}, err
	}
	switch item.kind {
	case "ByteLevel":
		var stages []stage
		if o.AddPrefixSpace == nil || *o.AddPrefixSpace {
			stages = append(stages, prefixSpace)
		}
		if o.UseRegex != nil && !*o.UseRegex {
			return stages, nil
		}
		p, err := pattern.Compile(gpt2Pattern)
		if err != nil {
			return nil, err
		}
		s, err := newSplit(p.All, "Isolated", false)
		return append(stages, s), err
	case "Split":
		find, err := parsePattern(o.Pattern)
		if err != nil {
			return nil, err
		}
		return split(find, o.Behavior)
	case "Digits":
		if o.IndividualDigits {
			return split(runes(unicode.IsNumber), "Isolated")
		}
		return split(runes(unicode.IsNumber), "Contiguous")
	case "Punctuation":
		if o.Behavior == "" {
			o.Behavior = "Isolated"
		}
		return split(runes(func(r rune) bool {
			return r < utf8.RuneSelf && unicode.In(r, unicode.P, unicode.S) || unicode.IsPunct(r)
		}), o.Behavior)
	case "WhitespaceSplit":
		return split(runes(unicode.IsSpace), "Removed")
	case "Metaspace":
		if err := o.fill(o.AddPrefixSpace); err != nil {
			return nil, err
		}
		return o.stages()
	}
	return nil, errors.New("this type is not supported; ByteLevel, Split, Digits, Punctuation, WhitespaceSplit, Metaspace and Sequence are")
}

func prefixSpace(piece string, atStart bool, emit func(string, bool)) {
	if piece != "" && piece[0] != ' ' {
		piece = " " + piece
	}
	emit(piece, atStart)
}

// parsePattern reads {"String": "..."} or {"Regex": "..."}.
func parsePattern(raw json.RawMessage) (finder, error) {
	var p struct{ String, Regex *string }
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Regex != nil:
		compiled, err := pattern.Compile(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("pattern: %w", err)
		}
		return compiled.All, nil
	case p.String != nil && *p.String != "":
		want := *p.String
		return func(text string, visit func(start, end int)) {
			for done := 0; ; {
				i := strings.Index(text[done:], want)
				if i < 0 {
					return
				}
				visit(done+i, done+i+len(want))
				done += i + len(want)
			}
		}, nil
	}
	return nil, errors.New("pattern is neither a Regex nor a String")
}

// runes finds the characters that match, one by one.
func runes(match func(rune) bool) finder {
	return func(text string, visit func(start, end int)) {
		for i, r := range text {
			if match(r) {
				visit(i, i+utf8.RuneLen(r))
			}
		}
	}
}

// newSplit makes the stage that cuts at what find finds, which becomes what
// behavior says. invert takes what it does not find instead.
func newSplit(find finder, behavior string, invert bool) (stage, error) {
	// fits reports whether a part joins the one before it.
	var fits func(match, matchBefore bool) bool
	switch behavior {
	case "Isolated", "Removed":
		return func(piece string, atStart bool, emit func(string, bool)) {
			parts(piece, find, func(start, end int, match bool) {
				if match == invert || behavior == "Isolated" {
					emit(piece[start:end], atStart && start == 0)
				}
			})
		}, nil
	case "Contiguous":
		fits = func(match, before bool) bool { return match == before }
	case "MergedWithPrevious":
		fits = func(match, before bool) bool { return match && !before }
	case "MergedWithNext":
		fits = func(match, before bool) bool { return !match && before }
	default:
		return nil, fmt.Errorf("behavior %q is not supported; Isolated, Removed, Contiguous, MergedWithPrevious and MergedWithNext are", behavior)
	}
	return func(piece string, atStart bool, emit func(string, bool)) {
		begin, stop, before := 0, 0, false
		parts(piece, find, func(start, end int, match bool) {
			if match = match != invert; start > 0 && !fits(match, before) {
				emit(piece[begin:stop], atStart && begin == 0)
				begin = start
			}
			stop, before = end, match
		})
		emit(piece[begin:stop], atStart && begin == 0)
	}, nil
}

// parts calls visit with every match and with what stands between matches,
// in order. None is empty.
func parts(text string, find finder, visit func(start, end int, match bool)) {
	done := 0
	find(text, func(start, end int) {
		if start > done {
			visit(done, start, false)
		}
		if end > start {
			visit(start, end, true)
		}
		done = end
	})
	if done < len(text) {
		visit(done, len(text), false)
	}
}

// metaspace are the options of the pre-tokenizer and decoder Metaspace,
// which writes spaces as another character.
type metaspace struct {
	Replacement   string `json:"replacement"`
	PrependScheme string `json:"prepend_scheme"`
	Split         *bool  `json:"split"`
}

// fill checks the options and fills in what old files leave out.
func (m *metaspace) fill(addPrefixSpace *bool) error {
	if utf8.RuneCountInString(m.Replacement) != 1 {
		return fmt.Errorf("the replacement %q is not one character", m.Replacement)
	}
	if m.PrependScheme == "" {
		m.PrependScheme = "always"
	}
	if addPrefixSpace != nil && !*addPrefixSpace {
		m.PrependScheme = "never"
	}
	switch m.PrependScheme {
	case "always", "first", "never":
		return nil
	}
	return fmt.Errorf("prepend_scheme %q is unknown", m.PrependScheme)
}

func (m metaspace) stages() ([]stage, error) {
	mark := m.Replacement
	replace := func(piece string, atStart bool, emit func(string, bool)) {
		piece = strings.ReplaceAll(piece, " ", mark)
		if m.PrependScheme == "always" || m.PrependScheme == "first" && atStart {
			if piece != "" && !strings.HasPrefix(piece, mark) {
				piece = mark + piece
			}
		}
		emit(piece, atStart)
	}
	if m.Split != nil && !*m.Split {
		return []stage{replace}, nil
	}
	only, _ := utf8.DecodeRuneInString(mark)
	split, err := newSplit(runes(func(r rune) bool { return r == only }), "MergedWithNext", false)
	return []stage{replace, split}, err
}
