package loadtest

import (
	"encoding/json"
	"io"
	"time"
)

// Record is a measurement with all that is needed to do it again.
type Record struct {
	Tool     string            `json:"tool"` // "pagelight bench serve"
	Version  string            `json:"version"`
	Date     time.Time         `json:"date"`
	Command  []string          `json:"command"` // without secrets
	Machine  Machine           `json:"machine"`
	Server   ServerRecord      `json:"server"`
	Load     LoadRecord        `json:"load"`
	Prompts  PromptRecord      `json:"prompts"`
	Summary  *Summary          `json:"summary"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Requests []RequestRecord   `json:"requests,omitempty"`
}

// ServerRecord is what was measured, in the server's own words.
type ServerRecord struct {
	URL     string          `json:"url"` // of the endpoint
	Model   string          `json:"model"`
	Entry   json.RawMessage `json:"model_entry,omitempty"` // of /v1/models
	Version json.RawMessage `json:"version,omitempty"`     // /version
	Info    json.RawMessage `json:"info,omitempty"`        // /api/info, before the measurement
}

// LoadRecord is when requests were sent.
type LoadRecord struct {
	Loop           string  `json:"loop"` // "closed" or "open"
	Requests       int     `json:"requests,omitempty"`
	Concurrency    int     `json:"max_concurrency,omitempty"`
	Rate           float64 `json:"request_rate_per_s,omitempty"`
	Burstiness     float64 `json:"burstiness,omitempty"`
	Duration       float64 `json:"duration_s,omitempty"`
	TimeLimit      float64 `json:"time_limit_s,omitempty"`
	RequestTimeout float64 `json:"request_timeout_s,omitempty"`
	Warmups        int     `json:"warmups"`
	MaxRetries     int     `json:"max_retries"`
	Seed           uint64  `json:"seed"`
}

// PromptRecord is what requests asked. Lengths are in tokens.
type PromptRecord struct {
	From         string   `json:"from"` // "random" or the name of the dataset
	Format       Format   `json:"format,omitempty"`
	Input        string   `json:"input_tokens,omitempty"`
	Output       string   `json:"output_tokens"`
	PrefixTokens int      `json:"prefix_tokens,omitempty"`
	PrefixShare  float64  `json:"prefix_share,omitempty"`
	Prefixes     int      `json:"prefixes,omitempty"`
	Temperature  *float64 `json:"temperature,omitempty"`
	IgnoreEOS    bool     `json:"ignore_eos"`
}

// RequestRecord is one request. Times are in milliseconds since the start of the measurement.
type RequestRecord struct {
	Index        int       `json:"index"`
	Scheduled    float64   `json:"scheduled_ms"`
	Sent         float64   `json:"sent_ms"`
	First        float64   `json:"first_ms,omitempty"`
	Last         float64   `json:"last_ms,omitempty"`
	End          float64   `json:"end_ms"`
	Gaps         []float64 `json:"itl_ms,omitempty"`
	InputTokens  int       `json:"input_tokens"`
	OutputTokens int       `json:"output_tokens"`
	CachedTokens int       `json:"cached_tokens,omitempty"`
	Finish       string    `json:"finish_reason,omitempty"`
	Retries      int       `json:"retries,omitempty"`
	Error        string    `json:"error,omitempty"`
}

// RecordLoad writes a configuration down.
func RecordLoad(cfg Config) LoadRecord {
	l := LoadRecord{
		Loop: "closed", Requests: cfg.Requests, Concurrency: cfg.Concurrency, Duration: cfg.Duration.Seconds(), TimeLimit: cfg.TimeLimit.Seconds(),
		RequestTimeout: cfg.RequestTimeout.Seconds(), Warmups: cfg.Warmups, MaxRetries: cfg.MaxRetries, Seed: cfg.Seed,
	}
	if cfg.openLoop() {
		l.Loop, l.Rate, l.Burstiness = "open", cfg.Rate, cfg.Burstiness
	}
	return l
}

// RecordRequests writes every request down.
func RecordRequests(out *Outcome) []RequestRecord {
	records := make([]RequestRecord, len(out.Results))
	for i := range out.Results {
		r := &out.Results[i]
		q := RequestRecord{
			Index: r.Index, Scheduled: ms(r.Scheduled), Sent: ms(r.Sent), First: ms(r.First), Last: ms(r.Last), End: ms(r.End),
			InputTokens: r.Wanted.Input, OutputTokens: r.OutputTokens(), Finish: r.FinishReason, Retries: r.Retries,
		}
		for _, g := range r.Gaps {
			q.Gaps = append(q.Gaps, ms(g))
		}
		if r.Usage != nil {
			q.InputTokens = r.Usage.PromptTokens
			if d := r.Usage.PromptTokensDetails; d != nil && d.CachedTokens != nil {
				q.CachedTokens = *d.CachedTokens
			}
		}
		if r.Err != nil {
			q.Error = r.Err.Error()
		}
		records[i] = q
	}
	return records
}

// WriteJSON writes a record as an indented JSON object.
func (r *Record) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
