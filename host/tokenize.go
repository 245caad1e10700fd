package host

import (
	"errors"
	"net/http"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/internal/openai"
)

// tokenize answers POST /tokenize: the ids of a prompt, or of a conversation as the chat template writes it.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.readBody(w, r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	call, err := openai.ParseTokenize(body)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	sayIgnored(w, call.Ignored)
	eng, _, err := s.engineFor(call.Model)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	var ids []int32
	switch {
	case call.Prompt == nil:
		var text string
		if text, err = eng.RenderChat(r.Context(), call.Messages, call.AddGenerationPrompt); err == nil {
			ids, err = eng.TokenizeBare(text, true)
		}
	case call.AddSpecial:
		ids, err = eng.Tokenize(*call.Prompt, true)
	default:
		ids, err = eng.TokenizeBare(*call.Prompt, true)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer := openai.TokenizeAnswer{Count: len(ids), MaxModelLen: eng.Info().MaxModelLen, Tokens: append([]int32{}, ids...)}
	if call.Pieces {
		answer.Pieces = make([]string, len(ids))
		for i, id := range ids {
			answer.Pieces[i], _ = eng.Piece(id) // the tokenizer gave the id
		}
	}
	writeJSON(w, http.StatusOK, answer)
}

// detokenize answers POST /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.readBody(w, r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	call, err := openai.ParseDetokenize(body)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	sayIgnored(w, call.Ignored)
	eng, _, err := s.engineFor(call.Model)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	text, err := eng.Detokenize(call.Tokens, false)
	if bad := (*engine.ParamError)(nil); errors.As(err, &bad) {
		err = &engine.ParamError{Field: "tokens", Reason: bad.Reason} // the field's name on the wire
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, openai.DetokenizeAnswer{Prompt: text})
}
