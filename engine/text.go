package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/pagelight/pagelight/internal/chat"
	"github.com/pagelight/pagelight/internal/tokenizer"
)

// ErrNoTokenizer says that a model came without tokenizer.model and tokenizer.json, so that it takes and gives token ids only.
var ErrNoTokenizer = errors.New("this model has no tokenizer: use token ids")

// ErrNoChatTemplate says that a model came without a chat template, so that it completes text only.
var ErrNoChatTemplate = errors.New("this model has no chat template: use a plain prompt")

// Text is a model's tokenizer and chat template; it needs no device.
type Text struct {
	tok      tokenizer.Tokenizer // nil when the model has none
	template *chat.Template      // nil when the model has none
	// templateErr says why a template that is there cannot be used; everything but chatting works all the same.
	templateErr  error
	templateFile string
}

// OpenText reads a model's tokenizer and chat template; it is no error when there are none.
func OpenText(ctx context.Context, src Source) (*Text, error) { return openText(ctx, src, nil) }

func openText(ctx context.Context, src Source, breathe func()) (*Text, error) {
	t := &Text{}
	files := map[string][]byte{}
	for _, name := range []string{"tokenizer.model", "tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json", "chat_template.jinja"} {
		b, err := src.File(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		files[name] = b
	}
	switch {
	case src.Config().SyntheticTokenizer:
		t.tok = tokenizer.NewSynthetic(src.Config().VocabSize)
	case files["tokenizer.model"] != nil || files["tokenizer.json"] != nil:
		var err error
		t.tok, err = tokenizer.New(tokenizer.Files{
			Model: files["tokenizer.model"], JSON: files["tokenizer.json"], Config: files["tokenizer_config.json"],
			AddedTokens: files["added_tokens.json"], SpecialTokensMap: files["special_tokens_map.json"], Breathe: breathe,
		})
		if err != nil {
			return nil, err
		}
	}
	if breathe != nil {
		breathe()
	}
	source, err := chat.FindTemplate(files["tokenizer_config.json"], files["chat_template.jinja"])
	if errors.Is(err, chat.ErrNoTemplate) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	t.templateFile = "tokenizer_config.json"
	if source == string(files["chat_template.jinja"]) {
		t.templateFile = "chat_template.jinja"
	}
	if t.template, err = chat.Parse(source); err != nil {
		t.templateErr = &TemplateError{t.templateFile, err}
	}
	return t, nil
}

// promptIDs gives the prompt's token ids.
func (e *Engine) promptIDs(ctx context.Context, req *Request) ([]int32, error) {
	kinds := 0
	for _, given := range []bool{req.Messages != nil, req.Prompt != nil, req.TokenIDs != nil} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, &ParamError{"prompt", fmt.Sprintf("exactly one of messages, text and token ids is needed, got %d of them", kinds)}
	}
	var ids []int32
	var err error
	switch {
	case req.TokenIDs != nil:
		ids = append(ids, req.TokenIDs...)
	case req.Prompt != nil:
		ids, err = e.Tokenize(*req.Prompt, true)
	default:
		var text string
		if text, err = e.RenderChat(ctx, req.Messages, req.AddGenerationPrompt); err == nil {
			ids = e.tok.Encode(text, true)
		}
	}
	if err == nil && len(ids) == 0 {
		err = &ParamError{"prompt", "has no tokens"}
	}
	if err != nil {
		return nil, err
	}
	for i, id := range ids { // a tokenizer may have more tokens than the model
		if id < 0 || int(id) >= e.config.VocabSize {
			return nil, &ParamError{"prompt", fmt.Sprintf("token id %d at position %d is not in the vocabulary of %d", id, i, e.config.VocabSize)}
		}
	}
	return ids, nil
}

// Tokenize gives the ids of a text, with the tokens that the tokenizer's own configuration puts around a text (none for
// ERNIE). With special, special tokens spelled in the text become their ids, as in Hugging Face's tokenizers; without, they
// are ordinary text, as in SentencePiece.
func (t *Text) Tokenize(text string, special bool) ([]int32, error) {
	ids, err := t.TokenizeBare(text, special)
	if err != nil {
		return nil, err
	}
	before, after := t.tok.Affixes()
	return append(append(append([]int32(nil), before...), ids...), after...), nil
}

// TokenizeBare is Tokenize without the tokens around the text: right for what RenderChat gives.
func (t *Text) TokenizeBare(text string, special bool) ([]int32, error) {
	if t.tok == nil {
		return nil, ErrNoTokenizer
	}
	if !utf8.ValidString(text) {
		return nil, &ParamError{"prompt", "is not valid UTF-8"}
	}
	return t.tok.Encode(text, special), nil
}

// Piece gives a token as the vocabulary spells it, where spaces are U+2581 and byte tokens <0xAB>, or U+0120 and one character
// for each byte; ok is false for an id that the tokenizer does not have.
func (t *Text) Piece(id int32) (piece string, ok bool) {
	if t.tok == nil {
		return "", false
	}
	return t.tok.Token(id)
}

// Detokenize gives the text of ids. An id that the tokenizer does not have is an error.
func (t *Text) Detokenize(ids []int32, skipSpecial bool) (string, error) {
	if t.tok == nil {
		return "", ErrNoTokenizer
	}
	for i, id := range ids {
		if id < 0 || int(id) >= t.tok.NumTokens() {
			return "", &ParamError{"token_ids", fmt.Sprintf("id %d at position %d is not one of the tokenizer's %d", id, i, t.tok.NumTokens())}
		}
	}
	return t.tok.Decode(ids, skipSpecial), nil
}

// maxChatBytes bounds a conversation; what a template may print is bounded at the same size.
const maxChatBytes = 1 << 20

// ChatTemplate says whether the model came with a chat template; the error says why one that is there cannot be used.
func (t *Text) ChatTemplate() (has bool, err error) {
	return t.template != nil || t.templateErr != nil, t.templateErr
}

// RenderChat gives the prompt text of a conversation. addGenerationPrompt nil means true.
func (t *Text) RenderChat(ctx context.Context, messages []Message, addGenerationPrompt *bool) (string, error) {
	if t.tok == nil {
		return "", ErrNoTokenizer
	}
	if t.templateErr != nil {
		return "", t.templateErr
	}
	if t.template == nil {
		return "", ErrNoChatTemplate
	}
	if len(messages) == 0 {
		return "", &ParamError{"messages", "must not be empty"}
	}
	size := 0
	msgs := make([]chat.Message, len(messages))
	for i, m := range messages {
		if !utf8.ValidString(m.Content) {
			return "", &ParamError{"messages", fmt.Sprintf("message %d is not valid UTF-8", i)}
		}
		if size += len(m.Content); size > maxChatBytes {
			return "", &ParamError{"messages", fmt.Sprintf("have more than %d bytes together", maxChatBytes)}
		}
		msgs[i] = chat.Message{Role: m.Role, Content: m.Content}
	}
	generate := addGenerationPrompt == nil || *addGenerationPrompt
	text, err := t.template.Render(ctx, msgs, chat.Options{AddGenerationPrompt: &generate, Special: t.tok.Special(), Now: time.Now()})
	raised := (*chat.RaisedError)(nil)
	switch {
	case err == nil:
		return text, nil
	case errors.As(err, &raised):
		return "", &ParamError{"messages", "the model's chat template refuses them: " + raised.Error()}
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	return "", &TemplateError{t.templateFile, err}
}
