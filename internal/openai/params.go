package openai

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/pagelight/pagelight/engine"
)

// Limits on lists that cost time at every token. Nothing sensible comes near them.
const (
	maxStopStrings = 16
	maxStopIDs     = 1024
	maxBadWords    = 1024
	maxBiases      = 1024
	maxAnswers     = 128
)

// maxBias is the most that a logit_bias counts in either direction: what is beyond is cut to it, as vLLM does.
const maxBias = 100

// sampling reads how tokens are chosen.
func (o *object) sampling(p *engine.Params) {
	within := func(lo, hi float64) func(float64) bool {
		return func(v float64) bool { return v >= lo && v <= hi }
	}
	p.Temperature = o.number("temperature", "at least 0", func(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }) // 2 is OpenAI's end, not vLLM's
	p.TopP = o.number("top_p", "greater than 0 and at most 1", func(v float64) bool { return v > 0 && v <= 1 })
	p.MinP = o.number("min_p", "from 0 to 1", within(0, 1))
	p.TopK = o.count("top_k", -1, math.MaxInt32)
	p.Seed = o.integer("seed", math.MinInt64, math.MaxInt64)
	p.PresencePenalty = o.number("presence_penalty", "from -2 to 2", within(-2, 2))
	p.FrequencyPenalty = o.number("frequency_penalty", "from -2 to 2", within(-2, 2))
	p.RepetitionPenalty = o.number("repetition_penalty", "greater than 0", func(v float64) bool { return v > 0 && !math.IsInf(v, 1) })
	p.LogitBias = o.logitBias()
	if ids, there := o.ids("allowed_token_ids", math.MaxInt); there {
		if len(ids) == 0 {
			o.r.fail(CodeInvalidValue, "allowed_token_ids", "'allowed_token_ids' must not be empty")
		}
		p.AllowedTokenIDs = ids
	}
	p.BadWords = o.strings("bad_words", maxBadWords)
}

// limits reads how long an answer may and must be. No new token at all may be asked for where the prompt is echoed.
func (o *object) limits(p *engine.Params, echo bool) {
	least := int64(1)
	if echo {
		least = 0
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		if v := o.integer(name, least, math.MaxInt32); v != nil {
			p.MaxTokens, p.PromptOnly = int(*v), *v == 0
		}
	}
	if v := o.integer("min_tokens", 0, math.MaxInt32); v != nil {
		p.MinTokens = int(*v)
		if (p.MaxTokens > 0 || p.PromptOnly) && p.MinTokens > p.MaxTokens {
			o.r.fail(CodeInvalidValue, "min_tokens", "'min_tokens' must be at most 'max_tokens', %d, but is %d", p.MaxTokens, p.MinTokens)
		}
	}
}

// stops reads what ends an answer, and what of it stays in the text.
func (o *object) stops(p *engine.Params) {
	if raw, there := o.fields["stop"]; there && kindOf(raw) == '"' {
		if s := o.str("stop"); *s != "" {
			p.Stop = []string{*s}
		} else {
			o.r.fail(CodeInvalidValue, "stop", "'stop' must not be empty")
		}
	} else {
		p.Stop = o.strings("stop", maxStopStrings)
	}
	p.StopTokenIDs, _ = o.ids("stop_token_ids", maxStopIDs)
	p.IncludeStop = o.flag("include_stop_str_in_output")
	p.IgnoreEOS = o.flag("ignore_eos")
	if v := o.boolean("skip_special_tokens"); v != nil {
		p.KeepSpecial = !*v
	}
}

// answers reads how many answers are wanted. A best_of beyond n would compute answers and hide the worse ones, which vLLM
// has given up too.
func (o *object) answers(c *Call) {
	n := int64(1)
	if v := o.integer("n", 1, maxAnswers); v != nil {
		n = *v
		c.Request.N = int(n)
	}
	if c.Endpoint != Completions {
		return
	}
	if v := o.integer("best_of", 1, maxAnswers); v != nil && *v != n {
		o.r.fail(CodeUnsupported, "best_of", "'best_of' is not supported beyond 'n', which is %d, but is %d", n, *v)
	}
}

// chatLogprobs reads the two fields by which a chat asks for probabilities.
func (o *object) chatLogprobs(p *engine.Params) {
	wanted, top := o.flag("logprobs"), o.count("top_logprobs", 0, engine.MaxLogprobs)
	switch {
	case !wanted && top != nil && *top > 0:
		o.r.fail(CodeInvalidValue, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true")
	case wanted && top == nil:
		p.Logprobs = new(int)
	case wanted:
		p.Logprobs = top
	}
}

func (o *object) logitBias() map[int32]float64 {
	const name = "logit_bias"
	raw, there := o.take(name)
	if !there {
		return nil
	}
	biases := o.r.object(name+".", "", raw)
	switch {
	case biases == nil:
		o.r.failType(name, "an object of biases by token id", raw)
		return nil
	case len(biases.fields) > maxBiases:
		o.r.fail(CodeInvalidValue, name, "'%s' must have at most %d entries, but has %d", name, maxBiases, len(biases.fields))
		return nil
	case len(biases.fields) == 0:
		return nil
	}
	bias := make(map[int32]float64, len(biases.fields))
	for _, key := range slices.Sorted(maps.Keys(biases.fields)) { // sorted, so that the first fault is always the same
		raw := biases.fields[key]
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != key {
			o.r.fail(CodeInvalidValue, name, "'%s' must have token ids as its keys, such as \"42\"", name)
			return nil
		}
		if kindOf(raw) != '0' {
			o.r.failType(name, "an object whose values are numbers", raw)
			return nil
		}
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
		if err != nil { // too large for a number
			o.r.fail(CodeInvalidValue, name, "'%s' must have numbers as its values, but that of %s is %s", name, key, found(raw))
			return nil
		}
		bias[int32(id)] = min(max(v, -maxBias), maxBias)
	}
	return bias
}

// strings reads an array of at most most strings, none of them empty.
func (o *object) strings(name string, most int) []string {
	raw, there := o.take(name)
	if !there {
		return nil
	}
	elems, ok := array(raw)
	if !ok {
		want := "an array of strings"
		if name == "stop" {
			want = "a string or " + want
		}
		o.r.failType(name, want, raw)
		return nil
	}
	if len(elems) > most {
		o.r.fail(CodeInvalidValue, name, "'%s' must have at most %d strings, but has %d", name, most, len(elems))
		return nil
	}
	var list []string
	for i, e := range elems {
		param := fmt.Sprintf("%s[%d]", name, i)
		s, ok := stringOf(e)
		switch {
		case !ok:
			o.r.failType(param, "a string", e)
			return nil
		case s == "":
			o.r.fail(CodeInvalidValue, param, "'%s' must not be empty", param)
			return nil
		}
		list = append(list, s)
	}
	return list
}

// ids reads an array of at most most token ids.
func (o *object) ids(name string, most int) (ids []int32, there bool) {
	raw, there := o.take(name)
	if !there {
		return nil, false
	}
	elems, ok := array(raw)
	switch {
	case !ok:
		o.r.failType(name, "an array of token ids", raw)
		return nil, false
	case len(elems) > most:
		o.r.fail(CodeInvalidValue, name, "'%s' must have at most %d token ids, but has %d", name, most, len(elems))
		return nil, false
	case len(elems) == 0:
		return nil, true
	}
	return o.r.tokenIDs(name, elems), true
}
