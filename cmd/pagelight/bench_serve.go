package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/pagelight/pagelight/internal/loadtest"
)

// benchServeCmd has the flags of "vllm bench serve" under the same names where they mean the same.
type benchServeCmd struct {
	BaseURL  string   `name:"base-url" default:"http://127.0.0.1:8080" placeholder:"URL" group:"Server" help:"The server: any that speaks OpenAI's API. Requests go there and nowhere else: no proxy, no redirect. Default: http://127.0.0.1:8080."`
	Backend  string   `enum:"openai,openai-chat" default:"openai" group:"Server" help:"What to measure: openai (/v1/completions) or openai-chat (/v1/chat/completions)."`
	Endpoint string   `placeholder:"PATH" group:"Server" help:"Path of the endpoint, where it is not the usual one."`
	Model    string   `placeholder:"NAME" group:"Server" help:"Model to ask for. Default: the first of /v1/models."`
	APIKey   string   `name:"api-key" placeholder:"KEY" env:"PAGELIGHT_API_KEY" group:"Server" help:"Bearer token."`
	Header   []string `sep:"none" placeholder:"NAME=VALUE" group:"Server" help:"Header of every request; may be given again."`

	NumPrompts     *int          `aliases:"requests" placeholder:"N" group:"Load" help:"Requests to send (also: --requests). Default: 100, or with --duration no limit."`
	MaxConcurrency *int          `aliases:"concurrency" placeholder:"N" group:"Load" help:"Requests that run at most (also: --concurrency). Without --request-rate the next is sent when one has ended (closed loop). Default: 1, or with --request-rate no limit."`
	RequestRate    *float64      `aliases:"rate" placeholder:"R" group:"Load" help:"Requests per second, at random times whether or not earlier ones have ended (open loop; also: --rate). Latency counts from when a request was due. inf sends as fast as --max-concurrency allows."`
	Burstiness     float64       `default:"1" placeholder:"B" group:"Load" help:"Shape of the random times: 1 is Poisson, less is burstier, more is more even, inf is a clock. Default: 1."`
	Duration       time.Duration `placeholder:"TIME" group:"Load" help:"Send new requests for this long (30s, 5m); those that run then are waited for."`
	TimeLimit      time.Duration `placeholder:"TIME" group:"Load" help:"Give up whatever still runs after this long. It counts as failed."`
	RequestTimeout time.Duration `default:"10m" placeholder:"TIME" group:"Load" help:"Longest time of one request. Default: 10m."`
	MaxRetries     int           `placeholder:"N" group:"Load" help:"Try again after a 429, this many times, when Retry-After says; the clock runs on. Default: 0."`
	NumWarmups     int           `aliases:"warmup" placeholder:"N" group:"Load" help:"Requests before the measurement (also: --warmup). Default: 0."`

	InputLen         loadtest.Lengths `aliases:"random-input-len" default:"256" placeholder:"LENGTH" group:"Prompts" help:"Tokens of a prompt (also: --random-input-len): 256, 100-300, normal:MEAN,SD or lognormal:MEAN,SD, with ,MIN-MAX for bounds. Default: 256."`
	OutputLen        loadtest.Lengths `aliases:"random-output-len" default:"64" placeholder:"LENGTH" group:"Prompts" help:"Tokens that an answer may have, likewise (also: --random-output-len). Default: 64."`
	RandomRangeRatio float64          `placeholder:"F" group:"Prompts" help:"Take lengths from LENGTH x (1-F) to LENGTH x (1+F)."`
	PrefixLen        int              `aliases:"random-prefix-len,prefix-tokens" placeholder:"N" group:"Prompts" help:"Tokens before those that requests share (also: --random-prefix-len, --prefix-tokens)."`
	PrefixShare      float64          `default:"1" placeholder:"F" group:"Prompts" help:"Share of requests that begin with a shared prefix; the others have one of their own. Default: 1."`
	NumPrefixes      int              `aliases:"prefix-repetition-num-prefixes" default:"1" placeholder:"N" group:"Prompts" help:"How many shared prefixes there are. Default: 1."`
	PromptFormat     string           `enum:"auto,ids,text" default:"auto" group:"Prompts" help:"Random prompts as token ids or as text (auto, ids, text): auto sends ids to a server that takes them. Lengths of texts are calibrated by the server's own counts."`
	DatasetPath      string           `placeholder:"FILE" group:"Prompts" help:"Take prompts from lines of JSON, {\"prompt\": …} or {\"messages\": …}, with \"output_tokens\" where known; - is standard input."`
	DisableShuffle   bool             `group:"Prompts" help:"Take the lines in their order."`
	IgnoreEOS        bool             `name:"ignore-eos" group:"Prompts" help:"Ask for answers of full length, past the model's end of answer (vLLM, Pagelight)."`
	Temperature      float64          `default:"0" placeholder:"T" group:"Prompts" help:"Temperature of the sampling; each request then has a seed of its own. Default: 0."`
	ExtraBody        string           `placeholder:"JSON" group:"Prompts" help:"Fields to add to every request: {\"top_p\": 0.9}."`
	Seed             int64            `placeholder:"N" group:"Prompts" help:"The same seed sends the same requests at the same times. Default: 0."`

	PercentileMetrics []string          `enum:"ttft,tpot,itl,e2el" default:"ttft,tpot,itl,e2el" placeholder:"NAME" group:"Results" help:"Latencies to show, of ttft, tpot, itl and e2el. Default: all."`
	MetricPercentiles []float64         `default:"90,95,99" placeholder:"P" group:"Results" help:"Percentiles of them. Default: 90,95,99."`
	Goodput           []string          `placeholder:"NAME:MS" group:"Results" help:"Count the requests that keep these limits: ttft:500,tpot:50 (also itl, a request's longest gap, and e2el)."`
	JSON              string            `name:"json" placeholder:"FILE" group:"Results" help:"Write the record: numbers, machine, command, server; - is standard output."`
	Markdown          string            `placeholder:"FILE" group:"Results" help:"Write the tables in Markdown; - is standard output."`
	SaveResult        bool              `group:"Results" help:"Write the record to a file that is named for model, load and time."`
	ResultDir         string            `default:"." placeholder:"DIR" group:"Results" help:"Folder of that file. Default: this one."`
	ResultFilename    string            `placeholder:"NAME" group:"Results" help:"Another name for it."`
	SaveDetailed      bool              `group:"Results" help:"Put every request into the record."`
	Metadata          map[string]string `mapsep:"none" placeholder:"KEY=VALUE" group:"Results" help:"Put this into the record; may be given again."`
	AllowErrors       bool              `group:"Results" help:"Exit with 0 although requests failed; they are reported all the same."`
}

// Help is shown below the flags' summary.
func (c *benchServeCmd) Help() string {
	return "TTFT is the time until the first output, ITL each gap between two outputs, TPOT a request's mean time per token after the first, " +
		"E2EL the time until the end. Clocks start before a request is written, connecting included."
}

// Run measures, prints and writes.
func (c *benchServeCmd) Run(a *app, k *kong.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	cfg, goals, err := c.config()
	if err != nil {
		return err
	}
	view := loadtest.View{Metrics: c.PercentileMetrics, Percentiles: c.MetricPercentiles}
	files, err := c.openResults(a)
	if err != nil {
		return err
	}
	defer files.discard()

	rec := &loadtest.Record{
		Tool: "pagelight bench serve", Version: version, Date: time.Now(), Command: shownCommand(k.Args), Machine: loadtest.ThisMachine(),
		Metadata: c.Metadata,
	}
	if err := describeServer(a.ctx, client, rec); err != nil {
		return err
	}
	source, notes, err := c.source(a, client, rec)
	if err != nil {
		return err
	}
	cfg.Client, cfg.Source = client, source
	line := &benchProgress{w: a.stderr}
	if isTerminal(a.stderr) {
		cfg.Progress = line.show
	}
	out, err := loadtest.Run(a.ctx, cfg)
	line.clear()
	if err != nil {
		return err
	}
	rec.Load, rec.Summary = loadtest.RecordLoad(cfg), loadtest.Summarize(out, c.MetricPercentiles, goals)
	rec.Summary.Notes = append(rec.Summary.Notes, notes...)
	if c.SaveDetailed {
		rec.Requests = loadtest.RecordRequests(out)
	}
	if err := files.write(a, c, rec, view); err != nil {
		return err
	}
	return c.verdict(a, out, rec.Summary)
}

// verdict is the error that the exit code is made of.
func (c *benchServeCmd) verdict(a *app, out *loadtest.Outcome, s *loadtest.Summary) error {
	switch {
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case c.AllowErrors:
		return nil
	case s.Failed > 0:
		return fmt.Errorf("%d of %d requests failed", s.Failed, s.Requests)
	case out.Stopped != nil:
		return out.Stopped
	case s.Requests == 0:
		return errors.New("no request was due in the time given")
	}
	return nil
}

func (c *benchServeCmd) client() (*loadtest.Client, error) {
	header := http.Header{}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, usagef("--header: %q is not NAME=VALUE", name)
		}
		header.Add(name, value)
	}
	client, err := loadtest.NewClient(loadtest.ClientOptions{
		BaseURL: c.BaseURL, Backend: loadtest.Backend(c.Backend), Endpoint: c.Endpoint, Model: c.Model, APIKey: c.APIKey, Header: header,
	})
	if err != nil {
		return nil, usageError{err}
	}
	return client, nil
}

// config checks the flags of the load.
func (c *benchServeCmd) config() (cfg loadtest.Config, goals []loadtest.Goal, err error) {
	cfg = loadtest.Config{
		Duration: c.Duration, Burstiness: c.Burstiness, Seed: uint64(c.Seed), Warmups: c.NumWarmups, RequestTimeout: c.RequestTimeout,
		TimeLimit: c.TimeLimit, MaxRetries: c.MaxRetries,
	}
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"num-prompts", c.NumPrompts != nil && *c.NumPrompts < 1},
		{"max-concurrency", c.MaxConcurrency != nil && *c.MaxConcurrency < 1},
		{"request-rate", c.RequestRate != nil && !(*c.RequestRate > 0)},
		{"burstiness", !(c.Burstiness > 0)},
		{"duration", c.Duration < 0},
		{"time-limit", c.TimeLimit < 0},
		{"request-timeout", c.RequestTimeout < 0},
		{"max-retries", c.MaxRetries < 0},
		{"num-warmups", c.NumWarmups < 0},
		{"num-prefixes", c.NumPrefixes < 1},
		{"prefix-len", c.PrefixLen < 0},
		{"prefix-share", !(c.PrefixShare >= 0 && c.PrefixShare <= 1)},
		{"temperature", !(c.Temperature >= 0)},
	} {
		if f.bad {
			return cfg, nil, usagef("bench serve: --%s is out of range", f.name)
		}
	}
	switch {
	case c.NumPrompts != nil:
		cfg.Requests = *c.NumPrompts
	case c.Duration == 0:
		cfg.Requests = 100
	}
	if c.RequestRate != nil {
		cfg.Rate = *c.RequestRate
	} else {
		cfg.Concurrency = 1
	}
	if c.MaxConcurrency != nil {
		cfg.Concurrency = *c.MaxConcurrency
	}
	if math.IsInf(cfg.Rate, 1) && cfg.Concurrency == 0 && cfg.Requests == 0 {
		return cfg, nil, usagef("bench serve: --request-rate inf needs --max-concurrency or --num-prompts")
	}
	for _, p := range c.MetricPercentiles {
		if !(p >= 0 && p <= 100) {
			return cfg, nil, usagef("--metric-percentiles: %g is not from 0 to 100", p)
		}
	}
	for _, s := range c.Goodput {
		g, err := loadtest.ParseGoal(s)
		if err != nil {
			return cfg, nil, usagef("--goodput: %w", err)
		}
		goals = append(goals, g)
	}
	cfg.Options = loadtest.RequestOptions{Temperature: &c.Temperature, IgnoreEOS: c.IgnoreEOS, Seed: uint64(c.Seed)}
	if c.ExtraBody != "" {
		if err := json.Unmarshal([]byte(c.ExtraBody), &cfg.Options.Extra); err != nil {
			return cfg, nil, usagef("--extra-body is no JSON object: %w", err)
		}
	}
	if c.RandomRangeRatio != 0 {
		for _, l := range []*loadtest.Lengths{&c.InputLen, &c.OutputLen} {
			if *l, err = l.Spread(c.RandomRangeRatio); err != nil {
				return cfg, nil, usagef("--random-range-ratio: %w", err)
			}
		}
	}
	return cfg, goals, nil
}

// describeServer finds the model and writes down what the server says of itself.
func describeServer(ctx context.Context, client *loadtest.Client, rec *loadtest.Record) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	entry, err := client.FindModel(ctx)
	if err != nil && client.Model() == "" {
		return fmt.Errorf("%w; --model may name one", err)
	}
	rec.Server = loadtest.ServerRecord{URL: client.URL(), Model: client.Model(), Entry: entry}
	// Not every server has these.
	rec.Server.Version, _ = client.GetJSON(ctx, "/version")
	rec.Server.Info, _ = client.GetJSON(ctx, "/api/info")
	return nil
}

// source makes the prompts.
func (c *benchServeCmd) source(a *app, client *loadtest.Client, rec *loadtest.Record) (loadtest.Source, []string, error) {
	rec.Prompts = loadtest.PromptRecord{Output: c.OutputLen.String(), Temperature: &c.Temperature, IgnoreEOS: c.IgnoreEOS}
	if c.DatasetPath != "" {
		rec.Prompts.From = filepath.Base(c.DatasetPath)
		in := a.stdin
		if c.DatasetPath != "-" {
			f, err := os.Open(c.DatasetPath)
			if err != nil {
				return nil, nil, usageError{err}
			}
			defer f.Close()
			in = f
		}
		d, err := loadtest.ReadDataset(in, loadtest.Backend(c.Backend), c.OutputLen, !c.DisableShuffle, uint64(c.Seed))
		if err != nil {
			return nil, nil, usagef("%s: %w", c.DatasetPath, err)
		}
		return d, nil, nil
	}
	v, err := loadtest.Calibrate(a.ctx, client, loadtest.Format(c.PromptFormat), c.RequestTimeout)
	if err != nil {
		return nil, nil, err
	}
	p := &rec.Prompts
	p.From, p.Input, p.Format = "random", c.InputLen.String(), loadtest.FormatText
	if v.IDs != nil {
		p.Format = loadtest.FormatIDs
	}
	if c.PrefixLen > 0 {
		p.PrefixTokens, p.PrefixShare, p.Prefixes = c.PrefixLen, c.PrefixShare, c.NumPrefixes
	}
	return &loadtest.Random{
		Vocabulary: v, Input: c.InputLen, Output: c.OutputLen, PrefixTokens: c.PrefixLen, PrefixShare: c.PrefixShare,
		Prefixes: c.NumPrefixes, Seed: uint64(c.Seed),
	}, v.Notes, nil
}

// shownCommand is the command line without secrets.
func shownCommand(args []string) []string {
	shown := []string{"pagelight"}
	hide := false
	for _, arg := range args {
		name, _, joined := strings.Cut(arg, "=")
		secret := name == "--api-key" || name == "--header"
		switch {
		case hide:
			arg, hide = "…", false
		case secret && joined:
			arg = name + "=…"
		case secret:
			hide = true
		}
		shown = append(shown, arg)
	}
	return shown
}
