package loadtest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Distribution sums up samples of a time, in milliseconds.
type Distribution struct {
	Samples     int                `json:"samples"`
	Mean        float64            `json:"mean"`
	Std         float64            `json:"std"` // of the samples themselves (divided by n)
	Min         float64            `json:"min"`
	Median      float64            `json:"median"`
	Max         float64            `json:"max"`
	Percentiles map[string]float64 `json:"percentiles"` // "p90", "p99.9"
}

// Distribute sums up samples; nil when there are none. It sorts them.
func Distribute(samples []time.Duration, percentiles []float64) *Distribution {
	if len(samples) == 0 {
		return nil
	}
	slices.Sort(samples)
	d := &Distribution{
		Samples: len(samples), Min: ms(samples[0]), Max: ms(samples[len(samples)-1]), Median: Percentile(samples, 50),
		Percentiles: map[string]float64{},
	}
	var sum float64
	for _, s := range samples {
		sum += ms(s)
	}
	d.Mean = sum / float64(len(samples))
	var squares float64
	for _, s := range samples {
		squares += (ms(s) - d.Mean) * (ms(s) - d.Mean)
	}
	d.Std = math.Sqrt(squares / float64(len(samples)))
	for _, p := range percentiles {
		d.Percentiles[PercentileName(p)] = Percentile(samples, p)
	}
	return d
}

// Percentile gives the p-th percentile, 0 to 100, of sorted samples, in milliseconds. Between two samples it interpolates
// linearly, as numpy does by default and so vLLM does.
func Percentile(sorted []time.Duration, p float64) float64 {
	at := p / 100 * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-1)
	j := min(i+1, len(sorted)-1)
	return ms(sorted[i]) + (at-float64(i))*(ms(sorted[j])-ms(sorted[i]))
}

// PercentileName is "p99" for 99.
func PercentileName(p float64) string { return "p" + strconv.FormatFloat(p, 'g', -1, 64) }

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// Goal is a service level: a measure of a request and the most that it may be.
type Goal struct {
	Metric string // "ttft", "tpot", "itl" (the longest gap of the request) or "e2el"
	Limit  time.Duration
}

// ParseGoal reads "ttft:500", in milliseconds.
func ParseGoal(s string) (Goal, error) {
	name, value, _ := strings.Cut(s, ":")
	v, err := strconv.ParseFloat(value, 64)
	if !slices.Contains(Metrics, name) || err != nil || !(v > 0 && v < 1e12) {
		return Goal{}, fmt.Errorf("%q is no goal: write ttft:MS, tpot:MS, itl:MS or e2el:MS", s)
	}
	return Goal{Metric: name, Limit: time.Duration(v * 1e6)}, nil
}

// Metrics are the names of the latencies.
var Metrics = []string{"ttft", "tpot", "itl", "e2el"}

// TTFT is the time to first token, from when the request was due.
func (r *Result) TTFT() time.Duration { return r.First - r.Scheduled }

// E2EL is the end-to-end latency, from when the request was due.
func (r *Result) E2EL() time.Duration { return r.Last - r.Scheduled }

// TPOT is the time per output token after the first; 0 where there is only one.
func (r *Result) TPOT() time.Duration {
	if n := r.OutputTokens(); n > 1 {
		return (r.Last - r.First) / time.Duration(n-1)
	}
	return 0
}

// meets says whether a request that succeeded keeps a goal.
func (r *Result) meets(g Goal) bool {
	var v time.Duration
	switch g.Metric {
	case "ttft":
		v = r.TTFT()
	case "tpot":
		v = r.TPOT()
	case "itl":
		for _, gap := range r.Gaps {
			v = max(v, gap)
		}
	case "e2el":
		v = r.E2EL()
	default:
		panic("BUG: no metric " + g.Metric)
	}
	return v <= g.Limit
}

// Faults counts the requests that failed in one way.
type Faults struct {
	Kind    string `json:"kind"`
	Count   int    `json:"count"`
	Example string `json:"example"` // message of the first
}

// Summary is what a measurement found. Latencies and throughput are of requests that succeeded.
type Summary struct {
	Seconds     float64        `json:"duration_s"`
	Requests    int            `json:"requests"`
	Succeeded   int            `json:"succeeded"`
	Failed      int            `json:"failed"`
	Errors      []Faults       `json:"errors"`
	Retries     int            `json:"retries_after_429"`
	Limited     int            `json:"answers_429"` // with those that were tried again
	Finish      map[string]int `json:"finish_reasons"`
	MaxInFlight int            `json:"max_in_flight"` // those that were due and waited for their turn count too

	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	// CachedTokens are input tokens that the server did not compute again; nil where no answer tells.
	CachedTokens *int `json:"cached_tokens,omitempty"`

	RequestRate float64  `json:"requests_per_s"`
	InputRate   float64  `json:"input_tokens_per_s"`
	OutputRate  float64  `json:"output_tokens_per_s"`
	TotalRate   float64  `json:"total_tokens_per_s"`
	Good        *int     `json:"good_requests,omitempty"` // that keep all goals; nil without goals
	GoodRate    *float64 `json:"good_requests_per_s,omitempty"`

	TTFT *Distribution `json:"ttft_ms"`
	TPOT *Distribution `json:"tpot_ms"`
	ITL  *Distribution `json:"itl_ms"`
	E2EL *Distribution `json:"e2el_ms"`
	// Of the open loop only: latencies from the sending, and how much later than due requests were sent.
	SentTTFT  *Distribution `json:"ttft_from_send_ms,omitempty"`
	SentE2EL  *Distribution `json:"e2el_from_send_ms,omitempty"`
	SendDelay *Distribution `json:"send_delay_ms,omitempty"`

	Notes []string `json:"notes,omitempty"` // what to know before trusting the numbers
}

// Summarize sums up a measurement.
func Summarize(out *Outcome, percentiles []float64, goals []Goal) *Summary {
	s := &Summary{
		Seconds: out.Duration.Seconds(), Requests: len(out.Results), MaxInFlight: out.MaxInFlight,
		Errors: []Faults{}, Finish: map[string]int{},
	}
	var ttft, tpot, itl, e2el, sentTTFT, sentE2EL, delay []time.Duration
	good, cached, tellCached, noUsage, noDone := 0, 0, false, 0, 0
	for i := range out.Results {
		r := &out.Results[i]
		delay = append(delay, r.Sent-r.Scheduled)
		s.Retries += r.Retries
		s.Limited += r.Retries
		if r.Err != nil {
			s.fail(r.Err)
			continue
		}
		s.Succeeded++
		s.Finish[r.FinishReason]++
		s.OutputTokens += r.OutputTokens()
		if r.Usage == nil {
			noUsage++
			s.InputTokens += r.Wanted.Input
		} else {
			s.InputTokens += r.Usage.PromptTokens
			if d := r.Usage.PromptTokensDetails; d != nil && d.CachedTokens != nil {
				tellCached, cached = true, cached+*d.CachedTokens
			}
		}
		if !r.Done {
			noDone++
		}
		ttft, e2el, itl = append(ttft, r.TTFT()), append(e2el, r.E2EL()), append(itl, r.Gaps...)
		sentTTFT, sentE2EL = append(sentTTFT, r.First-r.Sent), append(sentE2EL, r.Last-r.Sent)
		if r.OutputTokens() > 1 {
			tpot = append(tpot, r.TPOT())
		}
		if !slices.ContainsFunc(goals, func(g Goal) bool { return !r.meets(g) }) {
			good++
		}
	}
	slices.SortStableFunc(s.Errors, func(a, b Faults) int { return b.Count - a.Count })
	if tellCached {
		s.CachedTokens = &cached
	}
	if s.Seconds > 0 {
		s.RequestRate, s.InputRate = float64(s.Succeeded)/s.Seconds, float64(s.InputTokens)/s.Seconds
		s.OutputRate = float64(s.OutputTokens) / s.Seconds
		s.TotalRate = s.InputRate + s.OutputRate
	}
	if len(goals) > 0 {
		rate := 0.0
		if s.Seconds > 0 {
			rate = float64(good) / s.Seconds
		}
		s.Good, s.GoodRate = &good, &rate
	}
	s.TTFT, s.TPOT, s.ITL, s.E2EL = Distribute(ttft, percentiles), Distribute(tpot, percentiles), Distribute(itl, percentiles), Distribute(e2el, percentiles)
	if out.OpenLoop {
		s.SentTTFT, s.SentE2EL, s.SendDelay = Distribute(sentTTFT, percentiles), Distribute(sentE2EL, percentiles), Distribute(delay, percentiles)
	}
	s.note(noUsage > 0, "%d answers came without usage: their prompts count as asked for, their output by chunks", noUsage)
	s.note(noDone > 0, "%d streams ended without [DONE]", noDone)
	s.note(out.Stopped != nil, "the measurement was ended early: %v", out.Stopped)
	return s
}

func (s *Summary) note(when bool, format string, args ...any) {
	if when {
		s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
	}
}

func (s *Summary) fail(f *Fault) {
	s.Failed++
	if f.Status == 429 {
		s.Limited++
	}
	for i := range s.Errors {
		if s.Errors[i].Kind == f.Kind {
			s.Errors[i].Count++
			return
		}
	}
	s.Errors = append(s.Errors, Faults{Kind: f.Kind, Count: 1, Example: f.Message})
}
