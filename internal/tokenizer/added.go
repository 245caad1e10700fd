package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

const (
	maxAddedTokens     = 1 << 17 // entries of the added tokens' files together
	maxAddedTokenBytes = 256     // bounds the walk at each byte of a text
	maxAddedGap        = 1 << 20 // ids past the model's own
)

// addedToken is one token outside the SentencePiece segmentation. The
// options are those of Hugging Face's AddedToken.
type addedToken struct {
	content    string
	id         int32
	special    bool
	singleWord bool // only between characters that are no letters, digits or _
	lstrip     bool // takes the white space before it along
	rstrip     bool // takes the white space after it along
	normalized bool // looked for after, and between, those that are not
}

// addedTokens is the set of them. A few thousand at most, so pointers
// are no burden here.
type addedTokens struct {
	byID      map[int32]*addedToken
	ids       map[string]int32
	all       addedFinder // every token, and what addFound has added
	plain     addedFinder // those that are not special
	numTokens int         // largest id + 1
}

// addedFinder finds tokens in text.
type addedFinder struct {
	raw  *trie // normalized == false
	late *trie // normalized == true, by their normalized content
}

// vocabulary is what added tokens are checked against: the model's own
// tokens.
type vocabulary interface {
	size() int                   // largest id + 1
	pieceToID(text []byte) int32 // -1 if there is none
}

// newAddedTokens takes the tokens of tokenizer.json (own), of
// tokenizer_config.json (decoder), of added_tokens.json and those that are
// only named. normalize is what the text goes through before tokens with the
// option normalized are looked for.
func newAddedTokens(m vocabulary, own []addedToken, decoder map[string]json.RawMessage, addedJSON []byte, special SpecialTokens,
	normalize func(string) string,
) (*addedTokens, error) {
	a := &addedTokens{byID: map[int32]*addedToken{}, ids: map[string]int32{}}
	for _, t := range own {
		if err := a.add(m, t); err != nil {
			return nil, fmt.Errorf("tokenizer.json: added_tokens: %w", err)
		}
	}
	for key, raw := range decoder {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is no id", key)
		}
		var entry struct {
			Content    string `json:"content"`
			Special    bool   `json:"special"`
			SingleWord bool   `json:"single_word"`
			LStrip     bool   `json:"lstrip"`
			RStrip     bool   `json:"rstrip"`
			Normalized bool   `json:"normalized"`
		}
		if err := json.Unmarshal(raw, &entry); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder %s: %w", key, err)
		}
		if a.ids[entry.Content] == int32(id) && a.byID[int32(id)] != nil {
			continue // tokenizer.json has it
		}
		if err := a.add(m, addedToken{
			entry.Content, int32(id), entry.Special, entry.SingleWord, entry.LStrip, entry.RStrip, entry.Normalized,
		}); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %w", err)
		}
	}
	if len(addedJSON) > 0 {
		var ids map[string]int32
		if err := json.Unmarshal(addedJSON, &ids); err != nil {
			return nil, fmt.Errorf("added_tokens.json: %w", err)
		}
		for content, id := range ids {
			if old, ok := a.byID[id]; ok && old.content == content {
				continue // the decoder says more about it
			}
			if err := a.add(m, addedToken{content: content, id: id}); err != nil {
				return nil, fmt.Errorf("added_tokens.json: %w", err)
			}
		}
	}
	// Tokens that are only named (bos_token and so on) are special, and are
	// found in text, if the vocabulary has them.
	named := slices.Clone(special.Additional)
	for _, text := range special.Special() {
		named = append(named, text)
	}
	for _, text := range named {
		if id, ok := a.ids[text]; ok {
			a.byID[id].special = true
			continue
		}
		id := m.pieceToID([]byte(text))
		if id < 0 || a.byID[id] != nil || len(text) > maxAddedTokenBytes {
			continue
		}
		if err := a.add(m, addedToken{content: text, id: id, special: true}); err != nil {
			return nil, fmt.Errorf("special token: %w", err)
		}
	}
	a.numTokens = m.size()
	a.all, a.plain = addedFinder{newTrie(), newTrie()}, addedFinder{newTrie(), newTrie()}
	for id, t := range a.byID {
		a.numTokens = max(a.numTokens, int(id)+1)
		a.all.add(t, normalize)
		if !t.special {
			a.plain.add(t, normalize)
		}
	}
	return a, nil
}

func (f addedFinder) add(t *addedToken, normalize func(string) string) {
	if !t.normalized {
		f.raw.add(t.content, t.id)
	} else if content := normalize(t.content); content != "" {
		f.late.add(content, t.id)
	}
}

// addFound lets a token of the model itself be found in text, unless another
// has its text or its id.
func (a *addedTokens) addFound(text []byte, id int32) {
	if _, ok := a.ids[string(text)]; !ok && a.byID[id] == nil && len(text) <= maxAddedTokenBytes {
		a.all.raw.add(string(text), id)
	}
}

func (a *addedTokens) add(m vocabulary, t addedToken) error {
	switch {
	case t.id < 0 || int(t.id) >= m.size()+maxAddedGap:
		return fmt.Errorf("id %d of %q is out of range; the model has %d pieces", t.id, clip([]byte(t.content)), m.size())
	case t.content == "":
		return fmt.Errorf("id %d has no content", t.id)
	case len(t.content) > maxAddedTokenBytes:
		return fmt.Errorf("id %d has %d bytes, more than the limit of %d", t.id, len(t.content), maxAddedTokenBytes)
	case len(a.byID) >= maxAddedTokens:
		return fmt.Errorf("more than %d tokens", maxAddedTokens)
	}
	if old, ok := a.byID[t.id]; ok {
		return fmt.Errorf("id %d is both %q and %q", t.id, old.content, t.content)
	}
	if old, ok := a.ids[t.content]; ok {
		return fmt.Errorf("%q has both ids %d and %d", t.content, old, t.id)
	}
	a.byID[t.id] = &t
	a.ids[t.content] = t.id
	return nil
}

// split cuts text at the tokens of set, leftmost and longest first, and calls
// plain and token in the order of the text. plain never gets "".
func (a *addedTokens) split(set *trie, text string, plain func(string), token func(int32)) {
	done := 0 // text[:done] has been given out
	for i := 0; i < len(text); {
		size, id := longestMatch(set, text[i:])
		if size == 0 {
			i++
			continue
		}
		start, end := i, i+size
		i = end
		if t := a.byID[id]; t != nil {
			if t.singleWord && (wordBefore(text[:start]) || wordAfter(text[end:])) {
				continue
			}
			if t.lstrip {
				for start > done {
					r, n := utf8.DecodeLastRuneInString(text[done:start])
					if !unicode.IsSpace(r) {
						break
					}
					start -= n
				}
			}
			if t.rstrip {
				for end < len(text) {
					r, n := utf8.DecodeRuneInString(text[end:])
					if !unicode.IsSpace(r) {
						break
					}
					end += n
				}
			}
		}
		if start > done {
			plain(text[done:start])
		}
		token(id)
		done, i = end, end
	}
	if done < len(text) {
		plain(text[done:])
	}
}

func isWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}
