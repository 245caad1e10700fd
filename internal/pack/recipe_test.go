package pack

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// golden opens a tiny random checkpoint: 2 layers.
func golden(t *testing.T, name string) weights.Source {
	t.Helper()
	src, err := weights.OpenDir(filepath.Join("../model/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

func TestParseRecipe(t *testing.T) {
	t.Parallel()
	r, err := ParseRecipe([]byte(`
method: awq
tensors:
  - match: [embed_tokens]
    quant: q8
  - match: [mlp.down_proj, v_proj]
    layers: 0,2-3
    quant: q4
    group: 64
    method: gptq
  - match: ["*"]
    quant: ccq2
`))
	if err != nil {
		t.Fatal(err)
	}
	if r.Method != AWQ || len(r.Rules) != 3 || r.Rules[1].Group != 64 || r.Rules[1].Method != GPTQ {
		t.Errorf("read %+v", r)
	}
	for name, want := range map[string]int{
		"model.embed_tokens.weight":               0,
		"model.layers.0.mlp.down_proj.weight":     1,
		"model.layers.3.self_attn.v_proj.weight":  1,
		"model.layers.1.mlp.down_proj.weight":     2,
		"model.layers.12.self_attn.v_proj.weight": 2,
		"lm_head.weight":                          2,
	} {
		if got := slices.IndexFunc(r.Rules, func(r Rule) bool { return r.matches(name) }); got != want {
			t.Errorf("%s: rule %d, want %d", name, got, want)
		}
	}
}

// Every mistake is named, with what would be right.
func TestRecipeErrors(t *testing.T) {
	t.Parallel()
	rule := func(lines string) string {
		return "tensors:\n- match: [a]\n  " + strings.ReplaceAll(lines, "\n", "\n  ")
	}
	for _, c := range []struct {
		text  string
		words []string
	}{
		{"", []string{"empty"}},
		{"tensors: []", []string{"no rules"}},
		{"method: best\n" + rule("quant: q4"), []string{"best", "gptq"}},
		{rule("quant: q5"), []string{"rule 1 (a)", "q5", "ccq2.75"}},
		{rule("quant: q4\nbits: 4"), []string{"line 4", "bits"}},
		{"extra: 1\n" + rule("quant: q4"), []string{"extra"}},
		{rule("quant: q4\ngroup: 24"), []string{"24", "8, 16, 32, 64 or 128"}},
		{rule("quant: ccq2\ngroup: 32"), []string{"ccq2", "64"}},
		{rule("quant: none\ngroup: 32"), []string{"keeps its format"}},
		{rule("quant: q4\ngroup: many"), []string{"line 4", "many"}},
		{rule("quant: q4\nlayers: 3-1"), []string{"3-1"}},
		{rule("quant: q4\nlayers: x"), []string{"0-3,7"}},
		{rule("quant: q4\nmethod: magic"), []string{"magic"}},
		{"tensors:\n- quant: q4", []string{"rule 1", "match"}},
		{"tensors:\n- match: ['']\n  quant: q4", []string{"match"}},
		{rule("quant: q4") + "\n---\n" + rule("quant: q4"), []string{"more than one document"}},
		{"tensors: {", []string{"recipe"}},
		{strings.Repeat("#", 2<<20), []string{"bytes"}},
	} {
		_, err := ParseRecipe([]byte(c.text))
		if err == nil {
			t.Errorf("%.60q was accepted", c.text)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%.60q: %v; it does not say %q", c.text, err, w)
			}
		}
	}
}

func FuzzParseRecipe(f *testing.F) {
	f.Add([]byte("tensors:\n- match: [a]\n  quant: q4\n  layers: 0-3\n"))
	f.Add([]byte("method: awq\ntensors: [{match: ['*.x*'], quant: ccq2.5}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRecipe(text)
		if err != nil {
			return
		}
		for _, rule := range r.Rules {
			rule.matches("model.layers.1.mlp.down_proj.weight")
		}
	})
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "a.b", true},
		{"a*", "a.b", true},
		{"a*", "b.a", false},
		{"*b", "a.b", true},
		{"a*a", "a", false},
		{"a*b*c", "a1b2c", true},
		{"a*b*c", "acb", false},
		{"**", "", true},
	} {
		if got := glob(c.pattern, c.name); got != c.want {
			t.Errorf("%q and %q: %v", c.pattern, c.name, got)
		}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	src := golden(t, "ernie-bias-untied")
	var notes []string
	plan := func(src weights.Source, r *Recipe) map[string]Target {
		t.Helper()
		notes = nil
		targets, err := r.Plan(src, func(s string) { notes = append(notes, s) })
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]Target{}
		for _, x := range targets {
			out[x.Name] = x
		}
		return out
	}
	simple, err := Simple("q4", 0, "", "q8")
	if err != nil {
		t.Fatal(err)
	}
	got := plan(src, simple)
	if x := got["lm_head.weight"]; x.Format.Kind != quant.Q8 || x.Method != RTN {
		t.Errorf("LM head: %+v", x)
	}
	if x := got["model.layers.1.mlp.up_proj.weight"]; x.Format != (quant.Format{Kind: quant.Q4, Group: 32}) || x.Method != GPTQ {
		t.Errorf("up: %+v", x)
	}
	// What is quantized keeps its format unless the other has fewer bits.
	packed := weights.Quantized(src, weights.PolicyQ4(nil))
	if x := plan(packed, simple)["model.layers.1.mlp.up_proj.weight"]; !x.Kept() || len(notes) == 0 {
		t.Errorf("a matrix of 4 bits: %+v, notes %q", x, notes)
	}
	smaller, err := Simple("q2", 32, RTN, "none")
	if err != nil {
		t.Fatal(err)
	}
	if x := plan(packed, smaller)["model.layers.1.mlp.up_proj.weight"]; x.Format.Kind != quant.Q2 {
		t.Errorf("from 4 bits to 2: %+v, notes %q", x, notes)
	}
	// A rule that never counts is told of, and one that does not fit is refused by name.
	none := &Recipe{Rules: []Rule{{Match: []string{"*"}, Quant: "none"}, {Match: []string{"up_proj"}, Quant: "q4"}}}
	if x := plan(src, none)["model.layers.1.mlp.up_proj.weight"]; !x.Kept() || len(notes) != 1 || !strings.Contains(notes[0], "rule 2 (up_proj)") {
		t.Errorf("%+v, notes %q", x, notes)
	}
	odd := oddSource{src}
	if _, err := (&Recipe{Rules: []Rule{{Match: []string{"up_proj"}, Quant: "ccq2"}}}).Plan(odd, nil); err == nil || !strings.Contains(err.Error(), "up_proj") {
		t.Errorf("rows of 72 as ccq2: %v", err)
	}
	if _, err := Simple("q4", 7, "", ""); err == nil {
		t.Error("groups of 7 were accepted")
	}
}

// oddSource has rows that are no whole groups of 64.
type oddSource struct{ weights.Source }

func (o oddSource) Config() *weights.Config {
	c := *o.Source.Config()
	c.HiddenSize = 72
	return &c
}

func (o oddSource) Info(name string) (weights.Info, error) {
	for _, s := range weights.Tensors(o.Config()) {
		if s.Name == name {
			return weights.Info{Rows: s.Rows, K: s.K, Format: quant.Format{Kind: quant.BF16}}, nil
		}
	}
	return o.Source.Info(name)
}

func (o oddSource) Rows(context.Context, string, int, int) (weights.Rows, error) {
	panic("a plan reads no weights")
}
