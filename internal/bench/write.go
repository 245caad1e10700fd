package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteCSV writes a line for each test. A run whose answers are wrong has none.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	rows := [][]string{{
		"version", "date", "adapter", "backend", "model", "params", "weights", "weight_bytes", "kv", "check", "test", "kind", "n_prompt", "n_gen",
		"n_depth", "batch", "median_ts", "sd_ts", "min_ts", "max_ts", "latency_ms",
	}}
	for i := range r.Runs {
		run := &r.Runs[i]
		for _, t := range run.Tests {
			row := []string{
				r.Version, r.Date.UTC().Format("2006-01-02T15:04:05Z"), r.Adapter.Name, r.Adapter.Backend, run.Model.Name,
				strconv.FormatInt(run.Model.Parameters, 10), run.Model.Weights, strconv.FormatInt(run.Model.WeightBytes, 10), run.KV,
				run.Check.Verdict, t.Name, t.Kind,
			}
			for _, n := range []int{t.Prompt, t.Gen, t.Depth, t.Batch} {
				row = append(row, strconv.Itoa(n))
			}
			for _, v := range []float64{t.Speed.Median, t.Speed.SD, t.Speed.Min, t.Speed.Max, t.LatencyMS} {
				row = append(row, strconv.FormatFloat(v, 'f', 3, 64))
			}
			rows = append(rows, row)
		}
	}
	return c.WriteAll(rows)
}

// WriteMarkdown writes tables for people: one in llama-bench's shape, then the check and where the time goes.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	table(&b, "model|size|params|backend|kv|test|t/s:|min..max:|ms:")
	for i := range r.Runs {
		run := &r.Runs[i]
		for _, t := range run.Tests {
			row(&b, run.Model.Name+" "+run.Model.Weights, mib(run.Model.WeightBytes), millions(run.Model.Parameters), r.Adapter.Backend, run.KV, t.Name,
				fmt.Sprintf("%s ± %s", speed(t.Speed.Median), speed(t.Speed.SD)), speed(t.Speed.Min)+".."+speed(t.Speed.Max),
				strconv.FormatFloat(t.LatencyMS, 'f', 3, 64))
		}
	}
	fmt.Fprintf(&b, "\nt/s: median of %d runs ± standard deviation. ms: until the first token of a prompt (pp), else the time of a step.\n", r.Options.Repetitions)
	fmt.Fprintf(&b, "\n%s\n", r.line())
	for i := range r.Runs {
		r.Runs[i].markdown(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line says where and with what.
func (r *Report) line() string {
	parts := []string{"adapter " + r.Adapter.Name, "backend " + r.Adapter.Backend + " by " + r.Adapter.Driver}
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("GPU driver %s", r.Machine.GPUDriver)
	add("%s", r.Machine.CPU)
	if r.Machine.Cores > 0 {
		parts = append(parts, fmt.Sprintf("%d cores", r.Machine.Cores))
	}
	add("browser %s", r.Machine.Browser)
	parts = append(parts, "version "+r.Version)
	add("commit %s", r.Commit)
	if r.Device.CopyGBps > 0 {
		parts = append(parts, fmt.Sprintf("memory %.0f GB/s", r.Device.CopyGBps))
	}
	if r.Device.DispatchUS > 0 {
		parts = append(parts, fmt.Sprintf("a dispatch %.2f us, one with its read-back %.0f us", r.Device.DispatchUS, r.Device.SubmitUS))
	}
	add("not measured: %s", r.Device.Note)
	return strings.Join(parts, "; ") + "."
}

func (run *Run) markdown(b *strings.Builder) {
	c := &run.Check
	fmt.Fprintf(b, "\n## KV %s: answers %s\n\n", run.KV, c.Verdict)
	switch {
	case c.KnownAnswer:
		fmt.Fprintf(b, "Known answers (%s), compared up to the first margin below %g.\n", c.Source, c.LeastMargin)
	case c.Source != "":
		fmt.Fprintf(b, "%s; compared up to the first margin below %g.\n", upper(c.Source), c.LeastMargin)
	}
	if c.Verdict == Approximate {
		b.WriteString("This cache is approximate: it is judged by perplexity (docs/quality.md), and other tokens are no fault.\n")
	}
	for _, n := range run.Notes {
		fmt.Fprintf(b, "Note: %s.\n", n)
	}
	b.WriteByte('\n')
	table(b, "setting|case|prompt:|answers:|tokens compared:|wrong:")
	for _, k := range c.Cases {
		wrong := strconv.Itoa(k.Wrong)
		if k.Wrong > 0 {
			wrong += fmt.Sprintf(" (token %d is %d, want %d)", k.At, k.Got, k.Want)
			if k.Want < 0 {
				wrong = fmt.Sprintf("%d (token %d is %d, not the best one)", k.Wrong, k.At, k.Got)
			}
		}
		row(b, k.Setting, k.Case, strconv.Itoa(k.Prompt), strconv.Itoa(k.Answers), strconv.Itoa(k.Compared), wrong)
	}
	if len(run.Tests) > 0 {
		b.WriteString("\n### A step as the host sees it (pp: a whole prompt)\n\n")
		table(b, "test|us:|encode:|wait, read back:|else:|dispatches:|submits:|read-backs:|bytes read:")
		for _, t := range run.Tests {
			if s := t.Stages; s != nil {
				row(b, t.Name, fmt.Sprintf("%.1f", s.EncodeUS+s.WaitUS+s.HostUS), fmt.Sprintf("%.1f", s.EncodeUS), fmt.Sprintf("%.1f", s.WaitUS), fmt.Sprintf("%.1f", s.HostUS),
					fmt.Sprintf("%.1f", s.Dispatches), fmt.Sprintf("%.3f", s.Submits), fmt.Sprintf("%.3f", s.ReadBacks), fmt.Sprintf("%.0f", s.BytesRead))
			}
		}
	}
	if t := run.Token; t != nil {
		fmt.Fprintf(b, "\n### Where each microsecond of a token goes (%s)\n\n", t.Test)
		table(b, "what|us:|how")
		for _, p := range t.Parts {
			row(b, p.Name, fmt.Sprintf("%.1f", p.US), p.Note)
		}
		row(b, "all", fmt.Sprintf("%.1f", t.US), "")
		fmt.Fprintf(b, "\nRoofline: %.1f MB a token take %.1f us at that speed of memory, %d dispatches %.1f us; the larger is %.0f %% of the time.\n",
			float64(t.Bytes)/1e6, t.BytesUS, t.Dispatches, t.DispatchUS, 100*t.Roofline)
	}
	for _, p := range run.Profiles {
		p.markdown(b)
	}
}

func (p *Profile) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### Kernels: %s\n\n", p.Step)
	if p.Note != "" {
		dispatches := 0
		for _, k := range p.Kernels {
			dispatches += k.Count
		}
		fmt.Fprintf(b, "The step by itself takes %.1f us in %d dispatches. No times of kernels: %s.\n", p.StepUS, dispatches, p.Note)
		return
	}
	table(b, "kernel|dispatches:|us each:|us a step:|us a token:|MB:|GB/s:")
	for _, k := range p.Kernels {
		row(b, k.Name, strconv.Itoa(k.Count), fmt.Sprintf("%.2f", k.EachUS), fmt.Sprintf("%.1f", k.StepUS), fmt.Sprintf("%.2f", k.StepUS/float64(p.Rows)),
			fmt.Sprintf("%.2f", float64(k.Bytes)/1e6), fmt.Sprintf("%.0f", k.GBps))
	}
	fmt.Fprintf(b, "\nThe step by itself takes %.1f us, its kernels one by one %.1f us, without the %.1f us that a pass of its own adds to each dispatch.\n", p.StepUS, p.SumUS, p.PassUS)
}

// table writes the head of a table; columns whose names end with a colon are set to the right.
func table(b *strings.Builder, names string) {
	cols, rule := strings.Split(names, "|"), ""
	for i, c := range cols {
		name, right := strings.CutSuffix(c, ":")
		cols[i] = name
		if rule += "| ---"; right {
			rule += ":"
		}
		rule += " "
	}
	row(b, cols...)
	b.WriteString(rule + "|\n")
}

func row(b *strings.Builder, cells ...string) {
	for _, c := range cells {
		b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}

func speed(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func mib(n int64) string      { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
func millions(n int64) string { return fmt.Sprintf("%.2f M", float64(n)/1e6) }

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
