// Package jinja renders Jinja templates as Hugging Face transformers does
// for chat templates (jinja2's ImmutableSandboxedEnvironment with
// trim_blocks, lstrip_blocks, the loopcontrols extension, the generation
// tag, and transformers' tojson, raise_exception and strftime_now), inside
// limits that hold for hostile templates: steps, memory, depth, output, time.
//
// It owns the language. It must not know of messages or models, and reads
// no files: include, import and extends are refused.
//
// The grammar and the semantics follow jinja2 3.1 (lexer.py, parser.py,
// filters.py, runtime.py, sandbox.py). What is not supported is refused by
// name when it is parsed or reached; nothing is skipped in silence.
package jinja

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxSource is the largest template that Compile accepts, in bytes.
const MaxSource = 256 << 10

// Template is a compiled template. It never changes, so any number of
// goroutines may render it.
type Template struct{ body []node }

// Compile parses a template. The error names the line.
func Compile(source string) (*Template, error) {
	if len(source) > MaxSource {
		return nil, limitf("the template has %d bytes, more than %d", len(source), MaxSource)
	}
	if !utf8.ValidString(source) {
		return nil, fmt.Errorf("the template is not valid UTF-8")
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, _, err := p.body()
	if err != nil {
		return nil, err
	}
	return &Template{body}, nil
}

// Var is one variable that a template is rendered with.
type Var struct {
	Name  string
	Value any // see FromGo
}

// RaisedError is the error of a template that called raise_exception.
type RaisedError struct{ Message string }

// Error is the message without control characters, for it comes from a file and goes to terminals.
func (e *RaisedError) Error() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, e.Message)
}

// run is the state of one rendering.
type run struct {
	budget
	now   time.Time
	scope *scope
	out   *strings.Builder
	// captured is the text that captureExpr stands for.
	captured string
}

// scope holds the variables of one block; lookups go on in its parents.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func (s *scope) set(name string, v Value) {
	if s.vars == nil {
		s.vars = make(map[string]Value, 4)
	}
	s.vars[name] = v
}

// Render renders the template. now is what strftime_now tells. Errors are
// *RaisedError, *LimitError, those of ctx, or say what went wrong in the
// words of jinja2, all wrapped with the line where one is known.
func (t *Template) Render(ctx context.Context, vars []Var, now time.Time, limits Limits) (string, error) {
	r := &run{
		budget: budget{
			limits: limits, steps: limits.Steps, memory: limits.Memory,
			deadline: time.Now().Add(limits.Time), ctx: ctx,
		},
		now: now, out: &strings.Builder{},
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	r.scope = &scope{parent: globals}
	for _, v := range vars {
		value, err := r.fromGo(v.Value, 0)
		if err != nil {
			return "", fmt.Errorf("variable %s: %w", v.Name, err)
		}
		r.scope.set(v.Name, value)
	}
	if _, err := r.exec(t.body); err != nil {
		return "", err
	}
	return r.out.String(), nil
}
