package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pagelight/pagelight/internal/sample"
	"github.com/pagelight/pagelight/internal/sched"
	"github.com/pagelight/pagelight/internal/tokenizer"
)

// maxAnswers is the most answers that a request may ask for.
const maxAnswers = 128

// prepare turns a request into the jobs of its answers, or says what is wrong with it. It runs on the caller's goroutine.
func (e *Engine) prepare(ctx context.Context, req *Request) ([]*job, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.N < 0 || req.N > maxAnswers {
		return nil, &ParamError{"n", fmt.Sprintf("must be 1 to %d, got %d", maxAnswers, req.N)}
	}
	p, err := e.samplingParams(&req.Params)
	if err != nil {
		return nil, err
	}
	ids, err := e.promptIDs(ctx, req)
	if err != nil {
		return nil, err
	}
	maxNew, err := e.maxNew(&req.Params, len(ids))
	if err != nil {
		return nil, err
	}
	g := &group{ctx: ctx, id: req.ID, out: newQueue(), n: max(1, req.N), promptTop: -1}
	g.left = g.n
	if g.id == "" {
		g.id = fmt.Sprintf("r%d", e.nextID.Add(1))
	}
	logitsFrom := len(ids) - 1
	if n := req.Params.PromptLogprobs; n != nil {
		g.promptTop = *n
		g.promptLogprobs = append(g.promptLogprobs, e.describe(ids[0]))
	}
	jobs := make([]*job, g.n)
	for i := range jobs {
		if p.Seed != nil {
			seed := *p.Seed
			if i > 0 {
				seed++
			}
			p.Seed = &seed
		}
		j := e.newJob(g, i, req, ids, maxNew)
		j.sampler = sample.New(p, e.numTokens, ids...)
		if i == 0 && g.promptTop >= 0 {
			j.seq.LogitsFrom = 0
		} else {
			j.seq.LogitsFrom = logitsFrom
		}
		jobs[i] = j
	}
	return jobs, nil
}

// newJob makes one answer's job, but for its sampler.
func (e *Engine) newJob(g *group, index int, req *Request, ids []int32, maxNew int) *job {
	r := &req.Params
	j := &job{
		group: g, index: index, prompt: len(ids), maxNew: maxNew, minNew: r.MinTokens, promptOnly: r.PromptOnly,
		stopIDs: r.StopTokenIDs, keepEOS: r.KeepSpecial, includeStop: r.IncludeStop, top: -1, text: e.Text,
	}
	if r.Logprobs != nil {
		j.top = *r.Logprobs
	}
	if !r.IgnoreEOS {
		j.eos = e.config.EOS
	}
	j.ends = slices.Concat(j.eos, j.stopIDs)
	j.seq = &sched.Sequence{ID: g.id, Tokens: slices.Clone(ids), MaxTokens: len(ids) + maxNew, Priority: req.Priority, Salt: req.CacheSalt}
	if g.n > 1 {
		j.seq.ID = fmt.Sprintf("%s/%d", g.id, index)
	}
	if e.tok != nil {
		j.stream = tokenizer.NewStream(e.tok, !r.KeepSpecial)
		j.stop.stops = r.Stop
	}
	return j
}

// maxNew is how many new tokens an answer may have.
func (e *Engine) maxNew(r *Params, prompt int) (int, error) {
	limit := e.info.MaxModelLen
	if r.PromptOnly {
		if prompt > limit {
			return 0, &ContextLengthError{PromptTokens: prompt, MaxModelLen: limit}
		}
		return 0, nil
	}
	if prompt >= limit || r.MaxTokens > limit-prompt {
		return 0, &ContextLengthError{PromptTokens: prompt, MaxTokens: r.MaxTokens, MaxModelLen: limit}
	}
	n := r.MaxTokens
	if n == 0 {
		n = limit - prompt
		if most := e.config.Sampling.MaxNewTokens; most != nil {
			n = min(n, *most)
		}
	}
	if r.MinTokens > n {
		return 0, &ParamError{"min_tokens", fmt.Sprintf("must be at most max_tokens (%d), got %d", n, r.MinTokens)}
	}
	return n, nil
}

// samplingParams fills in what the request leaves open from generation_config.json and checks the result.
func (e *Engine) samplingParams(r *Params) (sample.Params, error) {
	p := sample.Default()
	d := &e.config.Sampling
	pick(&p.Temperature, d.Temperature)
	if d.DoSample != nil && !*d.DoSample {
		p.Temperature = 0 // a model that says "do not sample" is greedy whatever temperature it also states
	}
	pick(&p.Temperature, r.Temperature)
	pick(&p.TopP, d.TopP, r.TopP)
	pick(&p.TopK, d.TopK, r.TopK)
	pick(&p.MinP, d.MinP, r.MinP)
	pick(&p.RepetitionPenalty, d.RepetitionPenalty, r.RepetitionPenalty)
	pick(&p.PresencePenalty, r.PresencePenalty)
	pick(&p.FrequencyPenalty, r.FrequencyPenalty)
	p.LogitBias, p.Seed, p.AllowedTokenIDs = r.LogitBias, r.Seed, r.AllowedTokenIDs
	p.MinTokens = r.MinTokens
	if !r.IgnoreEOS {
		p.EndIDs = slices.Clone(e.config.EOS)
	}
	p.EndIDs = append(p.EndIDs, r.StopTokenIDs...)
	var err error
	if p.BadWords, err = e.badWords(r.BadWords); err != nil {
		return p, err
	}
	if err := errors.Join(p.Validate(), p.CheckVocab(e.numTokens)); err != nil {
		if s := (*sample.ParamError)(nil); errors.As(err, &s) {
			return p, &ParamError{s.Field, s.Reason}
		}
		return p, err
	}
	return p, e.checkParams(r)
}

// badWords gives the ids that spell each text, as it stands at a beginning and after a space (as vLLM does: the latter only
// where the space changes the first id and not their number).
func (e *Engine) badWords(words []string) (ids [][]int32, err error) {
	for i, w := range words {
		if e.tok == nil {
			return nil, &ParamError{"bad_words", "needs a tokenizer, and this model has none"}
		}
		bare := e.tok.Encode(strings.TrimLeft(w, " "), false)
		if len(bare) == 0 {
			return nil, &ParamError{"bad_words", fmt.Sprintf("element %d has no tokens", i)}
		}
		ids = append(ids, bare)
		if spaced := e.tok.Encode(" "+strings.TrimLeft(w, " "), false); len(spaced) == len(bare) && spaced[0] != bare[0] {
			ids = append(ids, spaced)
		}
	}
	return ids, nil
}

// checkParams checks what is not the sampler's.
func (e *Engine) checkParams(r *Params) error {
	for _, top := range []struct {
		name string
		n    *int
	}{{"logprobs", r.Logprobs}, {"prompt_logprobs", r.PromptLogprobs}} {
		if top.n != nil && (*top.n < 0 || *top.n > MaxLogprobs) {
			return &ParamError{top.name, fmt.Sprintf("must be 0 to %d, got %d", MaxLogprobs, *top.n)}
		}
	}
	switch {
	case r.MaxTokens < 0:
		return &ParamError{"max_tokens", fmt.Sprintf("must be at least 1, got %d", r.MaxTokens)}
	case r.MinTokens < 0:
		return &ParamError{"min_tokens", fmt.Sprintf("must be at least 0, got %d", r.MinTokens)}
	case r.PromptOnly && (r.MaxTokens > 0 || r.MinTokens > 0):
		return &ParamError{"max_tokens", "must be 0 when only the prompt is to be computed"}
	case slices.Contains(r.Stop, ""):
		return &ParamError{"stop", "must not hold an empty string"}
	case len(r.Stop) > 0 && e.tok == nil:
		return &ParamError{"stop", "needs a tokenizer, and this model has none"}
	}
	return nil
}

func pick[T any](dst *T, from ...*T) {
	for _, f := range from {
		if f != nil {
			*dst = *f
		}
	}
}
