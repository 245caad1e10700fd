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
	info := eng.Info()
	r := perplexityResult{Tokens: len(ids), Window: c.Window, Model: info.Model, Weights: info.Weights, KV: string(info.KVType), Adapter: info.Adapter.Name}
	start := time.Now()
	watch := !c.JSON && isTerminal(a.stderr)
	for lo := 0; lo < len(ids) && (c.Limit == 0 || r.Windows < c.Limit); lo += c.Window {
		w := ids[lo:min(lo+c.Window, len(ids))]
		if len(w) < 2 {
			break
		}
		nll, err := eng.NLL(a.ctx, w)
		if err != nil {
			return err
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
	r.Perplexity = math.Exp(r.MeanNLL)
	r.Seconds = time.Since(start).Seconds()
	r.TokensPerS = float64(r.Scored+r.Windows) / r.Seconds
	if c.JSON {
		return printJSON(a.stdout, r)
	}
	_, err = fmt.Fprintf(a.stdout, "perplexity  %.4f\nmean nll    %.5f per token\ntokens      %d scored, %d windows of %d\nmodel       %s, weights %s, KV %s, on %s\nspeed       %.1f tokens/s\n",
		r.Perplexity, r.MeanNLL, r.Scored, r.Windows, r.Window, r.Model, r.Weights, r.KV, r.Adapter, r.TokensPerS)
	return err
}
