// Package tokenizer turns text into token ids and back: SentencePiece BPE
// models (tokenizer.model) and BPE models of Hugging Face's tokenizers
// (tokenizer.json), with the added tokens of the files beside them, and a
// vocabulary without files for the synthetic model.
//
// It owns the vocabulary, the exact segmentation, and the rule by which a
// stream of ids becomes a stream of complete UTF-8 text. It must not know of
// chat templates, sampling or any device.
package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Files are the bytes of the files that describe a tokenizer. Model or JSON
// is required. New copies what it keeps.
type Files struct {
	Model            []byte // tokenizer.model: a serialized sentencepiece.ModelProto
	JSON             []byte // tokenizer.json, which is read if there is no Model or it is refused
	Config           []byte // tokenizer_config.json
	AddedTokens      []byte // added_tokens.json: {"<text>": id}
	SpecialTokensMap []byte // special_tokens_map.json

	// Breathe, if not nil, is called now and then while Model is read: a large one takes a browser a tenth of a second, in which nothing
	// else would have its turn.
	Breathe func()
}

// pauses calls now after every so many pieces.
type pauses struct {
	now func()
	n   int
}

// pauseEvery is how many pieces a browser reads in a millisecond or two.
const pauseEvery = 1024

func (p *pauses) step() {
	if p.n++; p.n%pauseEvery == 0 {
		p.pause()
	}
}

func (p *pauses) pause() {
	if p.now != nil {
		p.now()
	}
}

// Tokenizer is a vocabulary with its segmentation. Implementations are
// never written after their construction, so all methods may be called by any number of
// goroutines.
type Tokenizer interface {
	// Encode returns the ids of text. With special, added and control tokens
	// that stand in the text become their ids; without, their text is
	// ordinary text (pieces of SentencePiece's type USER_DEFINED, and added
	// tokens of a tokenizer.json that are not special, are found in either
	// case). No bos and no eos are added: see Affixes. Bytes that
	// are no UTF-8 count as U+FFFD. A text longer than 16 MiB is cut into
	// parts of that size, between characters, that are encoded one by one.
	Encode(text string, special bool) []int32
	// Decode returns the text of ids, always valid UTF-8: each byte of the
	// byte tokens that belongs to no complete character becomes U+FFFD, as
	// in SentencePiece. skipSpecial leaves special tokens out. Ids that do not exist
	// decode to nothing.
	Decode(ids []int32, skipSpecial bool) string
	// NumTokens is one more than the largest id. Ids from here on do not
	// exist, even if the model has rows for them, and must not be sampled.
	NumTokens() int
	// Token returns the piece of id as the vocabulary spells it. In
	// SentencePiece, spaces are U+2581 and byte tokens <0xAB>; byte-level BPE
	// spells each byte as a character, and a space as U+0120.
	Token(id int32) (piece string, ok bool)
	// TokenID is the inverse of Token.
	TokenID(piece string) (id int32, ok bool)
	// IsSpecial reports whether id is left out of text for people.
	IsSpecial(id int32) bool
	// AppendToken appends the raw bytes of one token to dst. They need not
	// be complete UTF-8: see Stream.
	AppendToken(dst []byte, id int32, skipSpecial bool) []byte
	// Special returns the special tokens by the names that chat templates
	// use, such as "bos_token". The caller owns the map.
	Special() map[string]string
	// Affixes returns the ids that the tokenizer's configuration puts before
	// and after a plain prompt (add_bos_token, add_eos_token). A rendered
	// chat template has its own and takes none. The caller must not write
	// to them.
	Affixes() (before, after []int32)
}

// prefixMode says which segments of a text get SentencePiece's dummy prefix,
// a space in front.
type prefixMode uint8

const (
	prefixNone  prefixMode = iota
	prefixFirst            // the first segment only (Hugging Face: legacy=false)
	prefixEach             // every segment between special tokens
)

// maxSegmentBytes bounds one segment that is normalized and merged at once,
// so that offsets fit 32 bits whatever the normalization does.
const maxSegmentBytes = 16 << 20

// sentencePiece is the Tokenizer of a tokenizer.model.
type sentencePiece struct {
	model     *spModel
	added     *addedTokens
	special   SpecialTokens
	prefix    prefixMode
	numTokens int
	before    []int32
	after     []int32
}

// config is the part of tokenizer_config.json that changes ids or text.
type config struct {
	TokenizerClass string                     `json:"tokenizer_class"`
	AddPrefixSpace *bool                      `json:"add_prefix_space"`
	AddBOS         *bool                      `json:"add_bos_token"`
	AddEOS         *bool                      `json:"add_eos_token"`
	Legacy         *bool                      `json:"legacy"`
	AddedDecoder   map[string]json.RawMessage `json:"added_tokens_decoder"`
}

// New reads a tokenizer. Errors name the file and what is wrong with it;
// what is not supported (models of another type than BPE, a denormalizer) is
// refused by name rather than ignored. Where both files are there, the model
// counts, for it is what the JSON was made of; but some checkpoints have a
// tokenizer.model that is no SentencePiece model.
func New(f Files) (Tokenizer, error) {
	if len(f.Model) == 0 && f.JSON != nil {
		return newMergeTokenizer(f)
	}
	t, err := newSentencePiece(f)
	if err != nil && len(f.JSON) > 0 {
		other, errJSON := newMergeTokenizer(f)
		if errJSON != nil {
			return nil, errors.Join(err, errJSON)
		}
		return other, nil
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// newSentencePiece reads a tokenizer.model.
//
// Sources: sentencepiece (bpe_model.cc, normalizer.cc,
// sentencepiece_processor.cc, model_interface.cc) and transformers
// (tokenization_llama.py, tokenization_utils.py).
func newSentencePiece(f Files) (*sentencePiece, error) {
	breathe := pauses{now: f.Breathe}
	proto, err := parseModel(f.Model, &breathe)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	model, err := newSPModel(proto, &breathe)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	c, special, err := parseConfig(f)
	if err != nil {
		return nil, err
	}
	breathe.pause()
	t := &sentencePiece{model: model, special: special}
	same := func(s string) string { return s }
	t.added, err = newAddedTokens(model, nil, c.AddedDecoder, f.AddedTokens, special, same)
	if err != nil {
		return nil, err
	}
	breathe.pause()
	for id, kind := range model.table.types {
		if kind == typeControl {
			t.added.addFound(model.table.piece(int32(id)), int32(id))
		}
	}
	t.numTokens = max(model.table.len(), t.added.numTokens)

	wanted := model.dummyPrefix
	if c.AddPrefixSpace != nil {
		wanted = *c.AddPrefixSpace
	}
	if wanted {
		t.prefix = prefixEach
		if c.Legacy != nil && !*c.Legacy {
			t.prefix = prefixFirst
		}
	}
	// LlamaTokenizer adds bos unless told otherwise; others do not.
	addBOS := c.TokenizerClass == "LlamaTokenizer" || c.TokenizerClass == "LlamaTokenizerFast"
	if c.AddBOS != nil {
		addBOS = *c.AddBOS
	}
	if t.before, err = affix(t, addBOS, "add_bos_token", special.BOS); err != nil {
		return nil, err
	}
	if t.after, err = affix(t, c.AddEOS != nil && *c.AddEOS, "add_eos_token", special.EOS); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *sentencePiece) Encode(text string, special bool) []int32 {
	// About 4 bytes a token in English, 3 in Chinese.
	ids := make([]int32, 0, len(text)/3+4)
	prefix := t.prefix != prefixNone
	plain := func(segment string) {
		for segment != "" {
			part := segment[:segmentEnd(segment)]
			segment = segment[len(part):]
			ids = t.model.encode(ids, part, prefix)
			prefix = t.prefix == prefixEach
		}
	}
	if !special {
		plain(text)
		return ids
	}
	token := func(id int32) {
		ids = append(ids, id)
		prefix = t.prefix == prefixEach
	}
	t.added.split(t.added.all.raw, text, func(segment string) {
		t.added.split(t.added.all.late, segment, plain, token)
	}, token)
	return ids
}

func (t *sentencePiece) Decode(ids []int32, skipSpecial bool) string {
	return decodeAll(t, ids, skipSpecial)
}

func (t *sentencePiece) NumTokens() int { return t.numTokens }

func (t *sentencePiece) inModel(id int32) bool { return id >= 0 && int(id) < t.model.table.len() }

func (t *sentencePiece) Token(id int32) (string, bool) {
	if a, ok := t.added.byID[id]; ok {
		return a.content, true
	}
	if t.inModel(id) {
		return string(t.model.table.piece(id)), true
	}
	return "", false
}

func (t *sentencePiece) TokenID(piece string) (int32, bool) {
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

func (t *sentencePiece) IsSpecial(id int32) bool {
	if a, ok := t.added.byID[id]; ok {
		return a.special
	}
	return t.inModel(id) && t.model.table.types[id] == typeControl
}

func (t *sentencePiece) AppendToken(dst []byte, id int32, skipSpecial bool) []byte {
	if skipSpecial && t.IsSpecial(id) {
		return dst
	}
	if a, ok := t.added.byID[id]; ok {
		return append(dst, a.content...)
	}
	if !t.inModel(id) {
		return dst
	}
	piece := t.model.table.piece(id)
	switch t.model.table.types[id] {
	case typeByte:
		b, _ := byteOfPiece(piece)
		return append(dst, b)
	case typeUnknown:
		return append(dst, t.model.unkSurface...)
	case typeControl:
		return append(dst, piece...)
	}
	for i := 0; i < len(piece); {
		if len(piece)-i >= len(spaceMark) && string(piece[i:i+len(spaceMark)]) == spaceMark {
			dst = append(dst, ' ')
			i += len(spaceMark)
			continue
		}
		dst = append(dst, piece[i])
		i++
	}
	return dst
}

// leadingSpace tells the decoder about the space that the dummy prefix has
// put in front of the text: whether the token's first byte is such a space,
// and whether more of them may follow.
func (t *sentencePiece) leadingSpace(id int32) (trim, repeat bool) {
	if t.prefix == prefixNone && !t.model.removeExtra {
		return false, false
	}
	if _, ok := t.added.byID[id]; ok || !t.inModel(id) || t.model.table.types[id] == typeByte {
		return false, false
	}
	piece := t.model.table.piece(id)
	return len(piece) >= len(spaceMark) && string(piece[:len(spaceMark)]) == spaceMark, t.model.removeExtra
}

func (t *sentencePiece) Special() map[string]string { return t.special.Special() }

func (t *sentencePiece) Affixes() (before, after []int32) { return t.before, t.after }
