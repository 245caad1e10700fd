package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pagelight/pagelight/internal/loadtest"
)

// benchResults are the files that a measurement is written to. They are opened before it, so that a folder that is not
// there is told at once and not after half an hour, and get their names after it, so that nothing old is lost to a
// measurement that fails.
type benchResults struct {
	json, markdown *resultFile // nil where not asked for
	saved          *resultFile
}

func (c *benchServeCmd) openResults(a *app) (r *benchResults, err error) {
	if c.JSON == "-" && c.Markdown == "-" {
		return nil, usagef("only one of --json and --markdown can be standard output")
	}
	r = &benchResults{}
	defer func() {
		if err != nil {
			r.discard()
		}
	}()
	if r.json, err = newResultFile(a, c.JSON); err != nil {
		return r, err
	}
	if r.markdown, err = newResultFile(a, c.Markdown); err != nil {
		return r, err
	}
	if c.SaveResult {
		r.saved, err = newResultFile(a, filepath.Join(c.ResultDir, "bench.json"))
	}
	return r, err
}

// write prints the tables and writes the files.
func (r *benchResults) write(a *app, c *benchServeCmd, rec *loadtest.Record, view loadtest.View) error {
	table := a.stdout
	if c.JSON == "-" || c.Markdown == "-" {
		table = a.stderr
	}
	if err := rec.WriteText(table, view); err != nil {
		return err
	}
	if err := r.json.finish(c.JSON, rec.WriteJSON); err != nil {
		return err
	}
	if err := r.markdown.finish(c.Markdown, func(w io.Writer) error { return rec.WriteMarkdown(w, view) }); err != nil {
		return err
	}
	if r.saved == nil {
		return nil
	}
	name := filepath.Join(c.ResultDir, c.resultName(rec))
	if err := r.saved.finish(name, rec.WriteJSON); err != nil {
		return err
	}
	_, err := fmt.Fprintf(table, "\nrecord: %s\n", name)
	return err
}

// resultName names the file of --save-result.
func (c *benchServeCmd) resultName(rec *loadtest.Record) string {
	if c.ResultFilename != "" {
		return c.ResultFilename
	}
	load := ""
	if rec.Load.Rate > 0 {
		load = fmt.Sprintf("-%gqps", rec.Load.Rate)
	}
	if rec.Load.Concurrency > 0 {
		load += fmt.Sprintf("-concurrency%d", rec.Load.Concurrency)
	}
	model := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:`, r) || r < ' ' {
			return '_'
		}
		return r
	}, rec.Server.Model)
	return fmt.Sprintf("%s%s-%s-%s.json", c.Backend, load, model, rec.Date.Format("20060102-150405"))
}

func (r *benchResults) discard() {
	for _, f := range []*resultFile{r.json, r.markdown, r.saved} {
		f.discard()
	}
}

// resultFile is standard output, a device, or a temporary file that becomes the result.
type resultFile struct {
	w    io.Writer
	temp *os.File
}

// newResultFile opens what name stands for; "" is nothing and gives nil.
func newResultFile(a *app, name string) (*resultFile, error) {
	switch info, err := os.Stat(name); {
	case name == "":
		return nil, nil
	case name == "-":
		return &resultFile{w: a.stdout}, nil
	case err == nil && info.IsDir():
		return nil, usagef("%s is a folder", name)
	case err == nil && !info.Mode().IsRegular(): // a pipe or a device is written to, not replaced
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, usageError{err}
		}
		return &resultFile{w: f}, nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".bench-*")
	if err != nil {
		return nil, usageError{err}
	}
	return &resultFile{w: f, temp: f}, nil
}

// finish writes the result and gives it its name.
func (f *resultFile) finish(name string, write func(io.Writer) error) error {
	if f == nil {
		return nil
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if _, err := f.w.Write(b.Bytes()); err != nil {
		return err
	}
	if f.temp == nil {
		return nil
	}
	if err := f.temp.Chmod(0o644); err != nil {
		return err
	}
	if err := f.temp.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.temp.Name(), name); err != nil {
		return err
	}
	f.temp = nil
	return nil
}

// discard removes what was not finished.
func (f *resultFile) discard() {
	if f != nil && f.temp != nil {
		f.temp.Close()
		os.Remove(f.temp.Name())
	}
}

// benchProgress is one line on a terminal.
type benchProgress struct {
	w     io.Writer
	width int
}

func (p *benchProgress) show(s loadtest.Snapshot) {
	line := benchLine(s)
	n := utf8.RuneCountInString(line)
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(0, p.width-n)))
	p.width = n
}

func (p *benchProgress) clear() {
	if p.width > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
	}
}

// benchLine says how far a measurement is. It fits into 80 columns as long as its numbers are of usual size.
func benchLine(s loadtest.Snapshot) string {
	if s.WarmingUp {
		return "warming up"
	}
	var b strings.Builder
	if s.Planned > 0 {
		const width = 20
		full := min(width, width*s.Finished/s.Planned)
		fmt.Fprintf(&b, "[%s%s] %d/%d", strings.Repeat("#", full), strings.Repeat("-", width-full), s.Finished, s.Planned)
	} else {
		fmt.Fprintf(&b, "%d done", s.Finished)
	}
	fmt.Fprintf(&b, ", %d running", s.InFlight)
	if s.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed", s.Failed)
	}
	fmt.Fprintf(&b, ", %s", s.Elapsed.Round(time.Second))
	if sec := s.Elapsed.Seconds(); sec > 0 {
		fmt.Fprintf(&b, ", %.1f tokens/s", float64(s.OutputTokens)/sec)
	}
	return b.String()
}
