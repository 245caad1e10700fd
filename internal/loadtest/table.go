package loadtest

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// View says what of a summary is shown.
type View struct {
	Metrics     []string // of Metrics, in this order
	Percentiles []float64
}

// row is one line of the table of latencies.
type row struct {
	name string
	d    *Distribution
}

func (v *View) rows(s *Summary) []row {
	names := map[string][]row{
		"ttft": {{"TTFT, time to first token", s.TTFT}, {"TTFT from sending", s.SentTTFT}},
		"tpot": {{"TPOT, time per output token", s.TPOT}},
		"itl":  {{"ITL, gap between tokens", s.ITL}},
		"e2el": {{"E2EL, whole request", s.E2EL}, {"E2EL from sending", s.SentE2EL}},
	}
	if s.SentTTFT != nil {
		names["ttft"][0].name, names["e2el"][0].name = "TTFT from when due", "E2EL from when due"
	}
	var rows []row
	for _, m := range v.Metrics {
		rows = append(rows, names[m]...)
	}
	rows = append(rows, row{"sent later than due", s.SendDelay})
	return slices.DeleteFunc(rows, func(r row) bool { return r.d == nil })
}

func (v *View) heads() []string {
	heads := []string{"mean", "median"}
	for _, p := range v.Percentiles {
		heads = append(heads, PercentileName(p))
	}
	return append(heads, "max", "samples")
}

func (v *View) cells(d *Distribution) []string {
	values := []float64{d.Mean, d.Median}
	for _, p := range v.Percentiles {
		values = append(values, d.Percentiles[PercentileName(p)])
	}
	var cells []string
	for _, x := range append(values, d.Max) {
		cells = append(cells, strconv.FormatFloat(x, 'f', decimals(x), 64))
	}
	return append(cells, strconv.Itoa(d.Samples))
}

// decimals gives small numbers more digits.
func decimals(x float64) int {
	switch {
	case x >= 1000:
		return 0
	case x >= 100:
		return 1
	case x >= 1:
		return 2
	}
	return 3
}

// facts are the lines above the table: names and values.
func (r *Record) facts() [][2]string {
	s := r.Summary
	f := [][2]string{
		{"server", fmt.Sprintf("%s, model %s", r.Server.URL, r.Server.Model)},
		{"load", r.Load.String()},
		{"prompts", r.Prompts.String()},
		{"requests", fmt.Sprintf("%d succeeded, %d failed, in %.2f s; at most %d at once", s.Succeeded, s.Failed, s.Seconds, s.MaxInFlight)},
		{"throughput", fmt.Sprintf("%.3g requests/s; tokens/s: %.1f output, %.1f input, %.1f total", s.RequestRate, s.OutputRate, s.InputRate, s.TotalRate)},
		{"tokens", r.tokens()},
	}
	if s.Good != nil {
		f = append(f, [2]string{"goodput", fmt.Sprintf("%.3g requests/s: %d of %d keep every goal", *s.GoodRate, *s.Good, s.Requests)})
	}
	if s.Limited > 0 {
		f = append(f, [2]string{"429", fmt.Sprintf("%d answers, %d tried again", s.Limited, s.Retries)})
	}
	return f
}

func (r *Record) tokens() string {
	s := r.Summary
	mean := func(n int) float64 { return float64(n) / float64(max(1, s.Succeeded)) }
	text := fmt.Sprintf("%d input (%.1f a request), %d output (%.1f a request)", s.InputTokens, mean(s.InputTokens), s.OutputTokens, mean(s.OutputTokens))
	if s.CachedTokens != nil {
		text += fmt.Sprintf(", %d cached (%.1f %% of input)", *s.CachedTokens, 100*float64(*s.CachedTokens)/float64(max(1, s.InputTokens)))
	}
	return text
}

// String says in words when requests were sent.
func (l LoadRecord) String() string {
	var b strings.Builder
	if l.Loop == "open" {
		fmt.Fprintf(&b, "open loop, %g requests/s", l.Rate)
		if l.Burstiness == 1 {
			b.WriteString(" (Poisson)")
		} else {
			fmt.Fprintf(&b, " (burstiness %g)", l.Burstiness)
		}
		if l.Concurrency > 0 {
			fmt.Fprintf(&b, ", at most %d at a time", l.Concurrency)
		}
	} else {
		b.WriteString("closed loop, ")
		if l.Concurrency > 0 {
			fmt.Fprintf(&b, "%d at a time", l.Concurrency)
		} else {
			b.WriteString("all at once")
		}
	}
	if l.Requests > 0 {
		fmt.Fprintf(&b, ", %d requests", l.Requests)
	}
	if l.Duration > 0 {
		fmt.Fprintf(&b, ", for %s", time.Duration(l.Duration*1e9))
	}
	if l.Warmups > 0 {
		fmt.Fprintf(&b, "; before them %d to warm up", l.Warmups)
	}
	return b.String()
}

// String says in words what requests asked.
func (p PromptRecord) String() string {
	var b strings.Builder
	b.WriteString(p.From)
	switch p.Format {
	case FormatIDs:
		b.WriteString(" token ids")
	case FormatText:
		b.WriteString(" words")
	}
	if p.Input != "" {
		fmt.Fprintf(&b, ", %s tokens", p.Input)
	}
	if p.PrefixTokens > 0 {
		fmt.Fprintf(&b, " after a prefix of %d (%.3g %% of requests share %d)", p.PrefixTokens, 100*p.PrefixShare, p.Prefixes)
	}
	fmt.Fprintf(&b, "; answers of at most %s tokens", p.Output)
	if p.IgnoreEOS {
		b.WriteString(", past their end")
	}
	return b.String()
}

// WriteText writes a record for a terminal.
func (r *Record) WriteText(w io.Writer, v View) error {
	var b strings.Builder
	for _, f := range r.facts() {
		fmt.Fprintf(&b, "%-11s %s\n", f[0], f[1])
	}
	if rows := v.rows(r.Summary); len(rows) > 0 {
		var table strings.Builder
		t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
		width := len("latency, ms")
		for _, row := range rows {
			width = max(width, len(row.name))
		}
		fmt.Fprintf(t, "%-*s\t%s\t\n", width, "latency, ms", strings.Join(v.heads(), "\t"))
		for _, row := range rows {
			fmt.Fprintf(t, "%-*s\t%s\t\n", width, row.name, strings.Join(v.cells(row.d), "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		// The writer pads the first column too, which needs no room before it.
		b.WriteString(strings.ReplaceAll("\n"+table.String(), "\n  ", "\n"))
	}
	if len(r.Summary.Errors) > 0 {
		b.WriteString("\nerrors\n")
		for _, e := range r.Summary.Errors {
			fmt.Fprintf(&b, "  %-11s %6d  %s\n", e.Kind, e.Count, e.Example)
		}
	}
	for _, n := range r.Summary.Notes {
		fmt.Fprintf(&b, "\nnote: %s", n)
	}
	if len(r.Summary.Notes) > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes a record for a document.
func (r *Record) WriteMarkdown(w io.Writer, v View) error {
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for _, f := range r.facts() {
		fmt.Fprintf(&b, "| %s | %s |\n", f[0], cell(f[1]))
	}
	m := r.Machine
	fmt.Fprintf(&b, "| client | %s |\n", cell(fmt.Sprintf("%s, %d cores, %s/%s, %s, pagelight %s", orUnknown(m.CPU), m.Cores, m.OS, m.Arch, m.Go, r.Version)))
	fmt.Fprintf(&b, "| date | %s |\n", r.Date.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "| command | %s |\n", cell("`"+strings.Join(r.Command, " ")+"`"))
	if rows := v.rows(r.Summary); len(rows) > 0 {
		heads := v.heads()
		fmt.Fprintf(&b, "\n| latency, ms | %s |\n|---|%s\n", strings.Join(heads, " | "), strings.Repeat("---:|", len(heads)))
		for _, row := range rows {
			fmt.Fprintf(&b, "| %s | %s |\n", row.name, strings.Join(v.cells(row.d), " | "))
		}
	}
	if len(r.Summary.Errors) > 0 {
		b.WriteString("\n| error | requests | example |\n|---|---:|---|\n")
		for _, e := range r.Summary.Errors {
			fmt.Fprintf(&b, "| %s | %d | %s |\n", e.Kind, e.Count, cell(e.Example))
		}
	}
	for _, n := range r.Summary.Notes {
		fmt.Fprintf(&b, "\nNote: %s.\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell makes a text fit for a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func orUnknown(s string) string {
	if s == "" {
		return "processor not known"
	}
	return s
}
