package pack

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/pagelight/pagelight/internal/calibrate"
)

// The analysis covers every linear layer, keeps to its bits, and prints a recipe that gives just what it chose.
func TestAnalyze(t *testing.T) {
	t.Parallel()
	src := golden(t, "llama")
	o := options(t, src, "", GPTQ)
	for i := range 3 {
		o.Windows = append(o.Windows, o.Windows[i])
	}
	o.Recipe = nil
	const target = 4
	got, err := Analyze(context.Background(), o, "q2", target)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Classes) != 7 || len(got.Choices) != 14 || got.Tokens == 0 || !(got.Base > 0) || math.IsNaN(got.All) {
		t.Errorf("%+v", got)
	}
	if got.Bits > target || got.Bits < target-0.5 {
		t.Errorf("%v bits were chosen of %v", got.Bits, target)
	}
	r, err := ParseRecipe([]byte(got.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, got)
	}
	plan, err := r.Plan(src, func(note string) {
		if !strings.Contains(note, "embed_tokens") {
			t.Error(note)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	formats := map[string]string{}
	sum, n := int64(0), int64(0)
	for _, x := range plan {
		formats[x.Name] = x.Format.String()
		if isLinear(x.Name) {
			sum, n = sum+bits(x.Format, x.Rows, x.K), n+int64(x.Rows)*int64(x.K)
		}
	}
	for _, c := range got.Choices {
		if formats[c.Name] != c.Format.String() {
			t.Errorf("%s: the recipe makes it %s, chosen was %v", c.Name, formats[c.Name], c.Format)
		}
	}
	if b := float64(sum) / float64(n); math.Abs(b-got.Bits) > 1e-9 {
		t.Errorf("the recipe has %v bits, chosen were %v", b, got.Bits)
	}
	if _, err := Analyze(context.Background(), Options{Source: src}, "q2", 3); !errors.Is(err, calibrate.ErrText) {
		t.Errorf("without text: %v", err)
	}
}

// Bits go where they save the most: to a class that hurts, and within it to the matrix with the larger error.
func TestChoose(t *testing.T) {
	t.Parallel()
	p := &packer{total: 4000}
	a := &analyzer{packer: p, target: 3, errs: map[string][]option{}}
	add := func(name string, low, high float64) {
		x := Target{Name: name, Rows: 10, K: 100}
		p.order = append(p.order, x)
		a.errs[name] = []option{{Choice{x, "q2", 64}, 2000, low}, {Choice{x, "q4", 64}, 4000, high}}
	}
	add("model.layers.0.mlp.up_proj.weight", 1, 0.1)
	add("model.layers.1.mlp.up_proj.weight", 3, 0.3)
	add("model.layers.0.mlp.down_proj.weight", 1, 0.1)
	add("model.layers.1.mlp.down_proj.weight", 1, 0.1)
	out := &Analysis{All: 1, Classes: []Class{{"mlp.up_proj", 2000, 0.9}, {"mlp.down_proj", 2000, 0.4}}}
	a.choose(out)
	want := map[string]string{
		"model.layers.0.mlp.up_proj.weight": "q4", "model.layers.1.mlp.up_proj.weight": "q4",
		"model.layers.0.mlp.down_proj.weight": "q2", "model.layers.1.mlp.down_proj.weight": "q2",
	}
	for _, c := range out.Choices {
		if c.Quant != want[c.Name] {
			t.Errorf("%s: %s, want %s", c.Name, c.Quant, want[c.Name])
		}
	}
	if out.Bits != 3 || math.Abs(out.Expected-(0.09+0.4)) > 1e-9 {
		t.Errorf("%v bits, expected loss %v", out.Bits, out.Expected)
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for want, numbers := range map[string][]int{"0": {0}, "0-2": {2, 0, 1}, "0-1,3,5-6": {0, 1, 3, 5, 6}} {
		if got := ranges(numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}
