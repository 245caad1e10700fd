package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// mergeTokenizer is the Tokenizer of a tokenizer.json with a BPE model.
type mergeTokenizer struct {
	model     *mergeModel
	added     *addedTokens
	special   SpecialTokens
	normalize func(string) string
	stages    []stage
	decoder   decoder
	numTokens int
	before    []int32
	after     []int32
}

// newMergeTokenizer reads a tokenizer.json, with the files beside it.
//
// Source: Hugging Face's tokenizers (tokenizer/mod.rs, added_vocabulary.rs,
// normalizers, pre_tokenizers, decoders).
func newMergeTokenizer(f Files) (*mergeTokenizer, error) {
	c, special, err := parseConfig(f)
	if err != nil {
		return nil, err
	}
	t := &mergeTokenizer{special: special}
	file, err := parseJSONFile(f.JSON)
	if err == nil {
		err = t.read(file)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	own := make([]addedToken, len(file.AddedTokens))
	for i, a := range file.AddedTokens {
		own[i] = addedToken{a.Content, a.ID, a.Special, a.SingleWord, a.LStrip, a.RStrip, a.Normalized}
	}
	t.added, err = newAddedTokens(t.model, own, c.AddedDecoder, f.AddedTokens, special, t.normalize)
	if err != nil {
		return nil, err
	}
	t.numTokens = t.added.numTokens
	for _, id := range append(t.before, t.after...) {
		if _, ok := t.Token(id); !ok {
			return nil, fmt.Errorf("tokenizer.json: post_processor: there is no token %d", id)
		}
	}
	if c.AddBOS != nil {
		if t.before, err = affix(t, *c.AddBOS, "add_bos_token", special.BOS); err != nil {
			return nil, err
		}
	}
	if c.AddEOS != nil {
		if t.after, err = affix(t, *c.AddEOS, "add_eos_token", special.EOS); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// read takes everything from the file but its added tokens.
func (t *mergeTokenizer) read(file *jsonFile) error {
	var byteLevel bool
	var err error
	if t.normalize, err = parseNormalizer(file.Normalizer); err != nil {
		return err
	}
	if t.stages, byteLevel, err = parseStages(file.PreTokenizer); err != nil {
		return err
	}
	if t.decoder, err = parseDecoder(file.Decoder); err != nil {
		return err
	}
	if t.decoder.byteLevel != byteLevel {
		return errors.New("only one of pre_tokenizer and decoder is ByteLevel")
	}
	tokens, err := file.tokens()
	if err != nil {
		return err
	}
	m, err := newMergeModel(tokens, byteLevel)
	if err != nil {
		return fmt.Errorf("model.vocab: %w", err)
	}
	t.model = m
	m.fuseUnk, m.byteFallback, m.ignoreMerges = file.Model.FuseUnk, file.Model.ByteFallback, file.Model.IgnoreMerges
	if unk := file.Model.Unk; unk != nil {
		if m.unk = m.pieceToID([]byte(*unk)); m.unk < 0 {
			return fmt.Errorf("model: the unk_token %q is not in the vocabulary", *unk)
		}
	}
	count, err := file.countMerges()
	if err != nil {
		return fmt.Errorf("model.merges: %w", err)
	}
	m.merges = newMergeTable(count)
	if err := file.merges(m.addMerge); err != nil {
		return fmt.Errorf("model.merges: %w", err)
	}
	if err := m.seal(); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	t.before, t.after, err = file.affixes()
	return err
}

func (t *mergeTokenizer) Encode(text string, special bool) []int32 {
	if !utf8.ValidString(text) {
		text = validUTF8([]byte(text))
	}
	ids := make([]int32, 0, len(text)/3+4)
	s := t.model.scratch.Get().(*mergeScratch)
	defer t.model.scratch.Put(s)

	// The last stage's pieces are the words that are merged alone.
	next := func(word string, _ bool) { ids = t.model.encode(ids, s, word, t.IsSpecial) }
	for i := len(t.stages) - 1; i >= 0; i-- {
		stage, then := t.stages[i], next
		next = func(piece string, atStart bool) { stage(piece, atStart, then) }
	}
	token := func(id int32) { ids = append(ids, id) }
	set := t.added.plain
	if special {
		set = t.added.all
	}
	atStart := true
	for text != "" {
		part := text[:segmentEnd(text)]
		text = text[len(part):]
		t.added.split(set.raw, part, func(segment string) {
			t.added.split(set.late, t.normalize(segment), func(piece string) {
				next(piece, atStart)
				atStart = false
			}, token)
		}, func(id int32) {
			token(id)
			atStart = false
		})
	}
	// A pasted book must not stay allocated for the life of the process.
	if cap(s.symbols) > 1<<16 {
		*s = mergeScratch{}
	}
	return ids
}

func (t *mergeTokenizer) Decode(ids []int32, skipSpecial bool) string {
	return decodeAll(t, ids, skipSpecial)
}

func (t *mergeTokenizer) NumTokens() int { return t.numTokens }

func (t *mergeTokenizer) Token(id int32) (string, bool) {
	if a, ok := t.added.byID[id]; ok {
		return a.content, true
	}
	if id < 0 || int(id) >= t.model.size() {
		return "", false
	}
	piece := t.model.spelling(id)
	return piece, piece != ""
}

func (t *mergeTokenizer) TokenID(piece string) (int32, bool) {
	if id, ok := t.added.ids[piece]; ok {
		return id, true
	}
	id := t.model.pieceToID([]byte(piece))
	if id < 0 {
		return 0, false
	}
	// An added token can have taken this id from the piece.
	if _, taken := t.added.byID[id]; taken {
		return 0, false
	}
	return id, true
}

func (t *mergeTokenizer) IsSpecial(id int32) bool {
	a, ok := t.added.byID[id]
	return ok && a.special
}

func (t *mergeTokenizer) AppendToken(dst []byte, id int32, skipSpecial bool) []byte {
	if a, ok := t.added.byID[id]; ok {
		if skipSpecial && a.special {
			return dst
		}
		if a.normalized && !t.decoder.byteLevel {
			// It was found as this, with the mark of the space before it.
			return t.decoder.append(dst, []byte(t.normalize(a.content)))
		}
		return append(dst, a.content...)
	}
	if id < 0 || int(id) >= t.model.size() {
		return dst
	}
	return t.decoder.append(dst, t.model.table.piece(id))
}

// leadingSpace tells the decoder about the space that encoding has put in
// front of the text.
func (t *mergeTokenizer) leadingSpace(id int32) (trim, repeat bool) {
	if !t.decoder.strip {
		return false, false
	}
	text := t.AppendToken(nil, id, false)
	return len(text) > 0 && text[0] == ' ', false
}

func (t *mergeTokenizer) Special() map[string]string { return t.special.Special() }

func (t *mergeTokenizer) Affixes() (before, after []int32) { return t.before, t.after }

// parseConfig reads tokenizer_config.json and special_tokens_map.json.
func parseConfig(f Files) (c config, special SpecialTokens, err error) {
	if len(f.Config) > 0 {
		if err := json.Unmarshal(f.Config, &c); err != nil {
			return c, special, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	special, err = ParseSpecialTokens(f.Config, f.SpecialTokensMap)
	return c, special, err
}

// affix returns the id that an option of tokenizer_config.json adds.
func affix(t Tokenizer, on bool, option, token string) ([]int32, error) {
	if !on {
		return nil, nil
	}
	if token == "" {
		return nil, errors.New("tokenizer_config.json: " + option + " is on, but that token is not named")
	}
	id, ok := t.TokenID(token)
	if !ok {
		return nil, fmt.Errorf("tokenizer_config.json: %s is on, but %q is not in the vocabulary", option, token)
	}
	return []int32{id}, nil
}

// segmentEnd is where the first part of a long text ends, between
// characters.
func segmentEnd(text string) int {
	if len(text) <= maxSegmentBytes {
		return len(text)
	}
	cut := maxSegmentBytes
	for back := 0; back < utf8.UTFMax && !utf8.RuneStart(text[cut]); back++ {
		cut--
	}
	return cut
}
