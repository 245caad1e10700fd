// Package sample picks the next token of a sequence from its logits, in the
// order and with the meaning of vLLM V1 (vllm/v1/sample/sampler.py,
// ops/topk_topp_sampler.py, logits_processor/builtin.py,
// vllm/sampling_params.py):
//
//	allowed ids -> bad words -> min tokens -> logit bias -> repetition,
//	frequency, presence penalties -> greedy, or temperature -> min_p ->
//	top_k -> top_p -> softmax -> exponential race
//
// It owns the parameters with their ranges, and the state of one sequence:
// random numbers and token counts. It must not know of requests, text or any
// device.
package sample

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	// greedyBelow is vLLM's _SAMPLING_EPS: a temperature below it is 0.
	greedyBelow = 1e-5
	// minTemperature is vLLM's _MAX_TEMP: temperatures between greedyBelow
	// and it are raised to it, because logits divided by less overflow.
	minTemperature = 0.01
	// maxLogitBias is where OpenAI's API and vLLM clamp a bias.
	maxLogitBias = 100
	// maxLogitBiases bounds the entries of LogitBias.
	maxLogitBiases = 1024
)

// Params are the sampling parameters of one request. The zero value is
// greedy with invalid TopP and RepetitionPenalty; start from Default.
type Params struct {
	Temperature float64 // at least 0; below 1e-5: greedy; below 0.01: 0.01
	TopP        float64 // (0, 1]; 1 keeps all
	MinP        float64 // [0, 1]; 0 keeps all
	TopK        int     // 0 and -1 keep all
	Seed        *int64  // nil: a seed that differs for each sequence

	RepetitionPenalty float64 // above 0; 1 is none; over prompt and output
	PresencePenalty   float64 // [-2, 2]; 0 is none; over the output
	FrequencyPenalty  float64 // [-2, 2]; 0 is none; over the output

	// LogitBias is added to the logits of these ids, clamped to [-100, 100].
	LogitBias map[int32]float64

	// AllowedTokenIDs are the only ids that may be chosen; nil allows all.
	AllowedTokenIDs []int32
	// BadWords are sequences of ids that the output must not contain: the
	// last id of one is not chosen where the output ends with the ids before
	// it. What a bad word is as ids is the caller's to say.
	BadWords [][]int32
	// MinTokens is how many ids the output has before one of EndIDs may be
	// chosen: those that end an answer, the model's and the request's.
	MinTokens int
	EndIDs    []int32
}

// Default returns vLLM's defaults: temperature 1, everything else off.
func Default() Params {
	return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
}

// ParamError says which parameter is not valid and why.
type ParamError struct {
	Field  string // in the spelling of the API: "top_p"
	Reason string // "must be in (0, 1], got 2"
}

func (e *ParamError) Error() string { return e.Field + " " + e.Reason }

// ErrNaN is the error for logits that hold a NaN or +Inf: the model's
// arithmetic has failed and no choice would mean anything.
var ErrNaN = errors.New("sample: logits hold a NaN or +Inf")

// ErrNoToken is the error for logits that leave nothing to choose from: all
// are -Inf, or there are none.
var ErrNoToken = errors.New("sample: no token has a logit above -Inf")

// ErrRuledOut is the error for a step at which AllowedTokenIDs, BadWords and
// MinTokens together rule out every token that the model could choose.
var ErrRuledOut = errors.New("sample: the parameters rule out every token")

// Validate checks the ranges that vLLM checks. The error is a *ParamError.
func (p Params) Validate() error {
	bad := func(field, format string, args ...any) error {
		return &ParamError{field, fmt.Sprintf(format, args...)}
	}
	in := func(v, low, high float64) bool { return v >= low && v <= high } // false for NaN
	switch {
	case !in(p.Temperature, 0, math.MaxFloat64):
		return bad("temperature", "must be a number that is at least 0, got %v", p.Temperature)
	case !in(p.TopP, math.SmallestNonzeroFloat64, 1):
		return bad("top_p", "must be in (0, 1], got %v", p.TopP)
	case !in(p.MinP, 0, 1):
		return bad("min_p", "must be in [0, 1], got %v", p.MinP)
	case p.TopK < -1:
		return bad("top_k", "must be 0 or -1 (all) or at least 1, got %d", p.TopK)
	case !in(p.RepetitionPenalty, math.SmallestNonzeroFloat64, math.MaxFloat64):
		return bad("repetition_penalty", "must be above 0, got %v", p.RepetitionPenalty)
	case !in(p.PresencePenalty, -2, 2):
		return bad("presence_penalty", "must be in [-2, 2], got %v", p.PresencePenalty)
	case !in(p.FrequencyPenalty, -2, 2):
		return bad("frequency_penalty", "must be in [-2, 2], got %v", p.FrequencyPenalty)
	case len(p.LogitBias) > maxLogitBiases:
		return bad("logit_bias", "must have at most %d entries, got %d", maxLogitBiases, len(p.LogitBias))
	}
	for id, v := range p.LogitBias {
		if id < 0 {
			return bad("logit_bias", "has the negative token id %d", id)
		}
		if v != v || math.IsInf(v, 0) {
			return bad("logit_bias", "of token %d must be a number, got %v", id, v)
		}
	}
	return p.validateMasks()
}

// validateMasks is the part of Validate about ids that may not be chosen.
func (p Params) validateMasks() error {
	if p.MinTokens < 0 {
		return &ParamError{"min_tokens", fmt.Sprintf("must be at least 0, got %d", p.MinTokens)}
	}
	if p.AllowedTokenIDs != nil && len(p.AllowedTokenIDs) == 0 {
		return &ParamError{"allowed_token_ids", "must not be empty"}
	}
	for i, word := range p.BadWords {
		if len(word) == 0 {
			return &ParamError{"bad_words", fmt.Sprintf("has no token at index %d", i)}
		}
	}
	return p.eachID(func(field string, id int32) error {
		if id < 0 {
			return &ParamError{field, fmt.Sprintf("has the negative token id %d", id)}
		}
		return nil
	})
}

// checkFirst reports a *ParamError if no token is left already at the first
// step. (Later ones depend on what was chosen before: see ErrRuledOut.)
func (p Params) checkFirst() error {
	if p.AllowedTokenIDs == nil {
		return nil
	}
	out := map[int32]bool{}
	for _, word := range p.BadWords {
		if len(word) == 1 {
			out[word[0]] = true
		}
	}
	if p.MinTokens > 0 {
		for _, id := range p.EndIDs {
			out[id] = true
		}
	}
	if slices.ContainsFunc(p.AllowedTokenIDs, func(id int32) bool { return !out[id] }) {
		return nil
	}
	return &ParamError{"allowed_token_ids", "has no token but those that bad_words or min_tokens rule out"}
}

// eachID calls f for the ids that parameters other than LogitBias name,
// until it fails.
func (p Params) eachID(f func(field string, id int32) error) error {
	for _, id := range p.AllowedTokenIDs {
		if err := f("allowed_token_ids", id); err != nil {
			return err
		}
	}
	for _, word := range p.BadWords {
		for _, id := range word {
			if err := f("bad_words", id); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckVocab reports a *ParamError if a parameter names a token id that is
// not below numTokens (EndIDs may: models list ids that do not exist), or if
// the parameters leave nothing to choose.
func (p Params) CheckVocab(numTokens int) error {
	check := func(field string, id int32) error {
		if int(id) >= numTokens {
			return &ParamError{field, fmt.Sprintf("has the token id %d, but the vocabulary has %d tokens", id, numTokens)}
		}
		return nil
	}
	for id := range p.LogitBias {
		if err := check("logit_bias", id); err != nil {
			return err
		}
	}
	if err := p.eachID(check); err != nil {
		return err
	}
	return p.checkFirst()
}

// Greedy reports whether the parameters mean the largest of the unchanged
// logits at every step, so that an argmax on the device suffices: no
// randomness, no penalties, no bias and no ids ruled out. (A sampling request
// with TopK 1 is not: ties are drawn.)
func (p Params) Greedy() bool {
	return p.Temperature < greedyBelow && !p.changesLogits() && len(p.BadWords) == 0 && (p.MinTokens == 0 || len(p.EndIDs) == 0)
}

// changesLogits reports whether logits are changed at every step. Bad words
// and MinTokens do so at some.
func (p Params) changesLogits() bool {
	return p.penalizes() || len(p.LogitBias) > 0 || p.AllowedTokenIDs != nil
}

func (p Params) penalizes() bool {
	return p.RepetitionPenalty != 1 || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}
