package main

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/pagelight/pagelight/engine"
)

type perplexityCmd struct {
	Model  string `default:"builtin" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, or builtin."`
	File   string `required:"" placeholder:"FILE" help:"UTF-8 text; - is standard input."`
	Window int    `default:"512" help:"Tokens per window; windows follow each other and each is run alone."`
	Limit  int    `placeholder:"N" help:"Measure the first N windows only."`
	JSON   bool   `name:"json" help:"Print a JSON object instead of a table."`

	Against string `placeholder:"MODEL" help:"Also say how often this other model, as stored, would have taken the same token: the most likely one at every position."`
	modelFlags
}

// perplexityResult is what perplexity --json prints.
type perplexityResult struct {
	Perplexity float64   `json:"perplexity"`
	MeanNLL    float64   `json:"mean_nll"`
	SumNLL     float64   `json:"sum_nll"`
	Tokens     int       `json:"tokens"`
	Scored     int       `json:"scored"`
	Windows    int       `json:"windows"`
	Window     int       `json:"window"`
	WindowNLL  []float64 `json:"window_nll"`
	Against    string    `json:"against,omitempty"`
	SameTop    float64   `json:"same_top,omitempty"` // part of the scored positions where both models have the same most likely token
	Model      string    `json:"model"`
	Weights    string    `json:"weights"`
	KV         string    `json:"kv"`
	Adapter    string    `json:"adapter"`
	Seconds    float64   `json:"seconds"`
	TokensPerS float64   `json:"tokens_per_second"`
}

// Run scores the text window by window: each from position 0 and without bos; every token but a window's first counts.
func (c *perplexityCmd) Run(a *app) error {
	if c.Window < 2 {
		return usagef("perplexity: --window must be at least 2, got %d", c.Window)
	}
	if c.Limit < 0 {
		return usagef("perplexity: --limit must not be negative, got %d", c.Limit)
	}
	data, err := readFile(a, c.File)
	if err != nil {
		return usageError{err}
	}
	if !utf8.Valid(data) {
		return usagef("perplexity: %s is not valid UTF-8", c.File)
	}
	eng, err := c.open(a, c.Model, engine.Config{LogitRows: min(c.Window, 64)})
	if err != nil {
		return err
	}
	defer eng.Close()
	ids, err := eng.Tokenize(string(data), false)
	if err != nil {
		return err
	}
	var other *engine.Engine
	if c.Against != "" {
		flags := c.modelFlags
		flags.Quant = "none"
		if other, err = flags.open(a, c.Against, engine.Config{LogitRows: min(c.Window, 64)}); err != nil {
			return err
		}
		defer other.Close()
		if got, want := other.Config().VocabSize, eng.Config().VocabSize; got != want {
			return usagef("perplexity: --against %s has a vocabulary of %d, the model one of %d", c.Against, got, want)
		}
	}
	info, same := eng.Info(), 0
	r := perplexityResult{Against: c.Against, Tokens: len(ids), Window: c.Window, Model: info.Model, Weights: info.Weights, KV: string(info.KVType), Adapter: info.Adapter.Name}
	start := time.Now()
	watch := !c.JSON && isTerminal(a.stderr)
	for lo := 0; lo < len(ids) && (c.Limit == 0 || r.Windows < c.Limit); lo += c.Window {
		w := ids[lo:min(lo+c.Window, len(ids))]
		if len(w) < 2 {
			break
		}
		nll, best, err := scoreWindow(a, eng, w)
		if err != nil {
			return err
		}
		if other != nil {
			_, wanted, err := scoreWindow(a, other, w)
			if err != nil {
				return err
			}
			for i := range w[1:] {
				if best[i] == wanted[i] {
					same++
				}
			}
		}
		r.Windows++
		r.SumNLL += nll
		r.Scored += len(w) - 1
		r.WindowNLL = append(r.WindowNLL, nll)
		if watch {
			fmt.Fprintf(a.stderr, "\rwindow %d of %d, perplexity so far %.3f ", r.Windows, (len(ids)+c.Window-1)/c.Window, math.Exp(r.SumNLL/float64(r.Scored)))
		}
	}
	if watch {
		fmt.Fprintln(a.stderr)
	}
	if r.Scored == 0 {
		return usagef("perplexity: %s has %d tokens; at least 2 are needed", c.File, len(ids))
	}
	r.MeanNLL = r.SumNLL / float64(r.Scored)
	r.SameTop = float64(same) / float64(r.Scored)
	r.Perplexity = math.Exp(r.MeanNLL)
	r.Seconds = time.Since(start).Seconds()
	r.TokensPerS = float64(r.Scored+r.Windows) / r.Seconds
	if c.JSON {
		return printJSON(a.stdout, r)
	}
	agreement := ""
	if other != nil {
		agreement = fmt.Sprintf("same top    %.4f of the positions, as %s\n", r.SameTop, c.Against)
	}
	_, err = fmt.Fprintf(a.stdout, "perplexity  %.4f\nmean nll    %.5f per token\ntokens      %d scored, %d windows of %d\nmodel       %s, weights %s, KV %s, on %s\n%sspeed       %.1f tokens/s\n",
		r.Perplexity, r.MeanNLL, r.Scored, r.Windows, r.Window, r.Model, r.Weights, r.KV, r.Adapter, agreement, r.TokensPerS)
	return err
}

// scoreWindow gives the sum of the negative log-likelihoods of all tokens but the first, and the most likely token after each.
func scoreWindow(a *app, eng *engine.Engine, w []int32) (nll float64, best []int32, err error) {
	best = make([]int32, len(w))
	_, err = eng.Logits(a.ctx, engine.LogitsRequest{TokenIDs: w}, func(pos int, row []float32) error {
		if pos+1 < len(w) {
			nll += engine.NegativeLogLikelihood(row, w[pos+1])
		}
		for id, v := range row {
			if v > row[best[pos]] {
				best[pos] = int32(id)
			}
		}
		return nil
	})
	return nll, best, err
}
