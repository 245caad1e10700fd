package jinja

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"
)

// cases.json is written by testdata/generate.py with the real jinja2.
type casesFile struct {
	Data  json.RawMessage `json:"data"`
	Now   string          `json:"now"`
	Cases []struct {
		Template string  `json:"template"`
		Want     *string `json:"want"`
		Error    string  `json:"error"`
	} `json:"cases"`
	Models []struct {
		Model string  `json:"model"`
		Data  string  `json:"data"`
		Want  *string `json:"want"`
		Error string  `json:"error"`
	} `json:"models"`
}

func loadCases(t testing.TB) (f casesFile, now time.Time) {
	t.Helper()
	readJSON(t, "testdata/cases.json", &f)
	now, err := time.Parse("2006-01-02T15:04:05", f.Now)
	if err != nil {
		t.Fatal(err)
	}
	return f, now
}

func readJSON(t testing.TB, path string, to any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

// varsOf makes variables of the members of a JSON object.
func varsOf(t testing.TB, raw json.RawMessage) []Var {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	var vars []Var
	for name, v := range members {
		vars = append(vars, Var{name, v})
	}
	return vars
}

func render(source string, vars []Var, now time.Time) (string, error) {
	t, err := Compile(source)
	if err != nil {
		return "", err
	}
	return t.Render(context.Background(), vars, now, DefaultLimits)
}

func TestConstructsAgreeWithJinja2(t *testing.T) {
	t.Parallel()
	f, now := loadCases(t)
	if len(f.Cases) < 200 {
		t.Fatalf("only %d cases", len(f.Cases))
	}
	vars := varsOf(t, f.Data)
	for _, c := range f.Cases {
		got, err := render(c.Template, vars, now)
		switch {
		case c.Want == nil && err == nil:
			t.Errorf("%q:\n got %q\nwant the error %s", c.Template, got, c.Error)
		case c.Want != nil && err != nil:
			t.Errorf("%q:\n got the error %v\nwant %q", c.Template, err, *c.Want)
		case c.Want != nil && got != *c.Want:
			t.Errorf("%q:\n got %q\nwant %q", c.Template, got, *c.Want)
		}
	}
}

func TestWholeTemplatesAgreeWithJinja2(t *testing.T) {
	t.Parallel()
	f, now := loadCases(t)
	var models struct {
		Templates []struct {
			Name  string
			Lines []string
		}
		Data map[string]json.RawMessage
	}
	readJSON(t, "testdata/models.json", &models)
	sources := map[string]string{}
	for _, m := range models.Templates {
		for i, line := range m.Lines {
			if i > 0 {
				sources[m.Name] += "\n"
			}
			sources[m.Name] += line
		}
	}
	if len(f.Models) != len(models.Templates)*len(models.Data) {
		t.Fatalf("%d renderings of %d templates and %d conversations: run testdata/generate.py", len(f.Models), len(models.Templates), len(models.Data))
	}
	for _, c := range f.Models {
		got, err := render(sources[c.Model], varsOf(t, models.Data[c.Data]), now)
		switch {
		case c.Want == nil && err == nil:
			t.Errorf("%s, %s:\n got %q\nwant the error %s", c.Model, c.Data, got, c.Error)
		case c.Want != nil && (err != nil || got != *c.Want):
			t.Errorf("%s, %s:\n got %q, %v\nwant %q", c.Model, c.Data, got, err, *c.Want)
		}
	}
}

func TestErrorsSayWhatAndWhere(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"a\n{{ x.y }}":                        `line 2: "x" is undefined`,
		"{% if a %}\n{{ 1 + 'a' }}":           `line 2: end of template, but a tag is open that needs [elif else endif]`,
		"\n\n{{ 'a' | nope }}":                `line 3: no filter named "nope"`,
		"{{ 'a' | striptags }}":               `line 1: the filter "striptags" is not supported`,
		"{% import 'x' as y %}":               `line 1: import is not supported: a chat template is one file`,
		"{{ raise_exception('sorry') }}":      `line 1: sorry`,
		"{{ 9223372036854775807 + 1 }}":       `line 1: integer overflow: only 64-bit integers are supported`,
		"{{ ''.encode('utf-8') }}":            `line 1: 'str object' has no attribute "encode"`,
		"{% for a, b in [[1]] %}{% endfor %}": `not enough values to unpack (expected 2, got 1)`,
		"\xff":                                `the template is not valid UTF-8`,
	} {
		_, err := render(source, []Var{{"a", true}}, time.Time{})
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", source, err, want)
		}
	}
	_, err := render("{{ raise_exception('sorry') }}", nil, time.Time{})
	if raised := (*RaisedError)(nil); !errors.As(err, &raised) || raised.Message != "sorry" {
		t.Errorf("got %v, want a RaisedError", err)
	}
	if got := (&RaisedError{"no\x1b[31m\nway"}).Error(); got != "no\uFFFD[31m\nway" {
		t.Errorf("got %q", got)
	}
}
